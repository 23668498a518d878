"""Inputs as rows: what the accuracy check compares recipes on, and what static recipes are calibrated with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastpipe.batching.collate import Feed
from fastpipe.pipelines.guards import naming
from fastpipe.pipelines.standin import collecting
from fastpipe.precision import sample
from fastpipe.tasks import Task

# Where a masked word may stand: so near the start that truncation leaves it in.
_MASKED = 8


def built_in(kind: str, tokenizer: Any) -> Sequence[Any]:
    """Give the built-in sample as inputs of a pipeline.

    Args:
        kind: "texts", "masked" or "questions".
        tokenizer: The pipeline's; it has the mask token.

    Raises:
        ValueError: It has none.
    """
    if kind == "questions":
        return [{"question": question, "context": context} for question, context in sample.QUESTIONS]
    if kind == "masked":
        if tokenizer.mask_token is None:
            raise ValueError("the tokenizer has no mask token")
        return [_masked(text.split(), tokenizer.mask_token) for text in sample.TEXTS]
    return sample.TEXTS


def _masked(words: list[str], mask: str) -> str:
    at = min(len(words) // 2, _MASKED)
    return " ".join([*words[:at], mask, *words[at + 1 :]])


def rows_of(pipe: Any, task: Task, items: Sequence[Any]) -> list[Feed]:
    """Take inputs through all of a fast pipeline's own argument handling and `preprocess`.

    Args:
        pipe: The pipeline.
        task: Its task, with the parameters of the call.
        items: Inputs of the pipeline; a mapping without a "text" holds arguments of a call.

    Returns:
        Every row that comes of them: int64 arrays of shape (1, tokens) by name.
    """
    with collecting() as rows:
        for index, item in enumerate(items):
            with naming(index, {}):
                if isinstance(item, Mapping) and "text" not in item:
                    pipe(**{**task.parameters, **item})
                else:
                    pipe([item], **task.parameters)
    return [row.feed for row in rows if row.feed]
