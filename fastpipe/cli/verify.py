"""`fastpipe verify`: what a model answers as built, beside its own fp32, on one's own inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console

from fastpipe.cli.shown import OF_TRANSFORMERS, AsJson, Parameters, in_one_line, parameters_of, print_json
from fastpipe.errors import FastpipeError


def verify(
    model: Annotated[str, typer.Argument(help="Id or folder of the model.")],
    data: Annotated[Path, typer.Option(help="File of inputs like yours: text or JSON lines, one input a line.")],
    task: Annotated[Optional[str], typer.Option(help="Task of the pipeline; by default the model's own.")] = None,  # noqa: UP045 - typer evaluates it on Python 3.10 too
    backend: Annotated[Optional[str], typer.Option(help="Engine; by default the fastest that takes it.")] = None,  # noqa: UP045
    precision: Annotated[Optional[str], typer.Option(help="Precision; by default the fastest that passes.")] = None,  # noqa: UP045
    parameters: Parameters = None,
    revision: Annotated[Optional[str], typer.Option(help="Revision of the model on the hub.")] = None,  # noqa: UP045
    cache_dir: Annotated[Optional[Path], typer.Option(help="Folder of the cache of built models.")] = None,  # noqa: UP045
    as_json: AsJson = False,
) -> None:
    """Compare what a model answers with its own fp32 on the same engine: up to 256 inputs, drawn from the file.

    Example: fastpipe verify my/model --data texts.txt --precision int8
    """
    with in_one_line(FastpipeError, *OF_TRANSFORMERS), Console(stderr=True).status(f"verifying {model}"):
        said = parameters_of(parameters)
        from fastpipe import tuning, verification
        from fastpipe.factory import pipeline

        given = tuning.read(data)  # before anything takes long
        options = {"backend": backend, "precision": precision, "cache_dir": cache_dir}
        named = {name: value for name, value in options.items() if value is not None}
        pipe = pipeline(task, model, revision=revision, **named)
        found = verification.verify(pipe, given.items, **{**tuning.defaults(pipe.task), **said})
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo(str(found))
