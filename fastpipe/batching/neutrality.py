"""Find out what a model does with padded rows, by trying it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fastpipe.batching.collate import Feed, run_batch
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

    def same(rows: Sequence[Feed]) -> bool:
        try:
            alone = [run(row) for row in rows]
            beside = run_batch(run, rows, values, per_token=per_token)
        except Exception:  # the reason differs from model to model; that it fails is the measurement
            return False
        return all(distance(one, other) <= TOLERANCE for one, other in zip(beside, alone, strict=True))

    if same(feeds):
        return Padding.NEUTRAL
    other = feeds[0]["input_ids"].copy()  # as long, with other tokens between the first and the last
    other[:, 1:-1] = np.resize(feeds[-1]["input_ids"], other[:, 1:-1].shape)
    return Padding.EQUAL_LENGTHS if same([feeds[0], {**feeds[0], "input_ids": other}]) else Padding.SINGLE


def distance(one: Feed, other: Feed) -> float:
    """Give the largest difference between two rows' outputs, relative to the largest value where that exceeds 1."""
    worst = 0.0
    for name, values in other.items():
        if one[name].shape != values.shape or not np.isfinite(one[name]).all():
            return float("inf")
        scale = max(1.0, float(np.abs(values).max(initial=0.0)))
        worst = max(worst, float(np.abs(one[name] - values).max(initial=0.0)) / scale)
    return worst
