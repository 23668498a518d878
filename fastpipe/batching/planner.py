"""Split rows into batches. Pure: lengths in, positions out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


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
        wasted_tokens: Padding that one row may add for the rows before it; a new batch costs about as much as this.
        rows: Upper bound of rows, the user's `batch_size`.
    """

    padded_tokens: int = 1024
    wasted_tokens: int = 64
    rows: int | None = None


def split(lengths: Sequence[int], padding: Padding, limits: Limits) -> list[list[int]]:
    """Split rows into batches.

    Args:
        lengths: Tokens of each row.
        padding: What the model does with padded rows.
        limits: What one batch may hold; a row alone is always a batch.

    Returns:
        For each batch, the positions of its rows in `lengths`: each position once, batches with the longest rows first,
        rows of equal length in their order.
    """
    if padding is Padding.SINGLE:
        limits = Limits(rows=1)
    wasted = limits.wasted_tokens if padding is Padding.NEUTRAL else 0
    batches: list[list[int]] = []
    shortest_free = 0
    for position in sorted(range(len(lengths)), key=lambda p: lengths[p]):
        length = lengths[position]
        rows = len(batches[-1]) if batches else 0
        if (
            not rows
            or (rows + 1) * length > limits.padded_tokens
            or rows * (length - shortest_free) > wasted
            or rows == limits.rows
        ):
            batches.append([position])
        else:
            batches[-1].append(position)
        shortest_free = length
    return batches[::-1]
