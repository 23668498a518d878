"""`fastpipe build`: what `pipeline()` would build, now; in the image of a container, say."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Annotated, Optional

import typer
from rich.console import Console

from fastpipe.cli.shown import OF_TRANSFORMERS, AsJson, in_one_line, print_json
from fastpipe.errors import FastpipeError


def build(
    model: Annotated[str, typer.Argument(help="Id or folder of the model.")],
    task: Annotated[Optional[str], typer.Option(help="Task of the pipeline; by default the model's own.")] = None,  # noqa: UP045 - typer evaluates it on Python 3.10 too
    backend: Annotated[Optional[str], typer.Option(help="Engine; by default the fastest that takes it.")] = None,  # noqa: UP045
    precision: Annotated[Optional[str], typer.Option(help="Precision; by default the fastest that passes.")] = None,  # noqa: UP045
    revision: Annotated[Optional[str], typer.Option(help="Revision of the model on the hub.")] = None,  # noqa: UP045
    cache_dir: Annotated[Optional[Path], typer.Option(help="Folder of the cache of built models.")] = None,  # noqa: UP045
    as_json: AsJson = False,
) -> None:
    """Export, quantize, check and compile a model, so that the next `fastpipe.pipeline()` with it starts at once.

    Example: fastpipe build distilbert-base-uncased-finetuned-sst-2-english --task text-classification
    """
    status = Console(stderr=True).status(f"building {model}")
    # What libraries print is not part of the answer.
    with in_one_line(FastpipeError, *OF_TRANSFORMERS), status, contextlib.redirect_stdout(sys.stderr):
        from fastpipe.factory import pipeline

        said = {"backend": backend, "precision": precision, "cache_dir": cache_dir}
        given = {name: value for name, value in said.items() if value is not None}
        pipe = pipeline(task, model, revision=revision, **given)
    if as_json:
        print_json({"plan": pipe.plan.to_dict(), "report": pipe.report.to_dict()})
    else:
        typer.echo(f"{pipe.plan}\n\n{pipe.report}")
