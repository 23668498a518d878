"""Inputs as rows: what the accuracy check compares recipes on, and what static recipes are calibrated with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastpipe.pipelines.guards import naming
from fastpipe.pipelines.rows import Row
from fastpipe.pipelines.standin import collecting
from fastpipe.precision import sample, synthetic
from fastpipe.tasks import Task

# Where a masked word may stand: so near the start that truncation leaves it in.
_MASKED = 8


def built_in(kind: str, pipe: Any) -> Sequence[Any]:
    """Give the built-in sample as inputs of a pipeline.

    Args:
        kind: "texts", "masked", "questions", "images" or "sounds".
        pipe: The pipeline; its tokenizer has the mask token, its feature extractor says how many samples a second has.

    Raises:
        ValueError: It has none.
    """
    tokenizer = pipe.tokenizer
    if kind == "images":
        from PIL import Image

        return [Image.fromarray(picture) for picture in synthetic.pictures()]
    if kind == "sounds":
        return synthetic.sounds(rate=pipe.feature_extractor.sampling_rate)
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


def rows_of(pipe: Any, task: Task, items: Sequence[Any]) -> list[Row]:
    """Take inputs through all of a fast pipeline's own argument handling and `preprocess`.

    Args:
        pipe: The pipeline.
        task: Its task, with the parameters of the call.
        items: Inputs of the pipeline; for a task of texts, a mapping without a "text" holds arguments of a call.

    Returns:
        Every row that comes of them.
    """
    with collecting() as rows:
        for index, item in enumerate(items):
            with naming(index, {}):
                if task.modality == "text" and isinstance(item, Mapping) and "text" not in item:
                    pipe(**{**task.parameters, **item})
                else:
                    pipe([item], **task.parameters)
    return [row for row in rows if row.feed]
