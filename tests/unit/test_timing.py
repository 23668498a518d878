"""Timing in turns, with a clock that the calls themselves advance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fastpipe.timing import side_by_side, spread


class World:
    """A clock, and calls that take a known time for each item."""

    def __init__(self, **seconds: float) -> None:
        self.now = 0.0
        self.seconds = seconds
        self.order: list[tuple[str, int]] = []
        self.calls = {name: self._call(name) for name in seconds}

    def _call(self, name: str) -> Any:
        def call(items: Sequence[Any]) -> None:
            self.order.append((name, len(items)))
            self.now += self.seconds[name] * len(items)

        return call

    def time(self, items: int, budget_s: float) -> Any:
        found = side_by_side(
            self.calls, range(items), budget_s=budget_s, clock=lambda: self.now, rest=lambda seconds: None
        )
        return found


def test_the_rates_are_found_in_turns():
    world = World(slow=0.02, fast=0.01)
    found = world.time(100, budget_s=1000)
    assert {name: round(timing.rate) for name, timing in found.items()} == {"slow": 50, "fast": 100}
    assert {(timing.items, timing.rounds) for timing in found.values()} == {(100, 9)}
    rounds = [name for name, items in world.order if items == 100]
    assert rounds == ["slow", "fast"] * 10, "a round to warm up, and nine"


def test_who_is_hopeless_is_left_out_and_keeps_its_first_figure():
    found = World(fast=0.01, torch=0.1).time(100, budget_s=1000)
    assert found["torch"].rounds == 0
    assert (found["torch"].items, round(found["torch"].rate)) == (8, 10)
    assert found["fast"].rounds == 9


@pytest.mark.parametrize("budget_s", [1.0, 10.0, 60.0])
@pytest.mark.parametrize("item_s", [0.001, 0.1, 1.0])
def test_the_budget_holds_but_for_a_minimum(budget_s, item_s):
    world = World(a=item_s, b=item_s)
    found = world.time(256, budget_s)
    least = 8 * 2 * 4 * item_s  # eight items by each of the two: two probes, a warm-up, a round
    assert world.now <= max(budget_s, least) * 1.01 + 2 * 2 * 8 * item_s
    assert found["a"].rounds >= 1


def test_one_item_is_enough():
    assert World(a=0.5).time(1, budget_s=1)["a"].items == 1


def test_a_sample_is_spread_over_all():
    assert spread(range(10), 5) == [0, 2, 4, 6, 8]
    assert spread(range(3), 5) == [0, 1, 2]
    assert spread("abc", 1) == ["a"]
