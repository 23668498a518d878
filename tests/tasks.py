"""docs/tasks.md, from what tests ran: `python -m tests.tasks FOLDER...`, each filled by `pytest --tasks FOLDER`."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

used: list[Any] = []  # pipelines of the test that runs


def noted(pipe: Any) -> Any:
    """Give a pipeline back, which goes into the page if its test passes."""
    used.append(pipe)
    return pipe


HEAD = """# Tasks: what runs where

Written by `python -m tests.tasks` from what the tests ran, next to transformers 4 and 5; not edited by hand. A line
stands for pipelines whose tests passed: results equal to those of the installed transformers (or, for a task that
transformers 5 dropped, to what transformers 4.57 gave). The models are tiny and seeded, but for `minilm`.

"""


def main(folders: list[str]) -> None:
    """Write the page."""
    rows: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    reasons: dict[tuple[str, str, str], str] = {}
    versions = set()
    for path in sorted(file for folder in folders for file in Path(folder).glob("*.json")):
        for one in json.loads(path.read_text()):
            versions.add(one["transformers"])
            key = one["task"], one["architecture"]
            rows[key][one["transformers"]].add(f"{one['backend']} {one['precision']}")
            if one["reason"]:
                reasons[(*key, one["transformers"])] = one["reason"]
    columns = sorted(versions)
    lines = ["| task | model | " + " | ".join(f"transformers {v}" for v in columns) + " |"]
    lines.append("|---" * (2 + len(columns)) + "|")
    for key in sorted(rows):
        cells = [", ".join(sorted(rows[key][v])) or "–" for v in columns]
        lines.append(f"| {key[0]} | {key[1]} | " + " | ".join(cells) + " |")
    said = sorted({(task, model, v, reason) for (task, model, v), reason in reasons.items()})
    grouped: dict[str, set[str]] = defaultdict(set)
    for task, model, version, reason in said:
        grouped[reason].add(f"{task} with {model} ({version})")
    lines += ["", "## Where torch runs, and why", ""]
    lines += [f"- {reason}: {'; '.join(sorted(where))}." for reason, where in sorted(grouped.items())]
    Path("docs/tasks.md").write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
