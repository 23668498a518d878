"""Questions and their contexts, in all the ways in which they may be given to a question answering pipeline."""

from __future__ import annotations

import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import Dataset
from transformers.pipelines.base import ArgumentHandler


@dataclass(frozen=True)
class SquadExample:
    """A question and the context that its answer is looked for in."""

    question_text: str
    context_text: str


def make_example(question: Any, context: Any) -> Any:
    """Make an example, or a list of them from lists."""
    if isinstance(question, list):
        return [SquadExample(*both) for both in zip(question, context, strict=False)]
    return SquadExample(question, context)


class QuestionAnsweringArgumentHandler(ArgumentHandler):
    """Finds questions and contexts in the arguments of a call, in all the ways in which they may be given."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Give a list of examples; a generator or Dataset stays what it is.

        Raises:
            ValueError: There are none, or one is empty or `None`.
            KeyError: A dict lacks one of the two.
        """
        given = _positional(args) if args else _named(kwargs)
        if isinstance(given, (types.GeneratorType, Dataset)):
            return given
        if isinstance(given, dict):
            given = [given]
        elif not isinstance(given, Iterable):
            raise ValueError(f"{given!r} is neither an example nor a list of them")
        return [self.normalize(item) for item in given]

    def normalize(self, item: Any) -> Any:
        """Make an example of a dict; leave what is one."""
        if hasattr(item, "question_text") and hasattr(item, "context_text"):
            return item
        if not isinstance(item, dict):
            raise ValueError(f"{item!r} is no dict of a question and a context, and no SquadExample")
        for name in ("question", "context"):
            if name not in item:
                raise KeyError(f"a dict needs a 'question' and a 'context'; this one has no {name!r}")
            if item[name] is None:
                raise ValueError(f"`{name}` cannot be None")
            if item[name] == "":
                raise ValueError(f"`{name}` cannot be empty")
        return make_example(**item)


def _positional(args: tuple[Any, ...]) -> Any:
    if len(args) == 2 and all(isinstance(arg, str) for arg in args):
        return {"question": args[0], "context": args[1]}
    return args[0] if len(args) == 1 else list(args)


def _named(kwargs: dict[str, Any]) -> Any:
    for name in ("X", "data"):
        if name in kwargs:
            return kwargs[name]
    if "question" not in kwargs or "context" not in kwargs:
        raise ValueError(f"question= and context= are needed; given: {', '.join(kwargs) or 'nothing'}")
    question, context = kwargs["question"], kwargs["context"]
    if isinstance(question, str) and isinstance(context, str):
        return {"question": question, "context": context}
    if isinstance(question, list) and isinstance(context, str):
        context = [context] * len(question)
    if not (isinstance(question, list) and isinstance(context, list)):
        raise ValueError("question= and context= are texts, or lists of them; one context may go with many questions")
    if len(question) != len(context):
        raise ValueError(f"there are {len(question)} questions and {len(context)} contexts")
    return [{"question": q, "context": c} for q, c in zip(question, context, strict=True)]
