"""The command line: `fastpipe tune …`, or `python -m fastpipe tune …`. A command is a function under `@app.command()`.

What a command needs of fastpipe it imports itself, so that help costs no import of torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fastpipe.errors import FastpipeError

if TYPE_CHECKING:
    from fastpipe.contest import Tuning

# What transformers raises for a model or a task that is not there.
_OF_TRANSFORMERS = (KeyError, OSError, RuntimeError)

# A traceback with the values of variables would show texts and tokens.
app = typer.Typer(no_args_is_help=True, pretty_exceptions_show_locals=False)


@app.callback()
def main() -> None:
    """Fast transformers pipelines."""


@app.command()
def tune(
    model: Annotated[str, typer.Argument(help="Id or folder of the model.")],
    samples: Annotated[Path, typer.Argument(help="File of inputs like yours: text or JSON lines, one input a line.")],
    task: Annotated[Optional[str], typer.Option(help="Task of the pipeline; by default the model's own.")] = None,  # noqa: UP045 - typer evaluates it on Python 3.10 too
    seconds: Annotated[float, typer.Option(help="What the timing at the end may take.")] = 60.0,
    revision: Annotated[Optional[str], typer.Option(help="Revision of the model on the hub.")] = None,  # noqa: UP045
    cache_dir: Annotated[Optional[Path], typer.Option(help="Folder of the cache of built models.")] = None,  # noqa: UP045
) -> None:
    """Measure which engine and precision run a model fastest on inputs like yours, and remember it.

    `fastpipe.pipeline()` follows the choice from then on, for this model on this machine.
    """
    with _in_one_line(FastpipeError), Console(stderr=True).status(f"tuning {model}"):
        from fastpipe import tuning
        from fastpipe.factory import pipeline

        given = tuning.read(samples)  # before anything takes long
        with _in_one_line(*_OF_TRANSFORMERS):
            # fp32: the other precisions are checked on the samples, and not on the built-in ones first.
            pipe = pipeline(task, model, revision=revision, precision="fp32", cache_dir=cache_dir)
        found = tuning.tune(pipe, given.items, seconds=seconds)
    _show(found)


def _show(tuning: Tuning) -> None:
    head, *rows = tuning.rows()
    table = Table(title=tuning.title, title_justify="left", box=box.SIMPLE_HEAD)
    for number, name in enumerate(head):
        reason = number == len(head) - 1
        table.add_column(name, justify="right" if name.endswith("/s") else "left", no_wrap=not reason)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row), style="bold" if row[0].startswith("*") else "")
    Console().print(table)


@contextmanager
def _in_one_line(*errors: type[Exception]) -> Iterator[None]:
    """Print an error as its message, and leave with exit code 1."""
    try:
        yield
    except errors as error:
        said = error.args[0] if isinstance(error, KeyError) and error.args else error  # str() of one is its repr()
        Console(stderr=True).print(f"error: {said}", style="red", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error
