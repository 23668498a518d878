"""Split rows into the batches that cost least. Pure: lengths in, positions out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from fastpipe.batching.cost import USUAL, Cost

_MEMORY_SHARE = 1 / 8  # for one batch's outputs: while they are held, each row's part of them is copied out


class Padding(str, Enum):
    """What a model does with padded rows."""

    NEUTRAL = "neutral"  # a row's result is the same whatever stands beside it
    EQUAL_LENGTHS = "equal-lengths"  # only when nothing is padded
    SINGLE = "single"  # it takes one row at a time


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one batch may hold.

    Attributes:
        padded_tokens: Rows times the length of the longest. Around 1,000 tokens an int8 encoder is at its peak rate on
            the CPUs measured, and a batch still fits their second-level cache.
        rows: Upper bound of rows, the user's `batch_size`.
    """

    padded_tokens: int = 1024
    rows: int | None = None


def memory_limits(limits: Limits, cost: Cost, available_bytes: int) -> Limits:
    """Lower limits so that the outputs of one batch take at most an eighth of the memory.

    Args:
        limits: What one batch may hold otherwise.
        cost: What batches cost; without its bytes the limits stay as they are.
        available_bytes: Memory that may be used; 0 where the system would not tell, and the limits stay as they are.

    Returns:
        Limits with at least one token. A row alone is a batch whatever its outputs take.
    """
    if not cost.bytes_per_token or not available_bytes:
        return limits
    fitting = max(1, int(_MEMORY_SHARE * available_bytes / cost.bytes_per_token))
    return replace(limits, padded_tokens=min(limits.padded_tokens, fitting))


def split(lengths: Sequence[int], padding: Padding, limits: Limits, cost: Cost = USUAL) -> list[list[int]]:
    """Split rows into batches, such that no other split of the rows sorted by length costs less.

    Time and memory grow with the rows, and not with the limits: an optimal split can always be brought to a form that
    leaves little to try. Where a batch ends with a row of length l and the next one goes on with l, rows can move from
    the next one into it, and the total does not grow: a row costs no more in the batch with the shorter longest row.
    They can move until the batch is full, or until the next has no rows of length l left. So a batch that ends among
    rows of one length is full, and only those that end with the last row of a length are to be chosen.

    Args:
        lengths: Tokens of each row.
        padding: What the model does with padded rows.
        limits: What one batch may hold; a row alone is always a batch.
        cost: What batches cost. Only the ratios of its coefficients matter.

    Returns:
        For each batch, the positions of its rows in `lengths`: each position once, batches with the longest rows first,
        rows of equal length in their order.
    """
    count = len(lengths)
    if count < 2:
        return [[position] for position in range(count)]
    tokens = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(tokens, kind="stable")
    distinct, starts = np.unique(tokens[order], return_index=True)
    most_rows = 1 if padding is Padding.SINGLE else min(limits.rows or count, count)
    capacities = np.clip(limits.padded_tokens // np.maximum(distinct, 1), 1, most_rows).tolist()

    # Of the first rows in order, as many as the index says: the least seconds, and where the last batch begins.
    least_s = np.full(count + 1, np.inf)
    least_s[0] = 0.0
    begins: np.ndarray[Any, Any] = np.zeros(count + 1, dtype=np.int64)
    bounds = [*starts.tolist(), count]
    for length, start, stop, capacity in zip(distinct.tolist(), bounds, bounds[1:], capacities, strict=False):
        earliest = 0 if padding is Padding.NEUTRAL else start
        if stop - start > 1:  # ends among these rows: after full batches, of which all but the first begin here too
            ends = np.arange(start + 1, stop)
            full = -((start - ends) // capacity)
            before = ends - full * capacity
            seconds = least_s[np.maximum(before, 0)] + full * cost.batch_s(capacity, length)
            least_s[start + 1 : stop] = np.where(before >= earliest, seconds, np.inf)
            begins[start + 1 : stop] = ends - capacity
        first = max(earliest, stop - capacity)
        totals = least_s[first:stop] + cost.batch_s(np.arange(stop - first, 0, -1), length)
        chosen = int(totals.argmin())
        least_s[stop] = totals[chosen]
        begins[stop] = first + chosen

    positions, begin_of = order.tolist(), begins.tolist()
    batches: list[list[int]] = []
    end = count
    while end:
        batches.append(positions[begin_of[end] : end])
        end = begin_of[end]
    return batches
