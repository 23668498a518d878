"""Which spans of tokens answer a question best, from a model's logits. Pure arithmetic, on one window of tokens."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"

# The logit of a token that no answer may start or end at: next to any other its probability is 0.
_NEVER = -10000.0


def probabilities(logits: Array, allowed: Array) -> Array:
    """Turn logits into probabilities over the tokens that are allowed.

    Args:
        logits: Floats (tokens,).
        allowed: Booleans (tokens,).

    Returns:
        Floats (tokens,) that sum to 1.
    """
    masked: Array = np.where(allowed, logits, _NEVER)
    weights: Array = np.exp(masked - masked.max())
    shares: Array = weights / weights.sum()
    return shares


def best(starts: Array, ends: Array, allowed: Array, *, count: int, longest: int) -> list[tuple[int, int, float]]:
    """Find the most probable spans; a span is as probable as its start times its end.

    Args:
        starts: Floats (tokens,), the probability that an answer starts at each.
        ends: The same for its last token.
        allowed: Booleans (tokens,): where it may do so.
        count: Spans to find. There are fewer where candidates turn out not to be allowed.
        longest: Tokens of the longest span.

    Returns:
        First token, last token and probability of each, the most probable first.
    """
    spans = np.tril(np.triu(np.outer(starts, ends)), longest - 1)
    flat = -spans.ravel()
    # Spans of probability 0 are in no order. They are picked as they always were: some see them in results.
    if count == 1:
        order = flat.argmin()[None]
    elif count >= flat.size:
        order = flat.argsort()
    else:
        order = np.argpartition(flat, count)[:count]
        order = order[flat[order].argsort()]
    found = zip(*np.unravel_index(order, spans.shape), strict=True)
    return [(int(s), int(e), spans[s, e].item()) for s, e in found if allowed[s] and allowed[e]]
