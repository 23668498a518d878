"""Spans of tokens by probability, and windows that are counted in words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpipe.pipelines.restored import spans, words


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.floats(-8, 8), st.floats(-8, 8), st.booleans()), min_size=2, max_size=12),
    st.integers(1, 20),
    st.integers(1, 6),
)
def test_the_best_spans_are_those_that_a_search_finds(
    tokens: list[tuple[float, float, bool]], count: int, longest: int
):
    allowed = np.array([True, *(token[2] for token in tokens[1:])])
    starts, ends = (spans.probabilities(np.array([t[side] for t in tokens]), allowed) for side in (0, 1))
    assert starts.sum() == pytest.approx(1)
    assert not starts[~allowed].any()
    found = spans.best(starts, ends, allowed, count=count, longest=longest)
    searched = sorted(
        (starts[s] * ends[e] for s in range(len(tokens)) for e in range(s, min(s + longest, len(tokens)))), reverse=True
    )
    scores = [score for *_, score in found]
    assert scores == sorted(scores, reverse=True)
    assert [score for score in scores if score] == pytest.approx([score for score in searched[:count] if score])
    for first, last, score in found:
        assert allowed[first]
        assert allowed[last]
        assert score == 0 or (first <= last < first + longest and score == pytest.approx(starts[first] * ends[last]))


def test_half_precision_stays_what_it_is():
    logits = np.array([1, 2, 3], np.float16)
    assert spans.probabilities(logits, np.array([True, True, True])).dtype == np.float16


@pytest.mark.parametrize(
    ("context", "found"),
    [
        ("a river", [("a", 0, 1), ("river", 2, 6)]),
        ("  a\n\triver ", [("a", 2, 4), ("river", 5, 10)]),
        ("河流", [("河流", 0, 1)]),
        ("  ", []),
    ],
)
def test_words(context: str, found: list[tuple[str, int, int]]):
    assert words.split(context) == found
