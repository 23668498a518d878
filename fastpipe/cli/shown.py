"""How commands answer: tables for people, one JSON object for programs, errors in one line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Optional

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastpipe.errors import OptionError

# What transformers raises for a model or a task that is not there, or that asks for more than is allowed or installed.
OF_TRANSFORMERS = (ImportError, KeyError, OSError, RuntimeError, ValueError)

_UNITS = ("B", "kB", "MB", "GB", "TB")

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else.")]


Parameters = Annotated[
    Optional[str],  # noqa: UP045 - typer evaluates it on Python 3.10 too
    typer.Option(help='Arguments of the calls, as JSON, such as \'{"candidate_labels": ["food", "sports"]}\'.'),
]


def parameters_of(said: str | None) -> dict[str, Any]:
    """Read the arguments of calls.

    Raises:
        OptionError: They are no JSON object.
    """
    try:
        found = json.loads(said or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OptionError(f"--parameters={said!r} is no JSON object", remedy="Write one such as '{\"top_k\": 3}'.")
    return found


def print_json(values: Any) -> None:
    """Print plain values as JSON, which `Console` would break into lines."""
    typer.echo(json.dumps(values, indent=1, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    """Give numpy's numbers and arrays as Python's."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def print_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print a table, whose last column may take several lines; rows that begin with "*" stand out."""
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for number, name in enumerate(head):
        table.add_column(name, justify="right" if name in right else "left", no_wrap=number < len(head) - 1)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row), style="bold" if row[0].startswith("*") else "")
    Console().print(table)


def readable(size_bytes: int) -> str:
    """Give a size as text, such as "1.5 GB"."""
    power = min((len(str(size_bytes)) - 1) // 3, len(_UNITS) - 1)
    return f"{size_bytes / 1000**power:.{min(power, 1)}f} {_UNITS[power]}"


@contextmanager
def in_one_line(*errors: type[Exception]) -> Iterator[None]:
    """Print an error as its message, and leave with exit code 1."""
    try:
        yield
    except errors as error:
        said = error.args[0] if isinstance(error, KeyError) and error.args else error  # str() of one is its repr()
        Console(stderr=True).print(f"error: {said}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error
