"""What a way around is, and what several of them need."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from fastpipe.pipelines.rows import Answer, Row

Array: TypeAlias = "np.ndarray[Any, Any]"
# One input's rows in their order, each with the model's answer.
Answered: TypeAlias = "Sequence[tuple[Row, Answer]]"
Encode = Callable[[Any, Sequence[str], Mapping[str, Any]], "list[Row] | None"]
Decode = Callable[[Any, Sequence[Answered], Mapping[str, Any]], "list[Any]"]

STEPS = ("preprocess", "_forward", "postprocess")


@dataclass(frozen=True, kw_only=True)
class Shortcut:
    """The way around for one task.

    Attributes:
        task: The task's class.
        encode: Makes rows of texts: the pipeline, one or more texts, and the parameters of `preprocess`. Gives the rows
            of all texts in order, each owned by its text's position; `None` where it meets what it does not know, or
            instead of a function where texts cannot be tokenized together.
        decode: Makes results of answers: the pipeline, one or more inputs' answered rows, and the parameters of
            `postprocess`. Gives one result for each input, none of which shares anything with another.
        parameters: Those of `preprocess` that `encode` knows.
        steps: What the class does its work with; `decode` and `encode` stand for all of it.
    """

    task: type
    encode: Encode | None
    decode: Decode
    parameters: frozenset[str]
    steps: tuple[str, ...] = STEPS


def rounded(array: Array, dtype: torch.dtype) -> torch.Tensor:
    """Give an output in the dtype that the model answers with."""
    return torch.from_numpy(array).to(dtype)


def softmax(values: Array) -> Array:
    """Normalize along the last axis."""
    exponentials = np.exp(values - values.max(axis=-1, keepdims=True))
    normalized: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return normalized
