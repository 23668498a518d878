"""The command line: `fastpipe build …`, or `python -m fastpipe build …`. Each command is a module here.

What a command needs of fastpipe it imports itself, so that help costs no import of torch.
"""

from __future__ import annotations

import typer

from fastpipe.cli.bench import bench
from fastpipe.cli.build import build
from fastpipe.cli.cache import app as cache
from fastpipe.cli.doctor import doctor
from fastpipe.cli.tune import tune
from fastpipe.cli.verify import verify

# A traceback with the values of variables would show texts and tokens.
app = typer.Typer(no_args_is_help=True, pretty_exceptions_show_locals=False)
for command in (doctor, build, verify, bench, tune):
    app.command()(command)
app.add_typer(cache, name="cache")


@app.callback()
def main() -> None:
    """Fast transformers pipelines."""
