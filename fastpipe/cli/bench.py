"""`fastpipe bench`: fastpipe beside plain transformers, on one's own inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer
from rich.console import Console

from fastpipe.cli.shown import OF_TRANSFORMERS, AsJson, Parameters, in_one_line, parameters_of, print_json, print_table
from fastpipe.errors import FastpipeError


def bench(
    model: Annotated[str, typer.Argument(help="Id or folder of the model.")],
    data: Annotated[Path, typer.Option(help="File of inputs like yours: text or JSON lines, one input a line.")],
    task: Annotated[Optional[str], typer.Option(help="Task of the pipeline; by default the model's own.")] = None,  # noqa: UP045 - typer evaluates it on Python 3.10 too
    backend: Annotated[Optional[str], typer.Option(help="Engine; by default the fastest that takes it.")] = None,  # noqa: UP045
    precision: Annotated[Optional[str], typer.Option(help="Precision; by default the fastest that passes.")] = None,  # noqa: UP045
    batch_size: Annotated[int, typer.Option(help="Batches of transformers; its own default is 1.", min=1)] = 1,
    parameters: Parameters = None,
    plot: Annotated[Optional[Path], typer.Option(help="File to draw the rates in, such as rates.png.")] = None,  # noqa: UP045
    revision: Annotated[Optional[str], typer.Option(help="Revision of the model on the hub.")] = None,  # noqa: UP045
    cache_dir: Annotated[Optional[Path], typer.Option(help="Folder of the cache of built models.")] = None,  # noqa: UP045
    as_json: AsJson = False,
) -> None:
    """Time lists of your inputs in fastpipe and in plain transformers on the CPU, in turns: up to 256 of them, drawn.

    Example: fastpipe bench my/model --data texts.txt --plot rates.png
    """
    with in_one_line(FastpipeError, *OF_TRANSFORMERS), Console(stderr=True).status(f"timing {model}"):
        said = parameters_of(parameters)
        from fastpipe import comparison, tuning

        given = tuning.read(data)  # before anything takes long
        if plot:
            comparison.check_plot(plot)
        options: dict[str, Any] = {"backend": backend, "precision": precision, "cache_dir": cache_dir}
        found = comparison.compare(
            {"task": task, "model": model, "revision": revision},
            given.items,
            batch_size=batch_size,
            parameters=said,
            **{name: value for name, value in options.items() if value is not None},
        )
        if plot:
            found.plot(plot)
    if as_json:
        return print_json(found.to_dict())
    head, *rows = found.rows()
    print_table(found.title, head, rows, right=head[1:])
    typer.echo(found.verdict)
