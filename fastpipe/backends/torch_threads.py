"""How many threads torch takes for the little that it does between the steps of an engine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch


@cache
def _openmp() -> Any:
    from threadpoolctl import ThreadpoolController  # looks for libraries when it is imported

    return ThreadpoolController().select(user_api="openmp")


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch compute in the calling thread alone; other threads keep what they have.

    The helpers of torch's thread pool wait for more work in a loop for a while, on cores on which the engine computes
    its next step: with whisper-tiny on two cores a generation takes 1.6 times as long beside them. As a decorator it
    stands around a function.
    """
    torch.get_num_threads()  # a thread's first question sets what it has, and would do so later instead
    with _openmp().limit(limits=1):
        yield
