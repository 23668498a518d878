"""Generators and Datasets of prompts or recordings: read ahead by a window, whose inputs are generated together."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from transformers.pipelines.pt_utils import PipelineIterator

from fastpipe import progress
from fastpipe.pipelines.generators.batches import Prompts
from fastpipe.pipelines.generators.recordings import Recordings
from fastpipe.pipelines.guards import naming
from fastpipe.pipelines.quiet import quietly
from fastpipe.pipelines.windows import Results

logger = logging.getLogger("fastpipe")

# Batches in a window, so that rows of like lengths find one another.
_BATCHES = 2
# A window holds at most this many times what the one before it did, and no more than takes these seconds: its first
# result comes with its last.
_GROWTH, _WINDOW_S = 4, 60.0

Together = Callable[[Sequence[Any], Sequence[int]], "list[Any] | None"]


class Stream:
    """Results in the order of the inputs, made as they are asked for.

    The first input goes alone. So its result comes as early as in transformers, and a call that fails for all of them
    reads no more than one. What fails later fails at its turn, after the results of what came before; who asks on
    gets what comes after, as in transformers.

    Args:
        together: Gives inputs' results; `None` where each must go alone. Of a window that it fails for, each half is
            tried, down to the inputs at fault.
        alone: Gives the result of one input, or raises what it raises in transformers.
        source: The inputs.
        fewest: What a window after the first holds at least, however long it takes.
        most: What a window holds at most.
    """

    def __init__(
        self, together: Together, alone: Callable[[Any, int], Any], source: Iterator[Any], *, fewest: int, most: int
    ) -> None:
        self._together, self._alone, self._source = together, alone, source
        self._fewest, self._most = fewest, most
        self._size, self._read = 1, 0
        self._ready: deque[tuple[int, Any, Any]] = deque()  # a result that is `None` is made at its turn
        self._failure: Exception | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self._ready:
            self._fill()
        index, item, made = self._ready.popleft()
        if made is not None:
            return made
        started = time.perf_counter()
        made = self._alone(item, index)
        self._took(time.perf_counter() - started)
        return made

    def _fill(self) -> None:
        """Read a window, and generate what goes together."""
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        start, items = self._read, self._window()
        started = time.perf_counter()
        answers = self._answers(items, start)
        self._size = min(self._most, _GROWTH * len(items))
        self._took((time.perf_counter() - started) / len(items))
        self._ready.extend(zip(range(start, self._read), items, answers, strict=False))

    def _window(self) -> list[Any]:
        """Read inputs; an error of the source is kept until they have their results."""
        items: list[Any] = []
        try:
            while len(items) < self._size:
                items.append(next(self._source))
                self._read += 1
        except StopIteration:
            if not items:
                raise
        except Exception as error:
            self._read += 1  # a Dataset has others after the one that it cannot give
            if not items:
                raise
            self._failure = error
        return items

    def _answers(self, items: Sequence[Any], start: int) -> list[Any]:
        """Give the results of a window; `None` for each input that goes alone."""
        try:
            answers = self._together(items, range(start, start + len(items)))
        except Exception:
            if len(items) == 1:
                return [None]
            logger.debug("%d inputs from %d on fail together: halves are tried", len(items), start, exc_info=True)
            half = len(items) // 2
            return self._answers(items[:half], start) + self._answers(items[half:], start + half)
        return [None] * len(items) if answers is None else answers

    def _took(self, input_s: float) -> None:
        self._size = max(self._fewest, min(self._size, int(_WINDOW_S / max(input_s, 1e-9))))


def in_windows(
    pipe: Any, prompts: Prompts | Recordings, theirs: Any, batch_size: int | None, progress_bar: bool | None
) -> Any:
    """Put a stream in the place of transformers' iterator, where the inputs of the call may go together.

    Args:
        pipe: The pipeline.
        prompts: How it takes lists.
        theirs: What its class gave for a generator or Dataset, without batches.
        batch_size: Upper bound of rows in a batch.
        progress_bar: Whether a bar is asked for.

    Returns:
        The results in windows; else transformers' iterator: none is read before its turn, so that random numbers are
        drawn in transformers' order.
    """
    if not isinstance(theirs, PipelineIterator):
        return theirs
    inputs, num_workers, parameters = theirs.made_of
    if prompts.config(pipe, parameters[1]) is None:
        return theirs if batch_size is None else pipe.get_iterator(inputs, num_workers, batch_size, *parameters)
    rows = prompts.rows(batch_size)

    def together(items: Sequence[Any], indices: Sequence[int]) -> list[Any] | None:
        with quietly():
            return prompts.together(pipe, items, indices, rows, parameters)

    def alone(item: Any, index: int) -> Any:
        with quietly(), naming(index, parameters[0]):
            return pipe.run_single(item, *parameters)

    def stream(source: Iterator[Any]) -> Iterator[Any]:
        return Stream(together, alone, source, fewest=rows if prompts.alike else 1, most=_BATCHES * rows)

    total = len(inputs) if hasattr(inputs, "__len__") else None
    return Results(stream, inputs, progress.bar(total, progress_bar))
