"""`fastpipe cache`: what was built, and what of it may go."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from fastpipe.cli.shown import AsJson, in_one_line, print_json, print_table, readable
from fastpipe.errors import FastpipeError, OptionError

if TYPE_CHECKING:
    from fastpipe.artifacts.inventory import Entry
    from fastpipe.artifacts.store import Store

app = typer.Typer(no_args_is_help=True, help="Look at the built models, and remove some.")

Folder = Annotated[Optional[Path], typer.Option("--cache-dir", help="Folder of the cache of built models.")]  # noqa: UP045 - typer evaluates it on Python 3.10 too
_HEAD = ("key", "kind", "model", "task", "backend", "precision", "size", "last used", "state")


@app.command("list")
def list_(cache_dir: Folder = None, as_json: AsJson = False) -> None:
    """List what was built, what was used last first."""
    with in_one_line(FastpipeError):
        from fastpipe.artifacts import inventory

        store = _store(cache_dir)
        _show(f"{store.root}", inventory.entries(store), as_json)


@app.command()
def show(
    key: Annotated[str, typer.Argument(help="Of an entry, or how it begins.")],
    cache_dir: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Show all that is known of an entry, as JSON in any case."""
    with in_one_line(FastpipeError):
        from fastpipe.artifacts import inventory

        found = [entry for entry in inventory.entries(_store(cache_dir)) if entry.key.startswith(key)]
        if len(found) != 1:
            fact = f"{len(found)} entries have a key that begins with {key!r}"
            raise OptionError(fact, remedy="`fastpipe cache list` has all keys.")
        values = {**_values(found[0]), "manifest": found[0].manifest}
        print_json(values)


@app.command()
def prune(
    limit: Annotated[str, typer.Option(help="What may stay, such as 20GB.")] = "0",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would go.")] = False,
    cache_dir: Folder = None,
    as_json: AsJson = False,
) -> None:
    """Remove what was not used for longest, until the rest is small enough; nothing that a process uses."""
    with in_one_line(FastpipeError):
        from fastpipe.artifacts import inventory
        from fastpipe.options import size_of

        store = _store(cache_dir)
        gone = inventory.prune(store, size_of(limit, "--limit"), dry_run=dry_run)
        if not dry_run:
            inventory.tidy(store)
        _show("would be removed" if dry_run else "removed", gone, as_json)


@app.command()
def verify(cache_dir: Folder = None, as_json: AsJson = False) -> None:
    """Read every byte; exit code 1 where something is damaged."""
    with in_one_line(FastpipeError):
        from fastpipe.artifacts import inventory

        found = inventory.verify(_store(cache_dir))
        states = [damage or "whole" for _, damage in found]
        _show("verified", [entry for entry, _ in found], as_json, states)
    if any(damage for _, damage in found):
        raise typer.Exit(1)


def _store(cache_dir: Path | None) -> Store:
    from fastpipe import options
    from fastpipe.artifacts.store import Store

    given = {} if cache_dir is None else {"cache_dir": cache_dir}
    return Store(options.resolve(given).cache_dir)


def _values(entry: Entry) -> dict[str, Any]:
    names = ("key", "kind", "model", "task", "backend", "precision", "size_bytes", "used_at", "in_use")
    return {name: getattr(entry, name) for name in names}


def _show(title: str, entries: Sequence[Entry], as_json: bool, states: Sequence[str] | None = None) -> None:
    states = states or ["in use" if entry.in_use else "" for entry in entries]
    size = sum(entry.size_bytes for entry in entries)
    if as_json:
        rows = [{**_values(entry), "state": state} for entry, state in zip(entries, states, strict=True)]
        print_json({"title": title, "size_bytes": size, "entries": rows})
        return
    print_table(
        f"{title}: {len(entries)} entries, {readable(size)}",
        _HEAD,
        (
            (
                entry.key[:8],
                *(entry.kind, entry.model, entry.task, entry.backend, entry.precision),
                readable(entry.size_bytes),
                datetime.fromtimestamp(entry.used_at).isoformat(" ", "minutes"),
                state,
            )
            for entry, state in zip(entries, states, strict=True)
        ),
        right=("size",),
    )
