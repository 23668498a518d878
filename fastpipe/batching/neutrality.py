"""Find out what a model does with padded rows, by trying it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fastpipe.batching.collate import Feed, pad, take
from fastpipe.batching.planner import Padding

# Far above what other kernels do to the last bits, far below what a wrong position or a missing mask does.
TOLERANCE = 1e-3


def measure(
    run: Callable[[Feed], Feed], feeds: Sequence[Feed], values: Mapping[str, int], *, per_token: bool
) -> Padding:
    """Run rows alone and beside others, and compare.

    Args:
        run: Runs one batch, as `Runner.run`.
        feeds: Two or more rows of different lengths: arrays of shape (1, tokens).
        values: What to pad each input with.
        per_token: Whether axis 1 of the outputs counts tokens.

    Returns:
        The most that the model allows.
    """

    def same(chosen: Sequence[int]) -> bool:
        try:
            alone = {i: run(feeds[i]) for i in chosen}
            together = run(pad([feeds[i] for i in chosen], values))
        except Exception:  # the reason differs from model to model; that it fails is the measurement
            return False
        rows = [
            take(together, row, feeds[i]["input_ids"].shape[1], per_token=per_token) for row, i in enumerate(chosen)
        ]
        return all(distance(rows[row], alone[i]) <= TOLERANCE for row, i in enumerate(chosen))

    if same(range(len(feeds))):
        return Padding.NEUTRAL
    return Padding.EQUAL_LENGTHS if same([0, 0]) else Padding.SINGLE


def distance(one: Feed, other: Feed) -> float:
    """Give the largest difference between two rows' outputs, relative to the largest value where that exceeds 1."""
    worst = 0.0
    for name, values in other.items():
        if one[name].shape != values.shape or not np.isfinite(one[name]).all():
            return float("inf")
        scale = max(1.0, float(np.abs(values).max(initial=0.0)))
        worst = max(worst, float(np.abs(one[name] - values).max(initial=0.0)) / scale)
    return worst
