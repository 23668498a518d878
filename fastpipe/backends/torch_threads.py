"""How many threads torch takes for the little that it does between the steps of an engine."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import torch
from threadpoolctl import ThreadpoolController


@cache
def _openmp() -> Any:
    return ThreadpoolController().select(user_api="openmp")


def one_thread() -> AbstractContextManager[Any]:
    """Let torch compute in the calling thread alone; other threads keep what they have.

    The helpers of torch's thread pool wait for more work in a loop for a while, on cores on which the engine computes
    its next step: with whisper-tiny on two cores a generation takes 1.6 times as long beside them.
    """
    torch.get_num_threads()  # a thread's first question sets what it has, and would do so later instead
    limit: AbstractContextManager[Any] = _openmp().limit(limits=1)
    return limit
