"""docs/configuration.md names the variables that the code reads, and no others."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import fastpipe

PACKAGE = Path(fastpipe.__file__).parent
NAME = re.compile(r"FASTPIPE_[A-Z_]+")


def read_by_the_code() -> set[str]:
    """Names that are whole texts: those in docstrings and messages are parts of one."""
    trees = [ast.parse(path.read_text("utf-8")) for path in PACKAGE.rglob("*.py")]
    texts = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return {text for text in texts if isinstance(text, str) and NAME.fullmatch(text)}


def mentioned() -> set[str]:
    return {name for path in PACKAGE.rglob("*.py") for name in NAME.findall(path.read_text("utf-8"))}


def test_every_variable_is_in_the_table() -> None:
    table = (PACKAGE.parent / "docs" / "configuration.md").read_text("utf-8")
    rows = [line for line in table.splitlines() if line.startswith("| `FASTPIPE_")]
    named = [found.group() for row in rows if (found := NAME.search(row))]
    assert len(named) == len(set(named)), "one row for each"
    assert set(named) == read_by_the_code()
    assert mentioned() <= set(named), "what is built from parts is found by what the docstrings say of it"
