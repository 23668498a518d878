"""What the calls of one thread are told: who answers for the model, and that rows are only collected."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from transformers.utils import ModelOutput

from fastpipe.pipelines.guards import evaluating
from fastpipe.pipelines.model import as_model_output
from fastpipe.pipelines.rows import Answer, Row

_thread = threading.local()


class StandIn:
    """Answers for the model while one thread takes a row through `_forward`."""

    def __init__(self, pipe: Any, row: Row, answer: Answer) -> None:
        self.pipe = pipe
        self._model = pipe.model
        self._answer = answer
        self._tensors = row.tensors or {name: row.inputs[name] for name in row.feed}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Give the answer when asked about the row that was run, else ask the model."""
        if not args and all(kwargs.get(name) is tensor for name, tensor in self._tensors.items()):
            return self._output()
        with evaluating(self._model), torch.no_grad():
            return self._model(*args, **kwargs)

    def _output(self) -> ModelOutput:
        return as_model_output(self._answer, self._model.dtype)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


@contextlib.contextmanager
def standing_in(stand_in: Any) -> Iterator[None]:
    """Let it answer for its pipeline's model in this thread."""
    _thread.stand_in = stand_in
    try:
        yield
    finally:
        _thread.stand_in = None


def stand_in_for(pipe: Any) -> Any:
    """Give what answers for a pipeline's model in this thread, if anything does."""
    stand_in = getattr(_thread, "stand_in", None)
    return stand_in if stand_in is not None and stand_in.pipe is pipe else None


@contextlib.contextmanager
def collecting() -> Iterator[list[Row]]:
    """Have calls of fast pipelines in this thread collect the rows of their inputs, and run no model.

    Their results stand for nothing; the rows have been through all of the task's own argument handling.
    """
    rows: list[Row] = []
    _thread.collected = rows
    try:
        yield rows
    finally:
        _thread.collected = None


def collected_here() -> list[Row] | None:
    """Give the list that rows are collected in, if they are."""
    return getattr(_thread, "collected", None)
