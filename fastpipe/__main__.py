"""`python -m fastpipe`: see `fastpipe.cli`."""

from fastpipe.cli import app

if __name__ == "__main__":
    app(prog_name="fastpipe")
