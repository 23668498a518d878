"""Inputs as rows: what the accuracy check compares recipes on, and what static recipes are calibrated with."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from fastpipe.artifacts.spec import digest_of
from fastpipe.batching.collate import Feed
from fastpipe.batching.shapes import size_of
from fastpipe.errors import ExportError, InputTooLongError
from fastpipe.pipelines.guards import naming
from fastpipe.pipelines.rows import Row
from fastpipe.pipelines.standin import collecting
from fastpipe.precision import sample, synthetic
from fastpipe.tasks import Task

# Where a masked word may stand: so near the start that truncation leaves it in.
_MASKED = 8
# Pictures or sounds that a model and its graphs are tried out with.
FEW = 6
# How many numbers of more of them the accuracy check takes: as many as 24 pictures of 224 pixels square have.
_NUMBERS = 24 * 3 * 224**2


def digest(task: Task) -> str:
    """Identify the built-in sample of a task."""
    texts = [sample.TEXTS, sample.QUESTIONS]
    return digest_of(texts if task.modality == "text" else [task.sample, synthetic.VERSION])


def built_in(kind: str, pipe: Any, most: int | None = None) -> Sequence[Any]:
    """Give the built-in sample as inputs of a pipeline.

    Args:
        kind: "texts", "masked", "questions", "images" or "sounds".
        pipe: The pipeline; its tokenizer has the mask token, its feature extractor says how many samples a second has.
        most: Upper bound of pictures or sounds, where few will do.

    Raises:
        ValueError: It has none.
    """
    tokenizer = pipe.tokenizer
    if kind == "images":
        from PIL import Image

        return [Image.fromarray(picture) for picture in synthetic.pictures(most)]
    if kind == "sounds":
        return synthetic.sounds(most, rate=pipe.feature_extractor.sampling_rate)
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


def texts(pipe: Any, task: Task) -> tuple[list[Feed], str]:
    """Prepare the built-in sample of a task of texts.

    Args:
        pipe: A fast pipeline.
        task: Its task.

    Returns:
        Its rows, and what they are.

    Raises:
        ValueError: None of its texts is short enough for the model.
    """
    items = built_in(task.sample, pipe)
    feeds: list[Feed] = []
    for item in items:
        # Of a model with few positions, and a task that does not truncate.
        with contextlib.suppress(InputTooLongError):
            feeds += [row.feed for row in rows_of(pipe, task, [item])]
    if not feeds:
        raise ValueError("none of its texts is short enough")
    return feeds, f"the built-in sample of {len(items)} inputs"


def examples(pipe: Any, task: Task, most: int | None = None) -> list[Row]:
    """Prepare the built-in sample of a task of pictures or sounds, as much of it as a check should take.

    Args:
        pipe: A fast pipeline.
        task: Its task.
        most: Upper bound of pictures or sounds.

    Raises:
        ExportError: It does not go through this pipeline.
    """
    rows: list[Row] = []
    try:
        for item in built_in(task.sample, pipe, most):
            rows += rows_of(pipe, task, [item])
            if len(rows) >= FEW and sum(size_of(row.feed, task.shared) for row in rows) >= _NUMBERS:
                break
    except (OSError, MemoryError):  # these pass; an ExportError is remembered
        raise
    except Exception as error:
        raise ExportError(f"made-up {task.sample} do not go through this pipeline: {error}") from error
    if not rows:
        raise ExportError(f"this pipeline makes no single rows of {task.sample}")
    return rows
