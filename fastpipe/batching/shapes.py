"""Rows of numbers: pictures, waveforms, spectrograms. They are never padded, and batched among equal shapes only."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

import numpy as np

from fastpipe.batching.collate import Feed, run_batch, stack
from fastpipe.batching.neutrality import TOLERANCE, distance
from fastpipe.batching.planner import Padding

Run = Callable[[Feed], Feed]

# What a batch may hold before anything was measured.
USUAL_ROWS = 4
# Pictures are computed in some thousand products each: a batch gains little, and none over these.
_MOST_ROWS = 8
# Eight pictures of 224 pixels square, or half a minute and more of sound; larger rows run one at a time.
MOST_NUMBERS = 8 * 3 * 224**2
_FASTER = 1.03  # what twice the rows in memory must be worth
_TIMED = 2


def key_of(feed: Feed, shared: Collection[str]) -> Hashable:
    """Give a value that is equal for rows that fit into one batch.

    Args:
        feed: Arrays whose axis 0 is 1, and those that are shared.
        shared: Names of inputs that all rows of a batch must have the same of.
    """
    return tuple(
        (name, values.shape, values.tobytes() if name in shared else b"") for name, values in sorted(feed.items())
    )


def size_of(feed: Feed, shared: Collection[str] = ()) -> int:
    """Count the numbers of a row, without those that it shares."""
    return sum(values.size for name, values in feed.items() if name not in shared)


def split(
    keys: Sequence[Hashable], sizes: Sequence[int], padding: Padding, *, most: int, rows: int | None
) -> list[list[int]]:
    """Split rows into batches. Pure.

    Args:
        keys: What rows of one batch have in common, for each row.
        sizes: Numbers in each row.
        padding: What the model does with rows in a batch; "neutral" means no more here than "equal-lengths".
        most: Numbers that a batch may hold; a row alone is a batch whatever its size.
        rows: Upper bound of rows, the user's `batch_size`.

    Returns:
        For each batch, the positions of its rows: each position once, the largest rows first, and rows of equal shape
        in their order.
    """
    groups: dict[Hashable, list[int]] = {}
    for position, key in enumerate(keys):
        groups.setdefault(key, []).append(position)
    batches = []
    for group in sorted(groups.values(), key=lambda group: -sizes[group[0]]):
        fit = 1 if padding is Padding.SINGLE else max(1, most // max(1, sizes[group[0]]))
        fit = min(fit, rows or fit)
        batches += [group[start : start + fit] for start in range(0, len(group), fit)]
    return batches


def measure(run: Run, feed: Feed, shared: Collection[str]) -> Padding:
    """Find out whether a row's result is the same beside another of its shape, by trying it.

    Args:
        run: Runs one batch, as `Runner.run`.
        feed: A row.
        shared: Names of inputs that belong to all rows.
    """
    other = altered(feed, shared)
    try:
        alone = [run(feed), run(other)]
        beside = run_batch(run, [feed, other], {}, per_token=False, shared=shared)
    except Exception:  # the reason differs from model to model; that it fails is the measurement
        return Padding.SINGLE
    same = all(distance(one, row) <= TOLERANCE for one, row in zip(beside, alone, strict=True))
    return Padding.EQUAL_LENGTHS if same else Padding.SINGLE


def altered(feed: Feed, shared: Collection[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Make another row of the same shapes: its numbers are in reverse along the last axis, and half as large."""
    return {
        name: values if name in shared or values.dtype.kind != "f" else np.ascontiguousarray(values[..., ::-1] / 2)
        for name, values in feed.items()
    }


def fastest_rows(run: Run, feed: Feed, shared: Collection[str], *, budget_s: float = 1.5) -> tuple[int, float]:
    """Measure how many equal rows in a batch are fastest.

    Args:
        run: Runs one batch, as `Runner.run`.
        feed: A row.
        shared: Names of inputs that belong to all rows.
        budget_s: Seconds to spend; a row alone is timed in any case.

    Returns:
        The rows, 1 where a batch is not worth it, and the seconds of each of them.
    """
    started, best, best_s = time.perf_counter(), 1, float("inf")
    rows, most = 1, min(_MOST_ROWS, MOST_NUMBERS // max(1, size_of(feed, shared)))
    while rows <= max(1, most):
        expected_s = (1 + _TIMED) * rows * best_s
        if rows > 1 and time.perf_counter() - started + expected_s > budget_s:
            break
        batch = stack([feed] * rows, shared)
        run(batch)  # an engine prepares itself for a shape the first time it sees it
        took = []
        for _ in range(_TIMED):
            before = time.perf_counter()
            run(batch)
            took.append(time.perf_counter() - before)
        each_s = min(took) / rows
        if rows == 1 or each_s * _FASTER < best_s:
            best, best_s = rows, each_s
        rows *= 2
    return best, best_s


def shapes_of(feeds: Sequence[Feed], names: Collection[str]) -> dict[str, tuple[int | None, ...]]:
    """Tell what the rows of a task look like.

    Args:
        feeds: Rows.
        names: Inputs to tell of.

    Returns:
        By name the axes after the first: their length, or `None` where it differs from row to row.
    """
    return {
        name: tuple(
            lengths[0] if len(set(lengths)) == 1 else None
            for lengths in zip(*(np.shape(feed[name])[1:] for feed in feeds), strict=True)
        )
        for name in names
    }
