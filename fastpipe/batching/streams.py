"""Batches side by side: each on fewer threads, which together often do more than all threads on one batch."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

from fastpipe.batching.collate import Feed
from fastpipe.batching.cost import Cost

Given = TypeVar("Given")
Made = TypeVar("Made")
Run = Callable[[Feed], Feed]

# With fewer batches than this for each stream, the last one leaves the others idle for too long.
ENOUGH = 2
# Each stream has its share of the caches: see `Limits.padded_tokens` for one batch on all of them.
PADDED_TOKENS = 768

_FASTER = 1.05  # what a second loaded model must be worth
_BATCH_S = 0.05  # how long a batch of the measurement takes
_TOKENS = 32
_PASSES = 2
_REST_S = 0.05  # an engine's idle threads spin for a while, and would be in the way


def candidates(threads: int) -> list[int]:
    """Give the numbers of streams worth a try: a thread for each, and two."""
    return [streams for streams in (threads, threads // 2) if streams > 1]


def in_order(run: Callable[[Given], Made], batches: Sequence[Given], streams: int) -> Iterator[Made]:
    """Run batches side by side, and give what they make in their order.

    Args:
        run: Runs one batch; called from several threads at once where there is more than one stream.
        batches: The batches.
        streams: How many run at once.

    Yields:
        What `run` made of each batch. Its error comes at the batch's turn; those not begun by then are left.
    """
    if streams == 1:
        yield from map(run, batches)
        return
    pool, left = ThreadPoolExecutor(streams), iter(batches)
    waiting = deque(pool.submit(run, batch) for batch in islice(left, 2 * streams))
    try:
        while waiting:
            yield waiting.popleft().result()
            # Only now the next one: outputs that nobody has taken yet must not pile up.
            waiting.extend(pool.submit(run, batch) for batch in islice(left, 1))
    finally:
        pool.shutdown(cancel_futures=True)


def faster(alone: Run, beside: Run, feed_of: Callable[[int, int], Feed], cost: Cost, streams: int) -> float:
    """Measure what streams gain.

    Args:
        alone: Runs a batch on all threads.
        beside: Runs a batch on one stream.
        feed_of: Makes inputs of so many rows and tokens.
        cost: What a batch costs on all threads.
        streams: How many `beside` has.

    Returns:
        How many times as fast the streams are; 1 where that is not worth them.
    """
    rows = 16
    while rows > 1 and cost.batch_s(rows, _TOKENS) > _BATCH_S:
        rows //= 2
    feeds = [feed_of(rows, _TOKENS)] * (ENOUGH * streams)
    for run in (alone, beside):
        list(in_order(run, feeds[:streams], 1 if run is alone else streams))

    def seconds(run: Run, at_once: int) -> float:
        time.sleep(_REST_S)
        started = time.perf_counter()
        for _ in in_order(run, feeds, at_once):
            pass
        return time.perf_counter() - started

    took = [(seconds(alone, 1), seconds(beside, streams)) for _ in range(_PASSES)]
    gain = min(one for one, _ in took) / min(other for _, other in took)
    return gain if gain > _FASTER else 1.0
