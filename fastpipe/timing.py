"""Things timed side by side: in turns, so that what disturbs the machine disturbs all of them, within a budget."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

Item = TypeVar("Item")
Call = Callable[[Sequence[Any]], object]

_PROBE = 8
_HOPELESS = 4.0  # what is so much slower on the first items can only take time from the others
_LEAST, _MOST = 3, 9  # rounds
_REST_S = 0.05  # an engine's idle threads spin for a while, and would be in the way


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How fast one was.

    Attributes:
        rate: Items per second, in the median round.
        items: In each round.
        rounds: How many there were; 0 for one that was left out of them.
    """

    rate: float
    items: int
    rounds: int


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """Take so many items, evenly from all of them, in their order."""
    return [items[place * len(items) // count] for place in range(count)] if count < len(items) else list(items)


def side_by_side(
    calls: Mapping[str, Call],
    items: Sequence[Any],
    *,
    budget_s: float,
    clock: Callable[[], float] = time.perf_counter,
    rest: Callable[[float], object] = time.sleep,
) -> dict[str, Timing]:
    """Time calls on the same items, in turns.

    A few items first, twice: the second time says how many fit into the budget, and who is so slow that it is left out.
    Then a round that does not count, and those that do.

    Args:
        calls: What to time, by name. Each takes a list of items.
        items: At least one.
        budget_s: Seconds for all rounds; one of them is run in any case.
        clock: Tells the time in seconds.
        rest: Waits for so many seconds.

    Returns:
        Their timings, by name.
    """

    def took_s(name: str, some: Sequence[Any]) -> float:
        return _took_s(calls[name], some, clock, rest)

    started = clock()
    few = spread(items, _PROBE)
    for name in calls:
        took_s(name, few)
    probe_s = {name: took_s(name, few) for name in calls}
    found = {name: Timing(rate=len(few) / probe_s[name], items=len(few), rounds=0) for name in calls}
    running = [name for name in calls if probe_s[name] <= _HOPELESS * min(probe_s.values())]
    one_s = sum(probe_s[name] for name in running) / len(few)
    some = spread(items, max(len(few), int(budget_s / ((1 + _LEAST) * one_s))))
    for name in running:
        took_s(name, some)
    rounds: list[list[float]] = []
    while not rounds or (len(rounds) < _MOST and clock() - started + max(map(sum, rounds)) <= budget_s):
        rounds.append([took_s(name, some) for name in running])
    for place, name in enumerate(running):
        median_s = statistics.median(round_[place] for round_ in rounds)
        found[name] = Timing(rate=len(some) / median_s, items=len(some), rounds=len(rounds))
    return found


def in_turns(
    calls: Mapping[str, Call],
    items: Sequence[Any],
    *,
    rounds: int = _LEAST,
    clock: Callable[[], float] = time.perf_counter,
    rest: Callable[[float], object] = time.sleep,
) -> dict[str, tuple[float, ...]]:
    """Time calls on all of the items, in turns: a round that does not count, and so many that do.

    Args:
        calls: What to time, by name. Each takes a list of items.
        items: At least one.
        rounds: How many count, at least 1.
        clock: Tells the time in seconds.
        rest: Waits for so many seconds.

    Returns:
        Seconds of each round that counts, by name.
    """
    took = [{name: _took_s(call, items, clock, rest) for name, call in calls.items()} for _ in range(1 + rounds)]
    return {name: tuple(one[name] for one in took[1:]) for name in calls}


def _took_s(call: Call, items: Sequence[Any], clock: Callable[[], float], rest: Callable[[float], object]) -> float:
    rest(_REST_S)
    started = clock()
    call(items)
    return max(clock() - started, 1e-9)
