"""A model as exporters like it: tensors in by position, a tuple of tensors out, no cache, no other branches."""

from __future__ import annotations

import numpy as np
import torch

from fastpipe.backends.base import Source
from fastpipe.batching.shapes import shapes_of


class Traceable(torch.nn.Module):
    """Wrap the model of a `Source`.

    Exporters name inputs and outputs after what the traced function looks like. With positions on both sides, the
    names are ours to give, and what a task does not read (a pooler, a cache object) is never exported.
    """

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.model = source.model
        self.input_names = source.inputs
        self.output_names = source.outputs
        has_cache = getattr(source.model.config, "use_cache", None) is not None
        self.extra = {"use_cache": False} if has_cache else {}

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the model on tensors in the order of the source's inputs."""
        outputs = self.model(**dict(zip(self.input_names, tensors, strict=True)), **self.extra, return_dict=True)
        return tuple(outputs[name] for name in self.output_names)


def example(source: Source) -> tuple[torch.Tensor, ...]:
    """Make tensors to trace with: two rows of different content where the model takes two, so that masks matter."""
    feeds = source.examples
    if not source.batchable:
        return tuple(torch.from_numpy(feeds[0][name]) for name in source.inputs)
    if source.task.modality != "text":
        return tuple(
            torch.from_numpy(feeds[0][name] if name in source.task.shared else np.concatenate([feeds[0][name]] * 2))
            for name in source.inputs
        )
    shortest = min(feed["input_ids"].shape[1] for feed in feeds[:2])
    return tuple(
        torch.cat([torch.from_numpy(feed[name][:, :shortest]) for feed in feeds[:2]]) for name in source.inputs
    )


def dynamic_axes(source: Source) -> dict[str, tuple[int | None, ...]]:
    """Tell which axes of the model's inputs have a length of their own.

    Returns:
        For each of the source's inputs, its axes: `None` for one that differs from call to call, else its length.
    """
    task, rows = source.task, None if source.batchable else 1
    if task.modality == "text":
        return dict.fromkeys(source.inputs, (rows, None))
    rest = shapes_of(source.examples, source.inputs)
    return {name: (None, None) if name in task.shared else (rows, *rest[name]) for name in source.inputs}
