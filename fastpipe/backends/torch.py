"""torch: takes every model, and runs what no other engine takes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastpipe.backends.base import TEXT_INPUTS, Batch, Outputs, Settings, Source
from fastpipe.errors import UnsupportedOnEngineError
from fastpipe.hardware import Hardware
from fastpipe.precision.recipes import Recipe, Weights


class TorchBackend:
    """The model as transformers loads it: there is nothing to export."""

    name = "torch"
    libraries = ("torch",)
    remedy = "pip install torch"

    def recipes(self, hardware: Hardware) -> tuple[Recipe, ...]:
        """See `Backend`. A dtype of torch that no engine has goes by its own name."""
        return tuple(Recipe(name=name) for name in ("bf16", "fp16", "float64", "double", "fp32"))

    def exporters(self) -> Mapping[str, Callable[[Source, Path], None]]:
        """See `Backend`."""
        return {}

    def quantize(self, source: Path, folder: Path, weights: Weights, calibration: Sequence[Batch]) -> None:
        """See `Backend`."""
        raise UnsupportedOnEngineError("the torch backend quantizes nothing")

    def load(self, folder: Path, settings: Settings) -> TorchRunner:
        """See `Backend`."""
        raise UnsupportedOnEngineError("the torch backend runs the model object itself, not an artifact")


class TorchRunner:
    """A `PreTrainedModel` seen as a runner.

    Args:
        model: The model, on its device.
        outputs: Names of the outputs to give; empty for the first one.
        also: Outputs to give beside, where the model has them.
    """

    def __init__(self, model: Any, outputs: tuple[str, ...], also: tuple[str, ...] = ()) -> None:
        self._model = model
        self.inputs = text_inputs(model)
        self.outputs = outputs
        self._also = also

    def run(self, batch: Batch) -> Outputs:
        """See `Runner`."""
        import torch

        feed = {name: torch.from_numpy(values).to(self._model.device) for name, values in batch.items()}
        with torch.no_grad():
            outputs = self._model(**feed)
        names = self.outputs or (next(iter(outputs)),)
        names = (*names, *(n for n in self._also if n not in names and outputs.get(n) is not None))
        return {name: _to_numpy(outputs[name]) for name in names}

    def beside(self, streams: int) -> None:
        """Have no streams: torch's threads belong to the whole process."""


def _to_numpy(tensor: Any) -> np.ndarray[Any, Any]:
    values: np.ndarray[Any, Any] = tensor.float().cpu().numpy()
    return values


def to_eval_mode(model: Any) -> Callable[[], None]:
    """Switch dropout off, and give what puts every part of the model back into the mode it was in."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()

    def restore() -> None:
        for module, training in before:
            module.training = training

    return restore


def text_inputs(model: Any) -> tuple[str, ...]:
    """Name the text inputs that a model's `forward` takes."""
    parameters = inspect.signature(model.forward).parameters
    return tuple(name for name in TEXT_INPUTS if name in parameters)


def takes(model: Any) -> frozenset[str]:
    """Name everything that a model's `forward` takes."""
    return frozenset(inspect.signature(model.forward).parameters)


def token_limit(model: Any) -> int | None:
    """Find how many tokens the model has positions for.

    Learned absolute positions live in an embedding whose name says so (`position_embeddings`, `wpe`,
    `embed_positions`); past its end, torch fails. Models that count from behind the padding index (RoBERTa) or keep
    an `offset` (BART) have fewer usable rows than the table. Relative positions have no such table, and no limit; nor
    have positions that start again in every cell of a table (TAPAS). In a model of several parts, the towers that see
    or hear number patches or frames by such tables, which say nothing of texts: what counts there is a table beside
    the embedding of tokens.

    Returns:
        The limit in tokens, special ones included; `None` where there is none, or where several tables disagree.
    """
    import torch

    config = getattr(model, "config", None)
    if getattr(config, "reset_position_index_per_cell", False):
        return None
    has_parts = bool(getattr(config, "sub_configs", None))
    limits = set()
    for name, module in model.named_modules():
        above, _, leaf = name.rpartition(".")
        if isinstance(module, torch.nn.Embedding) and _holds_positions(leaf):
            if has_parts and not _embeds_tokens(model.get_submodule(above)):
                continue
            unusable = getattr(module, "offset", 0)
            if module.padding_idx is not None and not unusable:
                unusable = module.padding_idx + 1
            limits.add(module.num_embeddings - unusable)
    return limits.pop() if len(limits) == 1 else None


def _embeds_tokens(part: Any) -> bool:
    """Tell whether a part of a model holds an embedding of something else than positions."""
    import torch

    names = [name for name, child in part.named_children() if isinstance(child, torch.nn.Embedding)]
    return not all(_holds_positions(name) for name in names)


def _holds_positions(leaf: str) -> bool:
    return re.fullmatch(r"wpe|embed_positions|pos(ition)?_embeddings?", leaf) is not None
