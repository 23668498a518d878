"""What an engine is to the rest of fastpipe: it exports, quantizes and loads; what it loads is a runner."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fastpipe.errors import UnsupportedOnEngineError
from fastpipe.hardware import Hardware
from fastpipe.precision.recipes import Recipe, Weights
from fastpipe.tasks import Task

Batch = Mapping[str, "np.ndarray[Any, Any]"]
Outputs = dict[str, "np.ndarray[Any, Any]"]

# The inputs of a text encoder, and what stands for one that is left out. Every model takes a missing mask for ones;
# that zeros stand for missing token types holds for most, and is verified when a graph is built.
TEXT_INPUTS: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
    "input_ids": lambda ids: ids,
    "attention_mask": np.ones_like,
    "token_type_ids": np.zeros_like,
}

# What encoders of pictures and sounds take: float32 of some shape, with rows as axis 0. Masks beside them say what is
# padding; a row that nothing was padded in has one of ones, which means the same as none.
VALUES = ("pixel_values", "input_values", "input_features")
MASKS = ("pixel_mask", "attention_mask")
INPUTS = (*VALUES, *dict.fromkeys((*TEXT_INPUTS, *MASKS)))


class Runner(Protocol):
    """A loaded model. `run` may be called from many threads at once."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def run(self, batch: Batch) -> Outputs:
        """Run one batch.

        Args:
            batch: One array for each of `inputs`: int64 of shape (rows, tokens), or float32 of shape (rows, ...) for
                those of `VALUES`.

        Returns:
            float32 arrays with `rows` as axis 0, one for each of `outputs`, owned by the caller.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Source:
    """A torch model on its way into an engine.

    Attributes:
        model: The `PreTrainedModel`: fp32, in eval mode.
        task: What it is for.
        inputs: The model's inputs, in the order of `INPUTS`.
        outputs: Names of the outputs to keep.
        examples: Prepared inputs of the task; each maps every one of `inputs` to an array whose axis 0 is 1.
        batchable: Whether the model takes more than one row at a time.
    """

    model: Any
    task: Task
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    examples: Sequence[Batch]
    batchable: bool


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a runner is loaded.

    Attributes:
        recipe: How the engine is to compute; the artifact was built with its weights.
        threads: CPU threads of one inference.
        streams: Inferences that run side by side.
    """

    recipe: Recipe
    threads: int = 1
    streams: int = 1


class Backend(Protocol):
    """One engine."""

    name: str
    libraries: tuple[str, ...]  # distributions, any of which brings the engine
    remedy: str

    def recipes(self, hardware: Hardware) -> tuple[Recipe, ...]:
        """Tell how it runs models on this hardware: fastest first and ever safer, with fp32 last."""
        ...

    def exporters(self) -> Mapping[str, Callable[[Source, Path], None]]:
        """Give the ways to write a model's fp32 graph into a folder, by name, in the order to try them."""
        ...

    def quantize(self, source: Path, folder: Path, weights: Weights, calibration: Sequence[Batch]) -> None:
        """Write a quantized graph.

        Args:
            source: Folder of the fp32 graph, which stays as it is.
            folder: Where the quantized one goes: an empty folder.
            weights: What to make of the dense layers; never "plain".
            calibration: Inputs of the graph to calibrate on, one row each; empty unless the recipe is calibrated.
        """
        ...

    def adopt(self, graph: Path, folder: Path) -> None:
        """Write a graph that others made as one of this engine's own.

        Args:
            graph: Its file, which was looked through; weights may lie beside it.
            folder: Where it goes: an empty folder, but for one that holds the graph.
        """
        ...

    def compile(self, source: Path, folder: Path, settings: Settings) -> None:
        """Write what the engine makes of a graph on this machine, so that `load` need not make it again.

        A backend that has no such thing, or fails at it, loads its graph each time.

        Args:
            source: Folder of the graph, which stays as it is.
            folder: Where it goes: an empty folder.
            settings: How it will be loaded.
        """
        ...

    def load(self, folder: Path, settings: Settings) -> Runner:
        """Load the graph in a folder, or what was compiled there."""
        ...


def complete(feed: Batch, inputs: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Bring a feed to exactly the inputs of a graph.

    Args:
        feed: Arrays with rows as axis 0, by name.
        inputs: Names of the graph's inputs.

    Returns:
        Arrays as `Runner.run` takes them, with transformers' defaults for the inputs that were left out.

    Raises:
        UnsupportedOnEngineError: The feed says something that the graph has no input for.
    """
    for name, values in feed.items():
        if name not in inputs and not (name in MASKS and not feed.keys().isdisjoint(VALUES) and values.all()):
            raise UnsupportedOnEngineError(
                f"the exported model has no input {name!r}, only {', '.join(inputs)}",
                remedy="Use backend='torch' for calls that need it.",
            )
    missing = [name for name in inputs if name not in feed and ("input_ids" not in feed or name not in TEXT_INPUTS)]
    if missing:
        raise UnsupportedOnEngineError(
            f"the exported model needs {', '.join(missing)}", remedy="Use backend='torch' for calls without it."
        )
    filled = {name: feed[name] if name in feed else TEXT_INPUTS[name](feed["input_ids"]) for name in inputs}
    return {
        name: np.ascontiguousarray(values, dtype=np.float32 if name in VALUES else np.int64)
        for name, values in filled.items()
    }
