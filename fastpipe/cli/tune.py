"""`fastpipe tune`: which engine and precision run a model fastest on one's own inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console

from fastpipe.cli.shown import OF_TRANSFORMERS, AsJson, in_one_line, print_json, print_table
from fastpipe.errors import FastpipeError


def tune(
    model: Annotated[str, typer.Argument(help="Id or folder of the model.")],
    samples: Annotated[Path, typer.Argument(help="File of inputs like yours: text or JSON lines, one input a line.")],
    task: Annotated[Optional[str], typer.Option(help="Task of the pipeline; by default the model's own.")] = None,  # noqa: UP045 - typer evaluates it on Python 3.10 too
    seconds: Annotated[float, typer.Option(help="What the timing at the end may take.")] = 60.0,
    revision: Annotated[Optional[str], typer.Option(help="Revision of the model on the hub.")] = None,  # noqa: UP045
    cache_dir: Annotated[Optional[Path], typer.Option(help="Folder of the cache of built models.")] = None,  # noqa: UP045
    as_json: AsJson = False,
) -> None:
    """Measure which engine and precision run a model fastest on inputs like yours, and remember it.

    `fastpipe.pipeline()` follows the choice from then on, for this model on this machine.
    """
    with in_one_line(FastpipeError), Console(stderr=True).status(f"tuning {model}"):
        from fastpipe import tuning
        from fastpipe.factory import pipeline

        given = tuning.read(samples)  # before anything takes long
        with in_one_line(*OF_TRANSFORMERS):
            # fp32: the other precisions are checked on the samples, and not on the built-in ones first.
            pipe = pipeline(task, model, revision=revision, precision="fp32", cache_dir=cache_dir)
        found = tuning.tune(pipe, given.items, seconds=seconds)
    if as_json:
        return print_json(found.to_dict())
    head, *rows = found.rows()
    print_table(found.title, head, rows, right=[name for name in head if name.endswith("/s")])
