"""The classes of fast pipelines: a task's own class from transformers with our call path under it."""

from __future__ import annotations

from functools import cache
from typing import Any

from transformers.pipelines.base import ChunkPipeline

from fastpipe.pipelines.inputs import check, check_stride
from fastpipe.pipelines.runtime import FastChunkRuntime, FastRuntime

_PREFIX = "Fast"


class EmptyListFirst:
    """Stands before a task's class: the argument handling of some has no answer to an empty list."""

    _base: type

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Give no results for no inputs."""
        if args and isinstance(args[0], list) and not args[0]:
            return []
        return super().__call__(*args, **kwargs)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Name the task's own class in a pickle: it is a user's, or transformers', and this one is made from it."""
        made: Any = super().__reduce_ex__(max(protocol, 2))
        return _empty, (self._base,), *made[2:]


class QuestionsFirst(EmptyListFirst):
    """Looks at questions and contexts before transformers makes examples of them, and so before it fails on one."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer, once every question and context is a text."""
        asked = args[0] if len(args) == 1 else kwargs
        if isinstance(asked, dict):
            parts = {name: asked[name] for name in ("question", "context") if name in asked}
            many = [part for part in parts.values() if isinstance(part, list)]
            for index in range(max(map(len, many), default=0)):
                for part in parts.values():
                    check(part[index] if isinstance(part, list) and index < len(part) else "", index)
            for part in parts.values():
                if not isinstance(part, list):
                    check(part, None)
        elif isinstance(asked, (list, tuple)):
            for index, item in enumerate(asked):
                check(item, index)
        return super().__call__(*args, **kwargs)

    def preprocess(self, example: Any, **parameters: Any) -> Any:
        """Give the windows of a context, once it is known that the tokenizer can cut them."""
        tokenizer = self.tokenizer  # type: ignore[attr-defined]
        check_stride(tokenizer, example, **parameters)
        for window in super().preprocess(example, **parameters):  # type: ignore[misc]
            if "token_type_ids" not in tokenizer.model_input_names:  # made all the same, and not for the model
                window.pop("token_type_ids", None)
            yield window


class OwnSounds(EmptyListFirst):
    """Gives `preprocess` a mapping of its own, as it takes the sound out of the one it is given."""

    def preprocess(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """See transformers' own."""
        return super().preprocess(dict(inputs) if isinstance(inputs, dict) else inputs, *args, **kwargs)  # type: ignore[misc]


_FRONTS = {"QuestionAnsweringPipeline": QuestionsFirst, "AutomaticSpeechRecognitionPipeline": OwnSounds}


@cache
def fast_class(base: type) -> type:
    """Make the fast class of a pipeline class of transformers.

    Instances are instances of `base`, which keeps its argument handling, `preprocess`, `_forward` and `postprocess`:
    by the method order, its `super().__call__` reaches ours. They are pickled by `base`.
    """
    runtime = FastChunkRuntime if issubclass(base, ChunkPipeline) else FastRuntime
    names = {"__module__": "fastpipe.pipelines", "__doc__": base.__doc__, "_base": base}
    front = _FRONTS.get(base.__name__, EmptyListFirst)
    return type(_PREFIX + base.__name__, (front, base, runtime), names)


def _empty(base: type) -> Any:
    """Make an instance of the fast class of a pipeline class, for a pickle to fill."""
    return object.__new__(fast_class(base))
