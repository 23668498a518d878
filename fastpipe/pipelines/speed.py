"""How fast a loaded model is: what its batches cost, and whether they are faster side by side."""

from __future__ import annotations

import logging

import numpy as np

from fastpipe.backends.base import Batch
from fastpipe.batching.collate import Feed
from fastpipe.batching.cost import USUAL, Cost, measure
from fastpipe.batching.streams import candidates, faster
from fastpipe.pipelines.model import EngineModel

_logger = logging.getLogger(__name__)


def measure_speed(
    model: EngineModel, example: Batch, threads: int, *, max_tokens: int | None, batchable: bool
) -> tuple[Cost, int]:
    """Time batches of a model.

    Args:
        model: The model; what it loads for streams is freed afterwards.
        example: Inputs of it, int64 of shape (1, tokens), which are repeated to the shapes that are timed.
        threads: CPU threads of one batch.
        max_tokens: Its positions, if it has a limit.
        batchable: Whether it takes more than one row at a time.

    Returns:
        What batches cost, `USUAL` where the model refuses to be timed, and how many at once are fastest.
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
    return cost, max(gains, key=lambda streams: gains[streams])
