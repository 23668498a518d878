"""What is held around a step of a call: a tokenizer's lock, the input's index, eval mode."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from fastpipe.backends.torch import to_eval_mode
from fastpipe.errors import FastpipeError, InputError

# transformers sets padding and truncation on a fast tokenizer before each use, which fails ("Already borrowed") while
# another thread encodes with it. A few locks serve all tokenizers: they need no place of their own in any pipeline.
_locks = [threading.RLock() for _ in range(64)]


# For each model that was in train mode: the threads that run it now, and what puts it back when the last is done.
_evaluating: dict[int, tuple[int, Callable[[], None]]] = {}
_evaluating_lock = threading.Lock()


def _renew_locks() -> None:
    global _evaluating_lock
    _locks[:] = [threading.RLock() for _ in _locks]
    _evaluating_lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # a lock that another thread held at a fork would be held for ever in the child
    os.register_at_fork(after_in_child=_renew_locks)


def exclusively(tokenizer: Any) -> Any:
    """Give the lock of a tokenizer, which its copies share; none where there is no tokenizer."""
    if tokenizer is None:
        return contextlib.nullcontext()
    return _locks[id(getattr(tokenizer, "_tokenizer", tokenizer)) // 16 % len(_locks)]


@contextlib.contextmanager
def naming(index: int | None, parameters: Mapping[str, Any]) -> Iterator[None]:
    """Put the input's index into an error on its way up, which stays of its kind."""
    try:
        yield
    except InputError as error:
        if index is None or error.index is not None:
            raise
        raise type(error)(error.fact, index=index, remedy=error.remedy) from error
    except FastpipeError:
        raise
    except Exception as error:
        if index is not None:
            message = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
            error.args = (f"item {index}: {message}", *error.args[1:])
        raise
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # raised by tokenizers, and caught by no `except Exception`
            raise
        raise InputError(
            f"the tokenizer cannot work with {dict(parameters)}: {error}",
            index=index,
            remedy="Where `doc_stride` or `stride` is given, it must leave room for the question and special tokens.",
        ) from error


@contextlib.contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Switch dropout off in a model that was left in train mode, until the last thread that runs it is done."""
    if not isinstance(model, torch.nn.Module):
        yield
        return
    key = id(model)
    with _evaluating_lock:
        counted = key in _evaluating or model.training
        if counted:
            threads, restore = _evaluating.get(key) or (0, to_eval_mode(model))
            _evaluating[key] = threads + 1, restore
    try:
        yield
    finally:
        if counted:
            with _evaluating_lock:
                threads, restore = _evaluating.pop(key)
                if threads > 1:
                    _evaluating[key] = threads - 1, restore
                else:
                    restore()
