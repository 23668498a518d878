"""`fastpipe doctor`: what this machine has, what is wrong, and what would make it faster."""

from __future__ import annotations

import typer

from fastpipe.cli.shown import AsJson, in_one_line, print_json, print_table
from fastpipe.errors import FastpipeError


def doctor(as_json: AsJson = False) -> None:
    """Tell what this machine and installation have, and what is missing; exit code 1 where something is wrong."""
    with in_one_line(FastpipeError):
        from fastpipe.diagnosis import diagnose

        found = diagnose()
    if as_json:
        print_json(found.to_dict())
    else:
        print_table("fastpipe on this machine", ("what", "found"), found.rows())
        for title, lines in (("Wrong", found.faults), ("Faster with", found.advice)):
            if lines:
                typer.echo("\n".join([f"{title}:", *(f"  {line}" for line in lines)]))
    if found.faults:
        raise typer.Exit(1)
