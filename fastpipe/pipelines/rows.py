"""One row of a model's input, on its way through a call."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from transformers import BatchEncoding

from fastpipe.tasks import Task

# A row's outputs by name, with axis 0 of length 1.
Answer: TypeAlias = "dict[str, np.ndarray[Any, Any]]"


@dataclass(kw_only=True, eq=False)
class Row:
    """A row, and which input of the call it belongs to.

    Attributes:
        owner: Position of that input.
        feed: The model's inputs by name, arrays whose axis 0 is 1: int64 (1, tokens), or float32 of another shape;
            empty for a row that is none of these.
        beside: What `preprocess` gives beside the arrays of `feed`; empty where `prepared` holds it.
        prepared: What `preprocess` gave for it; the arrays are views of its tensors.
        tensors: Those tensors by name, where `_forward` may take them out of `prepared`.
    """

    owner: int
    feed: dict[str, np.ndarray[Any, Any]]
    beside: Mapping[str, Any] = field(default_factory=dict)
    prepared: Any = None
    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict)

    @property
    def inputs(self) -> Any:
        """What the task's own `_forward` takes."""
        if self.prepared is None:
            both = {**self.feed, **self.beside}
            self.prepared = BatchEncoding(
                {name: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for name, v in both.items()}
            )
        return self.prepared

    @property
    def tokens(self) -> int:
        """Its length."""
        return self.feed["input_ids"].shape[1] if "input_ids" in self.feed else 0

    def others(self) -> list[str]:
        """Name the tensors that `preprocess` gave beside those of `feed`."""
        return [
            name for name, value in self.inputs.items() if isinstance(value, torch.Tensor) and name not in self.feed
        ]

    def content(self) -> tuple[Any, ...]:
        """A value that is equal for rows that the model cannot tell apart."""
        return tuple((name, values.shape, values.tobytes()) for name, values in self.feed.items())


def row_of(prepared: Any, owner: int, names: Collection[str], task: Task) -> Row:
    """Find a model's inputs among what `preprocess` gave.

    Args:
        prepared: A mapping of tensors, and of anything else that is not the model's.
        owner: Position of the input it is of.
        names: What the model's inputs may be called.
        task: What is known of the task.

    Returns:
        The row; without a feed where it is of several rows of the model.
    """
    within = prepared[task.nested][0] if task.nested in prepared else {}
    both = {**prepared, **within}
    tensors = {name: both[name] for name in names if isinstance(both.get(name), torch.Tensor)}
    one = all(tensor.ndim and len(tensor) == 1 for name, tensor in tensors.items() if name not in task.shared)
    feed = {name: array_of(tensor) for name, tensor in tensors.items()} if one else {}
    return Row(owner=owner, prepared=prepared, feed=feed, tensors=tensors)


def array_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Give a tensor's values: what is no whole number becomes float32."""
    values: np.ndarray[Any, Any] = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    return values
