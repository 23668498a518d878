"""Generators and Datasets of prompts: what is read when, what goes together, and what one that fails takes along."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastpipe import progress
from fastpipe.pipelines.generators import streams
from fastpipe.pipelines.generators.streams import Stream
from fastpipe.pipelines.windows import Results

pytestmark = pytest.mark.once
FEWEST, MOST = 8, 16


class Pipe:
    """Answers an input with itself and its index; "bad" fails, "source" is where the source does."""

    def __init__(self, declines: Any = ()) -> None:
        self.declines = iter(declines)
        self.windows: list[int] = []
        self.alone_at: list[int] = []
        self.read = 0

    def together(self, items: Any, indices: Any) -> list[Any] | None:
        self.windows.append(len(items))
        if len(items) < 2 or next(self.declines, False):
            return None
        if "bad" in items:
            raise RuntimeError("one of them")
        return list(zip(items, indices, strict=True))

    def alone(self, item: Any, index: int) -> Any:
        self.alone_at.append(index)
        if item == "bad":
            raise ValueError(f"item {index}")
        return item, index

    def source(self, items: Any) -> Iterator[Any]:
        for item in items:
            self.read += 1
            if item == "source":
                raise OSError("gone")
            yield item

    def stream(self, items: Any, fewest: int = FEWEST) -> Stream:
        return Stream(self.together, self.alone, self.source(items), fewest=fewest, most=MOST)


ITEMS = st.lists(st.sampled_from(["a", "b", "bad"]), max_size=80)


@given(ITEMS, st.lists(st.booleans()), st.booleans())
def test_every_input_has_its_result_or_error_at_its_turn(items, declines, raises):
    """Whatever windows decline, and whatever inputs fail; who asks on after an error gets what comes after."""
    stream = Pipe(declines).stream([*items, "source"] if raises else items)
    for index, item in enumerate(items):
        if item == "bad":
            with pytest.raises(ValueError, match=f"item {index}$"):
                next(stream)
        else:
            assert next(stream) == (item, index)
    if raises:
        with pytest.raises(OSError, match="gone"):
            next(stream)
    assert list(stream) == []


def test_the_first_goes_alone_and_the_rest_in_windows():
    pipe = Pipe()
    stream = pipe.stream(range(60))
    assert pipe.read == 0
    next(stream)
    assert pipe.read == 1
    assert len(list(stream)) == 59
    assert pipe.alone_at == [0]
    assert pipe.windows == [1, 8, 16, 16, 16, 3]


def test_no_more_than_a_window_is_read_ahead():
    for declines in ((), (True,) * 100):
        pipe = Pipe(declines)
        for taken, _ in enumerate(islice(pipe.stream(count()), 200), 1):
            assert pipe.read - taken < MOST


def test_where_a_window_declines_each_is_made_at_its_turn():
    pipe = Pipe([True] * 9)
    for taken, _ in enumerate(pipe.stream(range(50)), 1):
        assert len(pipe.alone_at) == taken


def test_the_others_of_a_window_that_fails_go_together_all_the_same():
    pipe = Pipe()
    stream = pipe.stream(["a"] * 13 + ["bad"] + ["a"] * 11)
    assert len(list(islice(stream, 13))) == 13
    with pytest.raises(ValueError, match="item 13"):
        next(stream)
    assert len(list(stream)) == 11
    assert pipe.alone_at == [0, 13, 14]  # the one beside it is the other half of the smallest window


def test_inputs_that_take_long_are_not_read_ahead(monkeypatch):
    """Each result waits for its window: with recordings of an hour, as long as for all of them."""
    clock = count(step=streams._WINDOW_S)
    monkeypatch.setattr(streams.time, "perf_counter", lambda: next(clock))
    pipe = Pipe()
    list(pipe.stream(range(10), fewest=1))
    assert pipe.windows == [1] * 10
    pipe = Pipe()
    list(pipe.stream(range(20)))
    assert pipe.windows == [1, 8, 8, 3]


class Rows(torch.utils.data.Dataset):
    """A Dataset that cannot give its third item."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> str:
        if index == 2:
            raise OSError("the file of item 2")
        return f"item {index}"


def test_a_dataset_goes_on_after_what_it_cannot_give_and_is_read_anew(capsys):
    results = Results(
        lambda source: Stream(Pipe().together, Pipe().alone, source, fewest=FEWEST, most=MOST),
        Rows(),
        progress.bar(20, False),
    )
    assert len(results) == 20
    for _ in range(2):
        given = iter(results)
        assert [next(given)[1] for _ in range(2)] == [0, 1]
        with pytest.raises(OSError, match="item 2"):
            next(given)
        assert [next(given) for _ in range(17)] == [(f"item {n}", n) for n in range(3, 20)]
        with pytest.raises(StopIteration):
            next(given)
