"""What a batch costs: the formula, fitting it to timings, and timing an engine."""

from __future__ import annotations

import dataclasses
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpipe.batching import cost as module
from fastpipe.batching.collate import Feed
from fastpipe.batching.cost import SHAPES, USUAL, Cost, fit, measure

KNOWN = Cost(call_s=1.5e-3, token_s=18e-6, pair_s=25e-9)


def timed(cost: Cost, shapes=SHAPES, noise=0.0, seed=0) -> list[tuple[int, int, float]]:
    factors = np.random.default_rng(seed).normal(1.0, noise, len(shapes))
    return [(*shape, cost.batch_s(*shape) * factor) for shape, factor in zip(shapes, factors, strict=True)]


def test_a_batch_pays_for_the_call_its_tokens_and_their_pairs():
    cost = Cost(call_s=100.0, token_s=10.0, pair_s=1.0)
    assert cost.batch_s(1, 1) == 111
    assert cost.batch_s(3, 2) == 100 + 6 * 10 + 12 * 1
    np.testing.assert_array_equal(cost.batch_s(np.array([1, 3]), np.array([1, 2])), [111, 172])
    np.testing.assert_array_equal(cost.batch_s(np.arange(1, 3), 2), [124, 148])


def test_the_usual_ratios():
    assert USUAL.call_s == pytest.approx(64 * USUAL.token_s)
    assert 512 * USUAL.pair_s == pytest.approx(0.4 * USUAL.token_s)


def test_it_survives_json():
    for cost in (USUAL, dataclasses.replace(KNOWN, bytes_per_token=12.5)):
        assert Cost.from_dict(json.loads(json.dumps(cost.to_dict()))) == cost
    with pytest.raises(KeyError):
        Cost.from_dict({"call_s": 1.0})


@pytest.mark.parametrize(
    "known",
    [
        KNOWN,
        dataclasses.replace(KNOWN, call_s=20 * KNOWN.token_s),
        dataclasses.replace(KNOWN, call_s=300 * KNOWN.token_s),
        dataclasses.replace(KNOWN, pair_s=KNOWN.token_s / 512),
    ],
)
def test_exact_timings_give_the_coefficients_back(known):
    found = fit(timed(known))
    assert found.call_s == pytest.approx(known.call_s, rel=0.25)
    assert found.token_s == pytest.approx(known.token_s, rel=0.25)
    assert found.pair_s * 512 == pytest.approx(known.pair_s * 512, abs=0.3 * known.token_s)
    for shape in SHAPES:
        assert found.batch_s(*shape) == pytest.approx(known.batch_s(*shape), rel=0.15)


@pytest.mark.parametrize("slow", range(len(SHAPES)))
def test_one_disturbed_timing_does_not_turn_plans_round(slow):
    timings = timed(KNOWN)
    timings[slow] = (*SHAPES[slow], 3 * timings[slow][2])
    found = fit(timings)
    assert 8 <= found.call_s / found.token_s <= 512
    assert 0 <= found.pair_s * 512 / found.token_s <= 2
    assert found.batch_s(16, 32) == pytest.approx(KNOWN.batch_s(16, 32), rel=0.8)


@pytest.mark.parametrize("seed", range(20))
def test_noise_of_five_percent_does_not_matter(seed):
    found = fit(timed(KNOWN, noise=0.05, seed=seed))
    assert found.call_s == pytest.approx(KNOWN.call_s, rel=0.3)
    assert found.token_s == pytest.approx(KNOWN.token_s, rel=0.3)
    for shape in SHAPES:
        assert found.batch_s(*shape) == pytest.approx(KNOWN.batch_s(*shape), rel=0.15)


_seconds = st.one_of(st.floats(1e-9, 1e4), st.sampled_from([0.0, -1.0, math.inf, math.nan]))


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 512), _seconds), max_size=10))
def test_whatever_the_timings_no_coefficient_is_negative(timings):
    found = fit(timings)
    assert min(found.call_s, found.pair_s) >= 0
    assert found.token_s > 0
    assert all(map(math.isfinite, found.to_dict().values()))


