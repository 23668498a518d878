"""The decoding loop's own processors give the scores of transformers', and torch's threads are left as they were."""

from __future__ import annotations

import threading

import pytest
import torch
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
)

from fastpipe.backends.processors import Processors, quick
from fastpipe.backends.torch_threads import one_thread


@pytest.mark.parametrize("length", [1, 2, 3])
@pytest.mark.parametrize("size", [10, 30])  # the smaller vocabulary lacks some of the tokens
def test_scores_are_those_of_transformers(length: int, size: int) -> None:
    begin = SuppressTokensAtBeginLogitsProcessor([3, 20], begin_index=1)
    theirs = LogitsProcessorList(
        [SuppressTokensLogitsProcessor([-1, 0, 7, 25]), begin, RepetitionPenaltyLogitsProcessor(1.3)]
    )
    mine = quick(theirs)
    begin.set_begin_index(2)  # it moves after the loop has begun
    assert isinstance(mine, Processors)
    ids, scores = torch.randint(0, size, (4, length)), torch.randn(4, size)
    kept = scores.clone()
    for _ in range(2):
        assert torch.equal(mine(ids, scores.clone()), theirs(ids, scores.clone()))
    mine[0](ids, scores)
    assert torch.equal(scores, kept)


def test_processors_that_take_more_are_left_as_they_are() -> None:
    class Guided(LogitsProcessor):
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, cond: int = 0) -> torch.Tensor:
            return scores + cond

    theirs = LogitsProcessorList([SuppressTokensLogitsProcessor([1]), Guided()])
    assert quick(theirs) is theirs
    assert not quick(LogitsProcessorList())


def test_one_thread_is_for_the_one_who_asks() -> None:
    found: list[int] = []

    def look() -> None:
        found.append(torch.get_num_threads())

    before = torch.get_num_threads()
    with one_thread():
        look()
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert found == [1, before]
    assert torch.get_num_threads() == before
