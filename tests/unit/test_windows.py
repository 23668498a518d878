"""Windows of inputs: what is read when, in which thread, and what happens when one fails or nobody waits any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from fastpipe.errors import InputError
from fastpipe.pipelines import inputs, windows
from fastpipe.pipelines.windows import FIRST_WINDOW, LARGEST_WINDOW, lazily, whole


class FakeCall:
    """Answers an input with itself; "bad" fails when it is prepared, "broken" when it runs."""

    def __init__(self, *, overlaps: bool, run_s: float = 0.0) -> None:
        self.batching = SimpleNamespace(overlaps=overlaps)
        self.batch_size = None
        self.window = 10**6
        self.check = inputs.check
        self.abandoned = False
        self.run_s = run_s
        self.ran: list[tuple[int, int]] = []
        self.threads: set[int] = set()
        self.running = threading.Event()

    def rows(self, items: list[Any], start: int = 0) -> list[Any]:
        return [row for owner, item in enumerate(items) for row in self.prepare(item, start + owner, owner)]

    def prepare(self, item: Any, index: int, owner: int) -> list[Any]:
        if item == "bad":
            raise ValueError(f"item {index}")
        return [item]

    def run(self, rows: list[Any], indices: Any) -> list[Any]:
        self.ran.append((indices[0], len(rows)) if len(rows) else (0, 0))
        self.threads.add(threading.get_ident())
        self.running.set()
        time.sleep(self.run_s)
        if "broken" in rows:
            raise RuntimeError("broken")
        return [f"<{row}>" for row in rows]

    def alone(self, item: Any, index: int) -> Any:
        return self.run([item], [index])[0]


@pytest.fixture(params=[True, False], ids=["overlapping", "at once"])
def call(request):
    return FakeCall(overlaps=request.param)


def test_results_come_in_order_whatever_the_windows_are(call):
    assert list(lazily(call, (n for n in range(5000)))) == [f"<{n}>" for n in range(5000)]
    starts = [start for start, _ in call.ran]
    assert starts == sorted(starts)
    assert max(size for _, size in call.ran) > FIRST_WINDOW


def test_a_list_of_many_windows_has_a_result_for_each(call, monkeypatch):
    monkeypatch.setattr(windows, "LIST_WINDOW", 7)
    for count in (0, 1, 7, 8, 100):
        assert whole(call, [str(n) for n in range(count)]) == [f"<{n}>" for n in range(count)]


def test_a_list_is_checked_before_anything_runs(call, monkeypatch):
    monkeypatch.setattr(windows, "LIST_WINDOW", 2)
    with pytest.raises(InputError, match="3"):
        whole(call, ["a", "b", "c", None, "e"])
    assert not call.ran


def test_the_source_is_read_in_the_callers_thread_and_the_engine_works_in_another():
    call, readers = FakeCall(overlaps=True), set()

    def source() -> Iterator[int]:
        for n in range(100):
            readers.add(threading.get_ident())
            yield n

    list(lazily(call, source()))
    assert readers == {threading.get_ident()}
    assert len(call.threads) == 1
    assert call.threads.isdisjoint(readers)


def test_the_next_window_is_read_while_one_runs():
    call, overlapped = FakeCall(overlaps=True, run_s=0.2), []

    def source() -> Iterator[int]:
        for n in range(64):
            overlapped.append(call.running.is_set() and len(call.ran) == 2)
            yield n

    results = lazily(call, source())
    for _ in range(FIRST_WINDOW + 1):  # the first of the second window
        next(results)
    # Read after the second window had begun to run, and before it had ended.
    assert len(overlapped) > call.ran[1][0] + call.ran[1][1]


def test_a_result_that_is_ready_does_not_wait_for_a_slow_source():
    call, released = FakeCall(overlaps=True), threading.Event()

    def source() -> Iterator[int]:
        yield from range(3)
        time.sleep(2 * windows._IDLE_S)
        yield 3
        released.wait(10)
        yield 4

    results = lazily(call, source())
    assert [next(results) for _ in range(4)] == ["<0>", "<1>", "<2>", "<3>"]
    released.set()
    assert list(results) == ["<4>"]


def test_what_comes_before_an_input_that_fails_is_given(call):
    for bad, error in (("bad", ValueError), ("broken", RuntimeError)):
        got: list[Any] = []
        with pytest.raises(error):
            got.extend(lazily(call, iter([*range(30), bad, 31])))
        results = lazily(call, iter([*range(30), bad, 31]))
        assert [next(results) for _ in range(30)] == [f"<{n}>" for n in range(30)]
        with pytest.raises(error):
            next(results)


def test_no_more_is_read_than_said(call):
    read = 0

    def source() -> Iterator[int]:
        nonlocal read
        while True:
            read += 1
            yield read

    results = lazily(call, source())
    for taken in range(1, 4 * LARGEST_WINDOW):
        next(results)
        assert read - taken <= min(taken + FIRST_WINDOW, LARGEST_WINDOW)


def test_a_window_grows_only_while_it_is_soon_done(monkeypatch):
    monkeypatch.setattr(windows, "_WINDOW_S", 0.02)
    call = FakeCall(overlaps=False, run_s=0.02)
    list(lazily(call, (n for n in range(100))))
    assert max(size for _, size in call.ran) == FIRST_WINDOW


def test_closing_ends_the_work():
    call = FakeCall(overlaps=True, run_s=0.05)
    results = lazily(call, (n for n in range(10**6)))
    for _ in range(FIRST_WINDOW):
        next(results)
    results.close()
    assert call.abandoned
    time.sleep(0.2)
    ran = len(call.ran)
    time.sleep(0.2)
    assert len(call.ran) == ran