def test_timings_that_say_nothing_leave_the_prior():
    assert fit([]) == USUAL
    assert fit([(1, 8, 0.0), (1, 32, -1.0)]) == USUAL


def test_one_timing_leaves_the_usual_ratios():
    found = fit([(2, 8, 0.16)])
    assert found.batch_s(2, 8) == pytest.approx(0.16, rel=1e-6)
    assert found.call_s == pytest.approx(64 * found.token_s)
    assert 512 * found.pair_s == pytest.approx(0.4 * found.token_s)


def test_a_token_is_never_free():
    found = fit([(*shape, 0.01) for shape in SHAPES])  # whatever is in a batch, it takes as long
    assert found.call_s <= 512 * found.token_s


class Engine:
    """Takes as long as it is told to, on a clock that only it moves."""

    def __init__(self, cost: Cost, *, first: float = 3.0) -> None:
        self.now = 0.0
        self.seen: list[tuple[int, int]] = []
        self._cost = cost
        self._first = first

    def perf_counter(self) -> float:
        return self.now

    def run(self, feed: Feed) -> Feed:
        shape = feed["input_ids"].shape
        runs = self.seen.count(shape)
        # The first run of a shape is slow, and the others after the second are disturbed.
        self.now += self._cost.batch_s(*shape) * (self._first, 1.0, 1.3, 1.2)[runs]
        self.seen.append(shape)
        return {"logits": np.zeros((*shape, 5), dtype=np.float32), "pooled": np.zeros((shape[0], 64), dtype=np.float32)}


def feed_of(rows: int, tokens: int) -> Feed:
    return {"input_ids": np.ones((rows, tokens), dtype=np.int64)}


def measured(engine: Engine, monkeypatch, **options) -> Cost:
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=engine.perf_counter))
    return measure(engine.run, feed_of, **{"max_tokens": None, "batchable": True, **options})


def test_an_engine_is_measured_once_it_is_warm(monkeypatch):
    engine = Engine(KNOWN)
    found = measured(engine, monkeypatch)
    assert set(engine.seen) == set(SHAPES)
    for shape in SHAPES:
        assert found.batch_s(*shape) == pytest.approx(KNOWN.batch_s(*shape), rel=0.15)
    assert found.bytes_per_token == 5 * 4 + 64 * 4 / 16  # of (64, 16), the largest


def test_no_more_tokens_than_the_model_has_positions(monkeypatch):
    engine = Engine(KNOWN)
    found = measured(engine, monkeypatch, max_tokens=20)
    assert max(tokens for _, tokens in engine.seen) == 20
    assert len(engine.seen) == 4 * len(set(engine.seen))
    assert found.batch_s(8, 16) == pytest.approx(KNOWN.batch_s(8, 16), rel=0.1)


def test_a_model_that_takes_one_row_is_measured_with_one(monkeypatch):
    engine = Engine(KNOWN)
    found = measured(engine, monkeypatch, batchable=False)
    assert {rows for rows, _ in engine.seen} == {1}
    assert found.batch_s(1, 100) == pytest.approx(KNOWN.batch_s(1, 100), rel=0.15)


@pytest.mark.parametrize("times", [4, 20, 100])
def test_slow_models_are_measured_at_fewer_shapes(times, monkeypatch):
    slow = Cost(call_s=times * KNOWN.call_s, token_s=times * KNOWN.token_s, pair_s=times * KNOWN.pair_s)
    engine = Engine(slow, first=1.0)
    found = measured(engine, monkeypatch, budget_s=0.8)
    assert 2 <= len(set(engine.seen)) < len(SHAPES)
    assert engine.now <= max(0.8 * 1.2, 4.6 * (slow.batch_s(1, 8) + slow.batch_s(1, 32)))
    assert found.batch_s(4, 16) == pytest.approx(slow.batch_s(4, 16), rel=0.1)


def test_an_engine_that_fails_says_so_itself():
    def run(feed: Feed) -> Feed:
        raise RuntimeError("no such operator")

    with pytest.raises(RuntimeError, match="no such operator"):
        measure(run, feed_of, max_tokens=None, batchable=True)
