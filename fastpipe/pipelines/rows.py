"""One row of a model's input, on its way through a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from transformers import BatchEncoding

# A row's outputs by name, with axis 0 of length 1.
Answer: TypeAlias = "dict[str, np.ndarray[Any, Any]]"


@dataclass(kw_only=True, eq=False)
class Row:
    """A row, and which input of the call it belongs to.

    Attributes:
        owner: Position of that input.
        feed: int64 arrays of shape (1, tokens) by name; empty for a row that is not of that shape.
        beside: What `preprocess` gives beside the arrays of `feed`; empty where `prepared` holds it.
        prepared: What `preprocess` gave for it; the arrays are views of its tensors.
    """

    owner: int
    feed: dict[str, np.ndarray[Any, Any]]
    beside: Mapping[str, Any] = field(default_factory=dict)
    prepared: Any = None

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
        return self.feed["input_ids"].shape[1] if self.feed else 0

    def content(self) -> tuple[Any, ...]:
        """A value that is equal for rows that the model cannot tell apart."""
        return tuple((name, values.tobytes()) for name, values in self.feed.items())
