"""The classes of fast pipelines: a task's own class from transformers with our call path under it."""

from __future__ import annotations

from functools import cache
from typing import Any

import transformers
from transformers.pipelines.base import ChunkPipeline

from fastpipe.pipelines.runtime import FastChunkRuntime, FastRuntime

_PREFIX = "Fast"


class EmptyListFirst:
    """Stands before a task's class: the argument handling of some has no answer to an empty list."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Give no results for no inputs."""
        if args and isinstance(args[0], list) and not args[0]:
            return []
        return super().__call__(*args, **kwargs)  # type: ignore[misc]


@cache
def fast_class(base: type) -> type:
    """Make the fast class of a pipeline class of transformers.

    Instances are instances of `base`, which keeps its argument handling, `preprocess`, `_forward` and `postprocess`:
    by the method order, its `super().__call__` reaches ours. The class is found again by its name when it is unpickled.
    """
    runtime = FastChunkRuntime if issubclass(base, ChunkPipeline) else FastRuntime
    names = {"__module__": "fastpipe.pipelines", "__doc__": base.__doc__}
    return type(_PREFIX + base.__name__, (EmptyListFirst, base, runtime), names)


def by_name(name: str) -> type:
    """Give a fast class by its name, such as "FastTextClassificationPipeline".

    Raises:
        AttributeError: transformers has no such pipeline class.
    """
    base = getattr(transformers, name.removeprefix(_PREFIX), None) if name.startswith(_PREFIX) else None
    if not isinstance(base, type):
        raise AttributeError(f"module 'fastpipe.pipelines' has no attribute {name!r}")
    return fast_class(base)
