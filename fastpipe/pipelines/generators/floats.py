"""Which floats a generator on torch computes in: bf16 where the CPU multiplies it and the accuracy check passes it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from fastpipe.artifacts.store import Artifact
from fastpipe.backends import generators, registry
from fastpipe.backends.torch import token_limit
from fastpipe.batching.planner import Padding
from fastpipe.pipelines.generators.selection import OUTPUTS, GeneratorSelection
from fastpipe.precision import gate
from fastpipe.precision.recipes import FP32, Recipe
from fastpipe.precision.report import Report

BF16 = Recipe(name="bf16", compute="bf16")
# Of the machine's memory, what the fp32 weights may take for a second copy, in bf16, to be tried beside them.
_SHARE = 0.4


class FloatSelection(GeneratorSelection):
    """The ladder of torch: nothing is built, and what is compared are models as transformers loads them."""

    def fits(self) -> bool:
        """Tell whether there is the memory to try it."""
        size = sum(int(weight.nbytes) for weight in self.pipe.model.parameters())
        return size <= _SHARE * self.hardware.memory_bytes

    def checked(self) -> tuple[Recipe, Report]:
        """Check, or remember the answer."""
        accuracy = self._accuracy()
        assert accuracy is not None  # whoever wants no check is not asked
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # names of arguments differ between versions of transformers
            report = self._remembered(accuracy, None)
        return next(recipe for recipe in self.ladder if recipe.name == report.chosen), report

    def narrow_model(self) -> Any:
        """Load the model in bf16, with what its class keeps in fp32 left so."""
        return self.request.torch_model(dtype=torch.bfloat16).eval()

    def _engine(self) -> Any:
        return registry.load("torch")

    def _recipes(self) -> Sequence[Recipe]:
        return (BF16, FP32)

    def _exporters(self) -> Sequence[str]:
        return ()

    def artifact(self, recipe: Recipe) -> Artifact:
        """Give the facts that the check reads; there are no files."""
        facts: Mapping[str, Any] = {
            "max_tokens": token_limit(self.pipe.model),
            "outputs": OUTPUTS,
            "padding": Padding.SINGLE.value,
        }
        return Artifact(folder=Path(), manifest={"files": {}, "facts": facts})

    def _load(self, folder: Path, recipe: Recipe) -> Any:
        return self.pipe.model if recipe is FP32 else self.narrow_model()

    def _run_of(self, recipe: Recipe, artifact: Artifact) -> gate.Run:
        model = self._load(artifact.folder, recipe)
        return lambda row: generators.forced(model, row, self.task.generates)
