"""Read what artifacts are described by: JSON of known shape, whoever wrote it. Never a pickle, never code."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

from fastpipe.batching.planner import Padding

LARGEST = 1 << 26  # bytes: a record has kilobytes
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class File:
    """What a manifest says of one file: its size in bytes, and its sha256."""

    size: int
    sha256: str


def read(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is no JSON object, or too large for a record.
    """
    if path.stat().st_size > LARGEST:
        raise ValueError("it is too large for a record")
    try:
        values = json.loads(path.read_text("utf-8"))
    except RecursionError:  # brackets in brackets, thousands deep
        values = None
    if not isinstance(values, dict):
        raise ValueError("it is no JSON object")
    return values


def files_of(manifest: Mapping[str, Any]) -> dict[str, File]:
    """Give the files that a manifest names, by their names, which stay in its folder.

    Raises:
        ValueError: It names something else.
    """
    told = manifest.get("files")
    if not isinstance(told, dict):
        raise ValueError("it has no list of files")
    files = {}
    for name, values in told.items():
        parts = PureWindowsPath(name)  # whose separators are those of all systems
        if not parts.parts or parts.anchor or ".." in parts.parts or "\0" in name:
            raise ValueError(f"{name!r} is no name of a file in it")
        size, sha256 = (values.get("size"), values.get("sha256")) if isinstance(values, dict) else (None, None)
        if type(size) is not int or size < 0 or not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
            raise ValueError(f"it does not say what {name!r} is")
        files[name] = File(size=size, sha256=sha256)
    return files


def facts_of_graph(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a manifest from elsewhere says of a model's graph, where that is what a builder says.

    Raises:
        ValueError: It says something else.
    """
    facts = manifest.get("facts")
    if not isinstance(facts, dict):
        raise ValueError("it has no facts")
    outputs, shapes = facts.get("outputs"), facts.get("shapes", {})
    sound = {
        "outputs": isinstance(outputs, list) and bool(outputs) and all(isinstance(name, str) for name in outputs),
        "max_tokens": "max_tokens" in facts and _is_length(facts["max_tokens"]),
        "padding": facts.get("padding") in [padding.value for padding in Padding],
        "main_input": isinstance(facts.get("main_input", ""), str),
        "left_padding": isinstance(facts.get("left_padding", False), bool),
        "shapes": isinstance(shapes, dict)
        and all(isinstance(axes, list) and all(map(_is_length, axes)) for axes in shapes.values()),
    }
    if not all(sound.values()):
        raise ValueError(f"its facts are not those of a graph: {', '.join(n for n, good in sound.items() if not good)}")
    return facts


def _is_length(value: Any) -> bool:
    return value is None or (type(value) is int and value > 0)
