"""Which recipe serves a generator: the same ladder, store and check as for encoders, with its own export and sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from fastpipe.artifacts import build
from fastpipe.artifacts.hub import Ready
from fastpipe.artifacts.store import Artifact
from fastpipe.backends import generators, lean, registry
from fastpipe.backends.torch import token_limit
from fastpipe.batching import neutrality
from fastpipe.batching.collate import Feed
from fastpipe.batching.planner import Padding
from fastpipe.errors import ExportError, OptionError
from fastpipe.pipelines.generators.sample import EXAMPLES, given_rows, rows_of
from fastpipe.pipelines.selection import Selection
from fastpipe.precision import gate
from fastpipe.precision.recipes import CAUSAL, FP32, Recipe

OUTPUTS = ("logits",)


class GeneratorSelection(Selection):
    """The recipes of one generator on one engine."""

    def _engine(self) -> Any:
        engine = generators.load(self.plan.backend)
        if engine is None:
            raise ExportError(f"models that generate have no path to {self.plan.backend} yet")
        if not registry.version_of(engine.exporter):
            raise ExportError(
                f"models that generate run on {engine.name} by {engine.exporter}, which is not installed: in an "
                "environment of its own, pip install 'transformers-fastpipe[all]' would make this faster"
            )
        return engine

    def _recipes(self) -> Sequence[Recipe]:
        recipes: Sequence[Recipe] = self.backend.recipes(self.hardware, self.task.generates)
        return recipes

    def _found_ready(self) -> Mapping[int, Ready]:
        return {}  # whatever others have made of a generator, a loop of its own goes with it

    def _unavailable(self, named: str) -> OptionError:
        able = ", ".join(recipe.name for recipe in self.ladder)
        return OptionError(f"precision={named!r} is not for models that generate", remedy=f"Use auto, {able}.")

    def _exporters(self) -> Sequence[str]:
        return (self.backend.exporter,)

    def _export(self, folder: Path, rows: Sequence[Any]) -> dict[str, Any]:
        kind = self.task.generates
        with build.as_reference(self.request.torch_model(tokenizer=self.pipe.tokenizer), folder) as model:
            limit = token_limit(model)
            rows = rows_of(self.pipe, model, kind, limit, EXAMPLES)
            wanted = [generators.forced(model, row, kind) for row in rows]
            try:
                error = build.verified(
                    folder,
                    self.backend.exporter,
                    lambda: self.backend.export(model, folder, kind),
                    lambda: self._difference(folder, rows, wanted),
                    build.bytes_of(model),
                )
            except ExportError as failure:
                raise ExportError(f"{self.backend.name} cannot take {type(model).__name__} ({failure})") from failure
        return {
            "max_tokens": limit,
            "padding": Padding.SINGLE.value,
            "outputs": OUTPUTS,
            "exporter": self.backend.exporter,
            "export_error": error,
            "left_padding": kind == CAUSAL and self._left_padding(folder, rows),
        }

    def _sample(self) -> tuple[list[Feed], str]:
        return self._sampled

    def _difference(self, folder: Path, rows: Sequence[Feed], wanted: Sequence[Feed]) -> float:
        model = self._load(folder, FP32)
        return max(
            neutrality.distance(generators.forced(model, row, self.task.generates), logits)
            for row, logits in zip(rows, wanted, strict=True)
        )

    def _left_padding(self, folder: Path, rows: Sequence[Feed]) -> bool:
        """Try whether prompts give the same answers behind padding."""
        prompts = [row["input_ids"] for row in rows]
        model = self._load(folder, FP32)
        if not isinstance(model, lean.LeanSampling):
            return False
        return lean.same_behind_padding(model, [prompts[0], prompts[-1][:, : max(prompts[-1].shape[1] // 2, 1)]])

    def _quantize(self, folder: Path, source: Artifact, recipe: Recipe) -> dict[str, Any]:
        with build.quantizing(self.backend.name, recipe.weights, folder, source):
            self.backend.quantize(source.folder, folder, recipe.weights)
        return dict(source.facts)

    def _load(self, folder: Path, recipe: Recipe) -> Any:
        return self.backend.load(
            folder,
            self.task.generates,
            recipe,
            self.plan.threads,
            self.request.config,
            self.request.generation_config(),
        )

    def _run_of(self, recipe: Recipe, artifact: Artifact) -> gate.Run:
        model = self._load(artifact.folder, recipe)
        twin, rows = self.backend.twin(model), self._sample()[0][:EXAMPLES]
        if not generators.says_the_same_again(model, twin, rows, self.task.generates):
            raise ExportError("what it says depends on what it said before")
        return lambda row: generators.forced(model, row, self.task.generates)

    @cached_property
    def _sampled(self) -> tuple[list[Feed], str]:
        base = self.artifact(FP32)
        model, kind, limit = self._load(base.folder, FP32), self.task.generates, base.facts["max_tokens"]
        if self.given:
            items = self.given.parts()[1]
            rows = given_rows(self.pipe, model, kind, limit, items)
            if not rows:
                raise OptionError(
                    "calibration_data= gives nothing to generate from", remedy="Give inputs of this task."
                )
            return rows, f"{len(items)} inputs of the calibration data"
        rows = rows_of(self.pipe, model, kind, limit)
        if not rows:
            raise ValueError("none of its inputs is short enough")
        return rows, f"the built-in sample: what follows {len(rows)} inputs, token by token"
