"""What an engine needs of a model: its artifacts, looked for, taken over or built; and what is known of them."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fastpipe._version import __version__
from fastpipe.artifacts import build, hub
from fastpipe.artifacts.hub import Ready
from fastpipe.artifacts.share import Shared
from fastpipe.artifacts.spec import ArtifactSpec, digest_of, digest_of_config
from fastpipe.artifacts.store import Artifact, Store
from fastpipe.backends import registry
from fastpipe.backends.base import Settings
from fastpipe.batching.collate import Feed
from fastpipe.batching.planner import Limits, Padding, memory_limits
from fastpipe.errors import ExportError
from fastpipe.hardware import Hardware
from fastpipe.options import Options
from fastpipe.pipelines import components, samples
from fastpipe.pipelines.call import Batching
from fastpipe.pipelines.classes import fast_class
from fastpipe.pipelines.published import Published
from fastpipe.pipelines.request import Request
from fastpipe.pipelines.rows import Row
from fastpipe.pipelines.saving import Served
from fastpipe.pipelines.speed import Speed, measure_shaped, measure_speed
from fastpipe.pipelines.tuned import Outdated, Tuned
from fastpipe.plan import Plan
from fastpipe.precision import recipes
from fastpipe.precision.calibration import Calibration
from fastpipe.precision.recipes import FP32, Recipe
from fastpipe.progress import Steps
from fastpipe.tasks import Task

_logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Building:
    """One model on one engine: what is built of it, where it is kept, and how fast it is.

    Attributes:
        pipe: The pipeline that will serve; its tokenizer and `preprocess` make the rows of the check.
        request: What the user asked for.
        task: Its task.
        plan: What was decided so far: engine, threads, streams.
        hardware: What this machine has.
        options: What the user said to us.
        given: Their calibration data, if there is any.
        tuned: The choice that tuning made, if it made one.
        shared: The ready files beside the model's weights, if there are some.
        published: What the hub has of the model, if it is from there.
        follows: Whether what served when they were saved serves again.
    """

    pipe: Any
    request: Request
    task: Task
    plan: Plan
    hardware: Hardware
    options: Options
    given: Calibration | None
    tuned: Tuned | None = None
    shared: Shared | None = None
    published: Published | None = None
    follows: bool = False

    def __post_init__(self) -> None:
        self.backend = self._engine()
        self.store = Store(self.options.cache_dir, self._about())
        calibrated = self.given or self.tuned
        self._ready = self._found_ready()
        self.ladder = [r for r in self._recipes() if calibrated or not r.calibrated]
        if int8 := self._ready.get(8):
            self.ladder.insert(0, recipes.ready(self.backend.name, self.hardware, int8.origin))
        self.spec = self._spec()
        self.steps = Steps(Path(self.request.model_id or "model").name, self.options.progress_bar)
        self._artifacts: dict[str, Artifact] = {}

    def _engine(self) -> Any:
        return registry.load(self.plan.backend)

    def _recipes(self) -> Sequence[Recipe]:
        found: Sequence[Recipe] = self.backend.recipes(self.hardware)
        return found

    def _exporters(self) -> Sequence[str]:
        return tuple(self.backend.exporters())

    def artifact(self, recipe: Recipe) -> Artifact:
        """Give the artifact of a recipe, building what is missing."""
        if recipe.name not in self._artifacts:  # looked for once: to find one is to read all of its bytes
            self._artifacts[recipe.name] = self._obtain(recipe)
        return self._artifacts[recipe.name]

    def _obtain(self, recipe: Recipe) -> Artifact:
        spec = self._spec_of(recipe)

        def export(folder: Path) -> dict[str, Any]:
            if (ready := self._taken(spec, folder)) is not None:
                return ready
            rows = self._examples()
            with self.steps.step(f"exporting to {self.backend.name}"):
                return self._export(folder, rows)

        def quantize(folder: Path) -> dict[str, Any]:
            if (ready := self._taken(spec, folder)) is not None:
                return ready
            if recipe.calibrated and not self.given:
                raise Outdated
            if recipe.weights.origin:
                with self.steps.step(f"fetching {recipe.name}"):
                    self._fetch(8, folder)
                return dict(self.artifact(FP32).facts)
            source = self.artifact(FP32)
            with self.steps.step(f"quantizing for {recipe.name}"):
                return self._quantize(folder, source, recipe)

        return self.store.obtain(spec, export if recipe.weights == FP32.weights else quantize)

    def _taken(self, spec: ArtifactSpec, folder: Path) -> dict[str, Any] | None:
        """Take an artifact from the ready files."""
        if self.shared is None:
            return None
        return self.shared.take(replace(spec, weights=self.shared.choice.weights), folder)

    def _found_ready(self) -> Mapping[int, Ready]:
        return self.published.graphs(self.backend.name, self.hardware.isa) if self.published else {}

    def _fetch(self, bits: int, folder: Path) -> None:
        if self.published is None:
            return
        try:
            self.published.fetch(self._ready[bits], folder, self.backend.adopt)
        except ExportError as error:
            build.reject_full_disk(folder, self._ready[bits].size_bytes, error)
            raise

    def _export(self, folder: Path, rows: Sequence[Row]) -> dict[str, Any]:
        fp32 = self._ready.get(32)
        return build.export(
            folder,
            model=self.request.torch_model(tokenizer=self.pipe.tokenizer),
            tokenizer=self.pipe.tokenizer,
            task=self.task,
            backend=self.backend,
            threads=self.plan.threads,
            feeds=[row.feed for row in rows],
            beside=rows[0].others() if rows else (),
            ready={fp32.origin: lambda source, folder: self._fetch(32, folder)} if fp32 else {},
            ready_first=fp32 is not None and fp32.size_bytes <= hub.LARGEST_FP32,
        )

    def _quantize(self, folder: Path, source: Artifact, recipe: Recipe) -> dict[str, Any]:
        rows = self._rows(self.given.parts()[0]) if recipe.calibrated and self.given else ()
        return build.quantize(folder, source=source, backend=self.backend, weights=recipe.weights, calibration=rows)

    def compiled(self, recipe: Recipe) -> Artifact:
        """Give what the engine makes of a recipe's artifact on this machine, or the artifact where it makes nothing."""
        settings = self.settings(recipe)

        def compile_(folder: Path) -> Mapping[str, Any]:
            source = self.artifact(recipe)
            try:
                with self.steps.step(f"compiling {recipe.name}"):
                    self.backend.compile(source.folder, folder, settings)
                    self.backend.load(folder, settings)
            except (OSError, MemoryError):
                raise
            except Exception as error:
                build.reject_full_disk(folder, source.size_bytes, error)
                raise ExportError(f"{self.backend.name} cannot store what it compiled: {error}") from error
            return source.facts

        question = {"compiled for": self._machine(), "as": asdict(settings)}
        try:
            return self.store.obtain(self._spec_of(recipe, question), compile_)
        except ExportError as error:
            _logger.info("%s", error)
            return self.artifact(recipe)

    def _spec_of(self, recipe: Recipe, choice: Mapping[str, Any] | None = None) -> ArtifactSpec:
        known = self.given.digest if self.given else self.tuned.calibration if self.tuned else ""
        digest = known or (self.shared.choice.calibration if self.shared else "")
        stored = recipe.weights.to_dict() if recipe.weights != FP32.weights else {}
        return replace(
            self.spec, weights_as=stored, calibration=digest if recipe.calibrated else "", choice=choice or {}
        )

    def equip(self, facts: Mapping[str, Any], speed: Speed = Speed()) -> None:  # noqa: B008 - it is frozen
        """Tell the pipeline what was learnt about its model."""
        self._batching = Batching(
            runner=self.pipe.model,
            per_token=self.task.per_token,
            max_tokens=facts["max_tokens"],
            padding=Padding(facts["padding"]),
            cost=speed.cost,
            limits=memory_limits(Limits(), speed.cost, self.hardware.memory_bytes),
            streams=speed.streams,
            overlaps=True,
            task=self.task,
            numbers=speed.numbers,
        )
        if not self.request.own_class:
            self.pipe._batching = self._batching
        components.limit_tokenizer(self.pipe, facts["max_tokens"])

    def settings(self, recipe: Recipe) -> Settings:
        """Tell the engine how to load a recipe."""
        return Settings(recipe=recipe, threads=self.plan.threads, streams=self.plan.streams)

    def served(self, recipe: Recipe) -> Served:
        """Tell what a pipeline that runs a recipe is loaded from."""
        return Served(
            backend=self.backend.name,
            libraries=tuple(name for name in self.backend.libraries if registry.version_of(name)),
            precision=recipe.name,
            graph=self._spec_of(recipe),
            others=(self._spec_of(recipe, self._question_of_speed(recipe)),),
        )

    def _question_of_speed(self, recipe: Recipe) -> dict[str, Any]:
        return {"speed of": asdict(recipe), "machine": self._machine()}

    def speed(self, recipe: Recipe, facts: Mapping[str, Any]) -> Speed:
        """Tell how fast a recipe is on this machine: remembered, or measured with the model now loaded."""
        spec = self._spec_of(recipe, self._question_of_speed(recipe))

        def timed(folder: Path) -> dict[str, Any]:
            with contextlib.suppress(KeyError, TypeError, ValueError):  # they say something else
                if (ready := self._taken(spec, folder)) is not None:
                    return Speed.from_dict(ready).to_dict()
            threads, batchable = self.plan.threads, Padding(facts["padding"]) is not Padding.SINGLE
            model, limit = self.pipe.model, facts["max_tokens"]
            if self.task.modality == "text":
                example = build.examples(self.pipe.tokenizer, model.inputs, limit)[-1]
                with self.steps.step("timing batches"):
                    return measure_speed(model, example, threads, max_tokens=limit, batchable=batchable).to_dict()
            if not batchable:
                return Speed().to_dict()
            rows = self._examples()
            with self.steps.step("timing batches"):
                memory = self.hardware.memory_bytes
                return measure_shaped(model, rows[0].feed, threads, self.task.shared, memory).to_dict()

        return Speed.from_dict(self.store.obtain(spec, timed).facts)

    def _about(self) -> dict[str, str]:
        """Say what is built, for who lists the store; never where it is from."""
        folder, name = self.request.folder, self.request.model_id
        return {"model": folder.resolve().name if folder else name or "", "task": self.request.task_name}

    def _machine(self) -> list[Any]:
        return [self.hardware.cpu_model, self.hardware.isa, self.plan.threads, self.plan.streams]

    def _rows(self, items: Sequence[Any]) -> list[Feed]:
        """Take inputs through all of the pipeline's own argument handling and `preprocess`."""
        return [row.feed for row in samples.rows_of(self._collector, self.task, items)]

    def _examples(self) -> list[Row]:
        """Prepare what the model and its graphs are tried out with, where it is no texts: those need no pipeline.

        Raises:
            ExportError: It does not go through this pipeline.
        """
        if self.task.modality == "text":
            return []
        components.reject_language_model(self.pipe)
        return samples.examples(self._collector, self.task, samples.FEW)

    @cached_property
    def _collector(self) -> Any:
        """Give a pipeline that collects rows: this one, or a fast twin of one whose class is the user's own."""
        if self.task.modality == "text":
            self.equip(self.artifact(FP32).facts)
        else:  # what is known of the model is found out with the rows of this pipeline
            self.equip({"max_tokens": None, "padding": Padding.SINGLE.value})
        if not self.request.own_class:
            return self.pipe
        twin = fast_class(self.request.pipeline_class)
        pipe = self.request.engine_pipeline(self.pipe.model, components.of(self.request), twin)
        pipe._batching = self._batching
        return pipe

    def _weights(self) -> str:
        return self.request.digest_of_weights(self.store.digest_of_file)

    def _spec(self) -> ArtifactSpec:
        # Ready files are the word of who saved them: they serve their folder, and no other with the same weights.
        weights = digest_of([self._weights(), self.shared.digest]) if self.shared else self._weights()
        libraries = {"torch", "transformers", "nncf", *self.backend.libraries, *self._exporters()}
        return ArtifactSpec(
            weights=weights,
            config=digest_of_config(self.request.config),
            architecture=str((self.request.config.architectures or [""])[0]),
            task=self.task.export,
            inputs=components.names(self.pipe),
            backend=self.backend.name,
            versions={"fastpipe": __version__, **{name: registry.version_of(name) for name in sorted(libraries)}},
        )
