"""What a batch costs on one engine with one model: three coefficients, fitted to a few timed batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from fastpipe.batching.collate import Feed


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What batches of one model cost. No coefficient is negative, and `token_s` is positive.

    Attributes:
        call_s: Seconds of any batch, whatever is in it.
        token_s: Seconds that each token adds, padding included.
        pair_s: Seconds that each pair of tokens of the same row adds: attention looks at all of them.
        bytes_per_token: Of all outputs, for each token, padding included; 0 when unknown.
    """

    call_s: float
    token_s: float
    pair_s: float
    bytes_per_token: float = 0.0

    def batch_s(self, rows: Any, tokens: Any) -> Any:
        """Estimate the seconds of a batch.

        Args:
            rows: How many rows it has: a number, or an array of them.
            tokens: Tokens of the longest: a number, or an array of them.

        Returns:
            Seconds, in the shape that the arguments have together.
        """
        return self.call_s + rows * (tokens * (self.token_s + self.pair_s * tokens))

    def to_dict(self) -> dict[str, float]:
        """Give the record as plain values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Cost:
        """Make a record of what `to_dict` gave.

        Raises:
            KeyError: A coefficient is missing.
        """
        return cls(**{field.name: float(values[field.name]) for field in fields(cls)})


# For engines not measured yet. Plans depend on the ratios alone: a call is worth 64 tokens, and at 512 tokens attention
# adds 40 %. The unit is that of a small int8 encoder on one core.
_TOKEN_S, _CALL_TOKENS, _ATTENTION, _LONG = 20e-6, 64.0, 0.4, 512
USUAL = Cost(call_s=_CALL_TOKENS * _TOKEN_S, token_s=_TOKEN_S, pair_s=_ATTENTION / _LONG * _TOKEN_S)

# What a fit chooses among: tokens that a call is worth, and what attention adds at 512 tokens. A busy machine can time
# a batch at anything: the usual ratios count as much as a few timings, each trusted to some 30 %.
_CALLS = np.geomspace(_CALL_TOKENS / 8, _CALL_TOKENS * 8, 49)
_ATTENTIONS = np.linspace(0.0, 2.0, 41)
_SURPRISE = 0.3**2 * (np.log(_CALLS / _CALL_TOKENS)[:, None] ** 2 + (_ATTENTIONS / _ATTENTION - 1) ** 2) / 4

# Rows and tokens of the batches to time, those that tell the most first: the first two separate a call from its tokens,
# and then some with as many tokens in rows of other lengths separate tokens from pairs.
SHAPES = ((1, 8), (1, 32), (8, 16), (1, 256), (16, 32), (2, 256), (64, 16), (1, 512))

_TIMED = 3  # the faster one counts: whatever disturbs a run can only make it slower


def fit(timings: Sequence[tuple[int, int, float]]) -> Cost:
    """Find the coefficients with the least squares of relative errors, near the usual ratios where timings say little.

    Relative, as a batch of a few tokens would otherwise count for nothing beside one of a thousand.

    Args:
        timings: Rows, tokens and seconds of each batch that was run.

    Returns:
        The cost, with unknown bytes; `USUAL` where no timing is a positive number.
    """
    table = np.array([timing for timing in timings if 0 < timing[2] < float("inf")], dtype=np.float64)
    if not len(table):
        return USUAL
    rows, tokens, seconds = table.T
    call, attention = _CALLS[:, None, None], _ATTENTIONS[:, None]
    # Of each pair of ratios: what a batch costs in tokens, for every second that it took; and the best seconds a token.
    shares = (call + rows * tokens * (1 + attention * tokens / _LONG)) / seconds
    token_s = shares.sum(axis=-1) / np.square(shares).sum(axis=-1)
    errors = np.square(token_s[..., None] * shares - 1).sum(axis=-1) + _SURPRISE
    i, j = np.unravel_index(int(errors.argmin()), errors.shape)
    unit = float(token_s[i, j])
    return Cost(call_s=float(_CALLS[i]) * unit, token_s=unit, pair_s=float(_ATTENTIONS[j]) / _LONG * unit)


def measure(
    run: Callable[[Feed], Feed],
    feed_of: Callable[[int, int], Feed],
    *,
    max_tokens: int | None,
    batchable: bool,
    budget_s: float = 0.8,
) -> Cost:
    """Time a few batches, and fit a cost to them.

    Args:
        run: Runs one batch, as `Runner.run`. What it raises is not caught.
        feed_of: Makes inputs of so many rows and tokens.
        max_tokens: The model's positions, if it has a limit.
        batchable: Whether the model takes more than one row at a time.
        budget_s: Seconds to spend. The first two shapes are timed in any case, as without them nothing is known; of the
            others, those that are not expected to exceed it.

    Returns:
        The cost, with the bytes of the outputs seen in the largest batch.
    """
    shapes = [(rows, min(tokens, max_tokens or tokens)) for rows, tokens in SHAPES if rows == 1 or batchable]
    timings: list[tuple[int, int, float]] = []
    largest, bytes_per_token = 0, 0.0
    started = time.perf_counter()
    for rows, tokens in dict.fromkeys(shapes):
        if len(timings) >= 2:
            expected_s = (1 + _TIMED) * fit(timings).batch_s(rows, tokens)
            if time.perf_counter() - started + expected_s > budget_s:
                continue
        feed = feed_of(rows, tokens)
        outputs = run(feed)  # an engine prepares itself for a shape the first time it sees it
        took = []
        for _ in range(_TIMED):
            before = time.perf_counter()
            run(feed)
            took.append(time.perf_counter() - before)
        timings.append((rows, tokens, min(took)))
        if rows * tokens > largest:
            largest = rows * tokens
            bytes_per_token = sum(values.nbytes for values in outputs.values()) / largest
    return Cost(**{**fit(timings).to_dict(), "bytes_per_token": bytes_per_token})
