"""Pipelines: their classes, their call path, and how transformers is asked to make them."""

from typing import Any

from fastpipe.pipelines import imports

imports.put_off()  # before any module here imports transformers


def __getattr__(name: str) -> Any:
    """Find a fast class by name, so that pickles load in a process that has made none yet."""
    if not name.startswith("Fast"):
        raise AttributeError(f"module 'fastpipe.pipelines' has no attribute {name!r}")
    from fastpipe.pipelines.classes import by_name

    return by_name(name)
