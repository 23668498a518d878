"""Batches side by side: their order, their errors, and when they are worth it."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpipe.batching import streams as module
from fastpipe.batching.cost import USUAL
from fastpipe.batching.streams import candidates, faster, in_order


@given(st.lists(st.integers()), st.integers(1, 4))
def test_results_come_in_the_order_of_the_batches(batches, streams):
    def run(batch: int) -> int:
        time.sleep((batch % 3) / 5000)
        return -batch

    assert list(in_order(run, batches, streams)) == [-batch for batch in batches]


def test_as_many_run_at_once_as_there_are_streams():
    meeting = threading.Barrier(3, timeout=30)
    assert len(list(in_order(lambda _: meeting.wait(), range(6), 3))) == 6


@pytest.mark.parametrize("streams", [1, 2, 3])
def test_an_error_comes_at_its_turn_and_ends_the_rest(streams):
    begun, threads = [], set(threading.enumerate())

    def run(batch: int) -> int:
        begun.append(batch)
        if batch == 2:
            raise ValueError("the third")
        if batch > 2:
            time.sleep(0.01)
        return batch

    results = in_order(run, range(1000), streams)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="the third"):
        next(results)
    assert len(begun) < 1000
    assert set(threading.enumerate()) <= threads, "a thread was left behind"


@pytest.mark.parametrize("streams", [2, 3])
def test_what_nobody_has_taken_does_not_pile_up(streams):
    begun = []
    results = in_order(lambda batch: begun.append(batch) or batch, range(100), streams)
    for taken in range(5):
        assert next(results) == taken
        time.sleep(0.02)
        assert len(begun) <= taken + 2 * streams
    results.close()


@pytest.mark.parametrize(("threads", "expected"), [(1, []), (2, [2]), (3, [3]), (4, [4, 2]), (16, [16, 8])])
def test_candidates(threads, expected):
    assert candidates(threads) == expected


@pytest.mark.parametrize(("beside_s", "expected"), [(0.5, 2.0), (0.99, 1.0), (1.5, 1.0)])
def test_streams_are_used_where_they_gain(beside_s, expected, monkeypatch):
    """On a clock of its own, on which batches side by side take a share of what each takes alone."""
    clock = SimpleNamespace(now=0.0, lock=threading.Lock())

    def taking(seconds: float):
        def run(feed):
            with clock.lock:
                clock.now += seconds
            return feed

        return run

    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: clock.now, sleep=lambda _: None))
    feed_of = lambda rows, tokens: {"input_ids": np.ones((rows, tokens), np.int64)}  # noqa: E731
    assert faster(taking(1.0), taking(beside_s), feed_of, USUAL, 2) == pytest.approx(expected)
