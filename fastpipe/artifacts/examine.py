"""Find out what a model of pictures or sounds takes, gives, and does with several rows at once, by running it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from fastpipe.backends import torch as torch_backend
from fastpipe.backends.base import INPUTS, MASKS, Source
from fastpipe.batching import neutrality, shapes
from fastpipe.batching.collate import Feed
from fastpipe.batching.planner import Padding
from fastpipe.errors import ExportError
from fastpipe.tasks import Task


def examine(model: Any, task: Task, feeds: Sequence[Feed], beside: Collection[str]) -> tuple[Source, Padding]:
    """Make a source of a model and of inputs that were prepared for it.

    Args:
        model: The torch model, fp32 in eval mode.
        task: What it is for.
        feeds: Prepared inputs, arrays whose axis 0 is 1.
        beside: Names of other tensors that were prepared with them.

    Returns:
        The source, without masks that say nothing, and what the model does with rows in a batch.

    Raises:
        ExportError: The model does not run on them.
    """
    name = type(model).__name__
    takes = torch_backend.takes(model)
    if any(feed.keys() != feeds[0].keys() for feed in feeds):
        raise ExportError(f"{name} takes other inputs from call to call")
    inputs = tuple(entry for entry in INPUTS if entry in feeds[0])
    whole = [
        entry for entry in inputs if entry in MASKS and entry not in task.shared and all(f[entry].all() for f in feeds)
    ]
    for fact, names in (("takes no", set(inputs) - takes - set(whole)), ("also takes", takes.intersection(beside))):
        if names:
            raise ExportError(f"{name} {fact} {', '.join(sorted(names))}")
    try:
        runner = torch_backend.TorchRunner(model, task.outputs, task.also)
        wanted = runner.run(feeds[0])
        if whole:
            without = {entry: values for entry, values in feeds[0].items() if entry not in whole}
            if neutrality.distance(runner.run(without), wanted) <= neutrality.TOLERANCE:
                inputs = tuple(entry for entry in inputs if entry not in whole)
        examples = [{entry: feed[entry] for entry in inputs} for feed in feeds]
        padding = shapes.measure(runner.run, examples[0], task.shared)
    except (OSError, MemoryError):  # these pass; an ExportError is remembered
        raise
    except Exception as error:
        raise ExportError(f"{name} does not run as an encoder: {type(error).__name__}: {error}") from error
    return (
        Source(
            model=model,
            task=task,
            inputs=inputs,
            outputs=tuple(wanted),
            examples=examples,
            batchable=padding is not Padding.SINGLE,
        ),
        padding,
    )


def text_limit(config: Any) -> int | None:
    """Find how many tokens the text part of a model of pictures and texts has positions for; `None` without one."""
    limit = getattr(getattr(config, "text_config", None), "max_position_embeddings", None)
    return limit if isinstance(limit, int) else None
