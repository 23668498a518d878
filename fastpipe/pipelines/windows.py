"""Inputs window by window: while one runs, the next is read and tokenized, and the one before is given.

The inputs are read and tokenized in the caller's thread, as a source may belong to it; the engine works in another.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

import torch

from fastpipe.pipelines.call import Call
from fastpipe.pipelines.rows import Row

# How far ahead of its consumer a generator or Dataset is read, in inputs: little at first, for an early first result,
# and then one more for each result that was taken.
FIRST_WINDOW = 8
LARGEST_WINDOW = 1024
# Lists are at hand: a window of one only bounds the memory of what is on its way; `Task.window` has it.
LIST_WINDOW = 4096

_WINDOW_S = 2.0  # a window grows no further than this: its first result comes with its last
_IDLE_S = 0.05  # how long an engine with nothing to do waits for a window to fill

Submit = Callable[..., "Future[Any]"]


@dataclass(kw_only=True, eq=False)
class Window:
    """Inputs that are tokenized, planned and run together.

    Attributes:
        start: Index of the first in the whole call.
        items: The inputs.
        rows: Their rows.
        failure: What was raised by the input after the last, or by the source; it comes after the results.
        ended: Whether nothing follows.
        read_s: Seconds that the source took.
    """

    start: int
    items: list[Any]
    rows: list[Row]
    failure: Exception | None = None
    ended: bool = False
    read_s: float = 0.0


def whole(call: Call, items: list[Any]) -> list[Any]:
    """Process a list."""
    window = min(LIST_WINDOW, call.window)
    if len(items) <= window:
        return call.run(call.rows(items), range(len(items)))
    for index, item in enumerate(items):  # at once, and not after an hour
        call.check(item, index)
    results: list[Any] = []
    with _engine_thread(call) as submit:
        ahead: deque[Future[Any]] = deque()
        for start in range(0, len(items), window):
            part = items[start : start + window]
            ahead.append(submit(call.run, call.rows(part, start), range(start, start + len(part))))
            if len(ahead) > 1:
                results += ahead.popleft().result()
        results += ahead.popleft().result()
        return results


def lazily(call: Call, items: Iterable[Any]) -> Iterator[Any]:
    """Process inputs as they come; an error comes after the results of all inputs before it."""
    source, first = iter(items), call.batch_size or FIRST_WINDOW
    read = taken = 0
    most, ended, slow = first, False, False
    largest = min(LARGEST_WINDOW, max(first, call.window))
    running: deque[tuple[Window, Future[Any]]] = deque()
    with _engine_thread(call) as submit:
        while True:
            # Reading must not keep back what is ready, nor what will be before a slow source has its next input.
            while not ended and len(running) < 2 and not (running and (slow or running[0][1].done())):
                room = min(taken + first, largest) - (read - taken)
                if not room:
                    break
                # Half of it, where nothing runs: the other half is read while the first runs.
                size = min(room if running or not taken else -(-room // 2), most)
                window = _read(call, source, read, size, running[0][1].done if running else _waited())
                read, ended, slow = read + len(window.items), window.ended, window.read_s > _IDLE_S
                if window.items or window.ended:
                    running.append((window, submit(_timed, call, window)))
            if not running:
                return
            window, future = running.popleft()
            try:
                results, took_s = future.result()
            except Exception:  # the inputs before the one it fails for have results all the same
                for owner, item in enumerate(window.items):
                    yield call.alone(item, window.start + owner)
                raise
            if window.items:
                most = max(first, int(_WINDOW_S / max(took_s, 1e-9) * len(window.items)))
            for result in results:
                taken += 1
                yield result
            if window.failure is not None:
                raise window.failure


def _read(call: Call, source: Iterator[Any], start: int, size: int, enough: Callable[[], bool]) -> Window:
    """Read a window, and take it through the task's `preprocess`, up to an input that fails."""
    window, started = Window(start=start, items=[], rows=[]), time.perf_counter()
    try:
        while len(window.items) < size and not (window.items and enough()):
            window.items.append(next(source))
    except StopIteration:
        window.ended = True
    except Exception as error:
        window.failure, window.ended = error, True
    window.read_s = time.perf_counter() - started
    try:
        window.rows = call.rows(window.items, start)
    except Exception:
        for owner, item in enumerate(window.items):
            try:
                window.rows += call.prepare(item, start + owner, owner)
            except Exception as error:
                del window.items[owner:]
                window.failure, window.ended = error, True
                break
    return window


def _timed(call: Call, window: Window) -> tuple[list[Any], float]:
    started = time.perf_counter()
    results = call.run(window.rows, range(window.start, window.start + len(window.items)))
    return results, time.perf_counter() - started


def _waited() -> Callable[[], bool]:
    until = time.monotonic() + _IDLE_S
    return lambda: time.monotonic() >= until


@contextlib.contextmanager
def _engine_thread(call: Call) -> Iterator[Submit]:
    """Give what runs a function in a thread of its own, one after another; at once in this one, for torch.

    Torch keeps a set of threads for each thread that calls it, and they would be in one another's way.
    """
    if not call.batching.overlaps:
        yield _at_once
        return
    pool = ThreadPoolExecutor(1, "fastpipe")
    try:
        yield lambda function, *args: pool.submit(copy_context().run, function, *args)
    finally:
        call.abandoned = True  # what still runs is for nobody
        pool.shutdown(wait=False, cancel_futures=True)


def _at_once(function: Callable[..., Any], *args: Any) -> Future[Any]:
    done: Future[Any] = Future()
    try:
        done.set_result(function(*args))
    except Exception as error:
        done.set_exception(error)
    return done


class Results:
    """The results of a generator or Dataset, in order, made as they are asked for.

    Args:
        make: Makes the results of inputs.
        inputs: The generator or Dataset.
        bar: Shows how many there are.
    """

    def __init__(self, make: Callable[[Iterator[Any]], Iterator[Any]], inputs: Any, bar: Any) -> None:
        self._make = make
        self._inputs = inputs
        self._bar = bar
        self._begin()

    def _begin(self) -> None:
        inputs, data = self._inputs, torch.utils.data
        indexed = isinstance(inputs, data.Dataset) and not isinstance(inputs, data.IterableDataset)
        # A map goes on after an index that raises.
        self._results = self._make(map(inputs.__getitem__, range(len(inputs))) if indexed else iter(inputs))
        self._begun = False

    def __iter__(self) -> Iterator[Any]:
        if self._begun and isinstance(self._inputs, torch.utils.data.Dataset):  # read anew, as in transformers
            self._begin()
            self._bar.reset()
        return self

    def __next__(self) -> Any:
        self._begun = True
        try:
            result = next(self._results)
        except BaseException:
            self._bar.close()
            raise
        self._bar.update()
        return result

    def __len__(self) -> int:
        return len(self._inputs)
