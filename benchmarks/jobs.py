"""What a loaded contender can be asked to do, inside its worker. Times are seconds by the monotonic clock."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.loaders import Loaded

Setting = Mapping[str, int]


def as_list(
    loaded: Loaded, texts: list[str], setting: Setting, repeat: int = 1, options: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Time one call with a list of texts, several times over, with more of the task's parameters where there are."""
    seconds = []
    given = {**setting, **(options or {})}
    for _ in range(repeat):
        started = time.perf_counter()
        loaded(texts, given)
        seconds.append(time.perf_counter() - started)
    return {"seconds": seconds}


def one_by_one(loaded: Loaded, texts: list[str], setting: Setting) -> dict[str, Any]:
    """Time a call for each text."""
    seconds = []
    for text in texts:
        started = time.perf_counter()
        loaded(text, setting)
        seconds.append(time.perf_counter() - started)
    return {"seconds": seconds}


def in_turn(loaded: Loaded, texts: list[str], setting: Setting, repeat: int = 1) -> dict[str, Any]:
    """Time a loop that calls with one text after the other, several times over."""
    return {"seconds": [sum(one_by_one(loaded, texts, setting)["seconds"]) for _ in range(repeat)]}


def scores(loaded: Loaded, texts: list[str], setting: Setting) -> list[float]:
    """Give the score of the first of two labels for each text, to compare the contenders' answers."""
    first = loaded.config.id2label[0]
    answers = loaded(texts, setting)
    return [a["score"] if a["label"] == first else 1 - a["score"] for a in answers]


def vectors(loaded: Loaded, texts: list[str], setting: Setting) -> list[list[float]]:
    """Give one vector a text, of length 1: the contender's own, or the mean of the vectors that it gives for tokens."""
    pooled = []
    for answer in loaded(texts, setting):
        values = np.asarray(answer)  # (1, tokens, width) or (width,)
        vector = values if values.ndim == 1 else values.reshape(-1, values.shape[-1]).mean(0)
        pooled.append((vector / np.linalg.norm(vector)).round(6).tolist())
    return pooled


def entities(loaded: Loaded, texts: list[str], setting: Setting) -> list[list[str]]:
    """Give the tokens of each text that are labelled, with their labels: "17 B-LOC" for the 17th."""
    return [[f"{found['index']} {found['entity']}" for found in answer] for answer in loaded(texts, setting)]
