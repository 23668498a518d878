"""How fast a loaded model is: what its batches cost, and whether they are faster side by side."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fastpipe.backends.base import Batch
from fastpipe.batching import shapes
from fastpipe.batching.collate import Feed, stack
from fastpipe.batching.cost import USUAL, Cost, measure
from fastpipe.batching.streams import candidates, faster
from fastpipe.pipelines.model import EngineModel


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How fast a model is.

    Attributes:
        cost: What batches of texts cost.
        streams: How many batches at once are fastest.
        numbers: How many numbers of input a batch of anything else has, where it is fastest.
    """

    cost: Cost = USUAL
    streams: int = 1
    numbers: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Give the record as plain values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Speed:
        """Make a record of what `to_dict` gave.

        Raises:
            KeyError, TypeError, ValueError: These are not its values.
        """
        found = cls(**{**values, "cost": Cost.from_dict(values["cost"])})
        numbers = list(found.cost.to_dict().values())
        counts = type(found.streams) is int and type(found.numbers) is int and 1 <= found.streams <= _MOST_STREAMS
        if not counts or found.numbers < 0 or not all(0 <= number < math.inf for number in numbers):
            raise ValueError(f"no machine is as fast as {found}")
        return found


_logger = logging.getLogger(__name__)
_MEMORY_SHARE = 1 / 8
_MOST_STREAMS = 1024
_BYTES_PER_NUMBER = 400  # of input: what the layers of a network have in memory at once, on the safe side


def measure_speed(
    model: EngineModel, example: Batch, threads: int, *, max_tokens: int | None, batchable: bool
) -> Speed:
    """Time batches of a model of texts.

    Args:
        model: The model; what it loads for streams is freed afterwards.
        example: Inputs of it, int64 of shape (1, tokens), which are repeated to the shapes that are timed.
        threads: CPU threads of one batch.
        max_tokens: Its positions, if it has a limit.
        batchable: Whether it takes more than one row at a time.

    Returns:
        Its speed, the usual one where the model refuses to be timed.
    """

    def feed_of(rows: int, tokens: int) -> Feed:
        shape = (rows if batchable else 1, min(tokens, max_tokens or tokens))
        return {name: np.resize(values, shape) for name, values in example.items()}

    cost, gains = USUAL, {1: 1.0}
    try:
        cost = measure(model.run, feed_of, max_tokens=max_tokens, batchable=batchable)
        for streams in candidates(threads):
            if beside := model.beside(streams):
                gains[streams] = faster(model.run, beside, feed_of, cost, streams)
    except (OSError, MemoryError):  # these pass, and what is found here is remembered
        raise
    except Exception:  # the model refuses a shape that no input of its user may have: nothing was learnt
        _logger.info("%s could not be timed at every shape", model.name_or_path, exc_info=True)
    model.unload_streams()
    return Speed(cost=cost, streams=max(gains, key=lambda streams: gains[streams]))


def measure_shaped(
    model: EngineModel, example: Batch, threads: int, shared: Collection[str], memory_bytes: int
) -> Speed:
    """Time batches of a model of pictures or sounds.

    Args:
        model: The model, which takes more than one row at a time; what it loads for streams is freed afterwards.
        example: A row of it.
        threads: CPU threads of one batch.
        shared: Inputs that belong to all rows.
        memory_bytes: Memory that may be used; 0 where nothing is known of it.

    Returns:
        Its speed: rows one at a time where no batch was faster.
    """
    size, gains = shapes.size_of(example, shared), {1: 1.0}
    rows, each_s = shapes.fastest_rows(model.run, example, shared)
    batch = stack([example] * rows, shared)
    cost = Cost(call_s=0.0, token_s=each_s, pair_s=0.0)  # of one number, of which a row is said to have one
    for streams in candidates(threads):
        if beside := model.beside(streams):
            gains[streams] = faster(model.run, beside, lambda r, t: batch, cost, streams)
    model.unload_streams()
    fitting = max(1, int(_MEMORY_SHARE * memory_bytes / (_BYTES_PER_NUMBER * size))) if memory_bytes else rows
    return Speed(streams=max(gains, key=lambda streams: gains[streams]), numbers=min(rows, fitting) * size)
