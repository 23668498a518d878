"""Which recipe serves: artifacts for each, the accuracy check over them, and its remembered answer."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fastpipe._version import __version__
from fastpipe.artifacts import build
from fastpipe.artifacts.share import Shared
from fastpipe.artifacts.spec import ArtifactSpec, code_of, digest_of_config
from fastpipe.artifacts.store import Artifact, Store
from fastpipe.backends import registry
from fastpipe.backends.base import Settings
from fastpipe.batching.collate import Feed, pad_values
from fastpipe.batching.planner import Limits, Padding, memory_limits
from fastpipe.errors import ExportError, FallbackWarning, OptionError
from fastpipe.hardware import Hardware
from fastpipe.options import Accuracy, Options
from fastpipe.pipelines import components, samples
from fastpipe.pipelines.call import Batching
from fastpipe.pipelines.classes import fast_class
from fastpipe.pipelines.request import Request
from fastpipe.pipelines.rows import Row
from fastpipe.pipelines.saving import Served
from fastpipe.pipelines.speed import Speed, measure_shaped, measure_speed
from fastpipe.pipelines.tuned import Outdated, Tuned
from fastpipe.plan import Plan
from fastpipe.precision import gate
from fastpipe.precision.calibration import Calibration
from fastpipe.precision.recipes import FP32, Recipe
from fastpipe.precision.report import Report
from fastpipe.progress import Steps
from fastpipe.tasks import ORDER, Task

_logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Selection:
    """The recipes of one model on one engine.

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
    follows: bool = False

    def __post_init__(self) -> None:
        self.backend = self._engine()
        self.store = Store(self.options.cache_dir, self._about())
        calibrated = self.given or self.tuned
        self.ladder = [r for r in self._recipes() if calibrated or not r.calibrated]
        self.spec = self._spec()
        self.steps = Steps(Path(self.request.model_id or "model").name, self.options.progress_bar)
        self._artifacts: dict[str, Artifact] = {}

    def _engine(self) -> Any:
        return registry.load(self.plan.backend)

    def _recipes(self) -> Sequence[Recipe]:
        recipes: Sequence[Recipe] = self.backend.recipes(self.hardware)
        return recipes

    def _exporters(self) -> Sequence[str]:
        return tuple(self.backend.exporters())

    def _unavailable(self, named: str) -> OptionError:
        return OptionError(
            f"precision={named!r} is built from examples of the data it will see",
            remedy="Give them: calibration_data=[...], of a hundred inputs or more.",
        )

    def choose(self) -> tuple[Recipe, Report]:
        """Choose the recipe to serve, by the accuracy check where there is something to check.

        Raises:
            OptionError: The recipe named takes calibration data, and there is none.
            ExportError: The engine cannot take the model.
            Outdated: What tuning chose is not to be had any more.
        """
        named = self.plan.precision
        by_name = {recipe.name: recipe for recipe in self.ladder}
        if self.tuned:
            return self._as_tuned(by_name, self.tuned), self.tuned.report
        if saved := self._as_saved():
            return saved
        if named not in (*by_name, "auto"):
            raise self._unavailable(named)
        accuracy = self._accuracy()
        if named == FP32.name or accuracy is None:
            recipe = by_name[named] if named != "auto" else _unchecked(by_name)
            reason = "asked for" if named != "auto" else "accuracy=None switches the check off"
            return recipe, Report(backend=self.backend.name, chosen=recipe.name, reason=reason)
        report = self._remembered(accuracy, None if named == "auto" else named)
        if named not in ("auto", report.chosen):
            warnings.warn(
                f"{report.reason}. accuracy=None runs {named} all the same; pipe.report has all figures.",
                FallbackWarning,
                stacklevel=5,
            )
        return by_name[report.chosen], report

    def _as_tuned(self, by_name: Mapping[str, Recipe], tuned: Tuned) -> Recipe:
        recipe = by_name.get(tuned.precision)
        if recipe is None or tuned.inputs not in ((), components.names(self.pipe)):
            raise Outdated
        if recipe.calibrated and not self.given:  # it cannot be built again without the data
            found = self.store.find(self._spec_of(recipe).key, then="what fastpipe.tune found is ignored")
            if found is None or "failed" in found.manifest:
                raise Outdated
            self._artifacts[recipe.name] = found
        return recipe

    def _as_saved(self) -> tuple[Recipe, Report] | None:
        """Follow what served when the ready files were saved, where it answers the call.

        A check made elsewhere holds where it was made by the thresholds asked for here, and with the engine and on
        the CPU features that are here. fp32 needs none.
        """
        choice, accuracy = self.shared.choice if self.shared else None, self._accuracy()
        if choice is None or choice.backend != self.backend.name or self.given or accuracy is None:
            return None
        recipe = next((recipe for recipe in self._recipes() if recipe.name == choice.precision), None)
        if recipe is None or self.plan.precision not in ("auto", recipe.name):
            return None
        try:
            report = Report.from_dict(choice.report)
            if recipe.name != FP32.name and not (
                report[recipe.name].passed
                and report.thresholds == asdict(accuracy)
                and choice.isa == self.hardware.isa
                and all(version == registry.version_of(name) for name, version in choice.versions.items())
            ):
                return None
            if recipe.calibrated:
                self.artifact(recipe)
        except (KeyError, TypeError, Outdated) as error:
            _logger.info("the ready files of %s are not followed: %r", self.request.model_id, error)
            return None
        self.follows = True
        return recipe, replace(report, reason=f"as it was saved: {report.reason}")

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
            source = self.artifact(FP32)
            with self.steps.step(f"quantizing for {recipe.name}"):
                return self._quantize(folder, source, recipe)

        return self.store.obtain(spec, export if recipe.weights == FP32.weights else quantize)

    def _taken(self, spec: ArtifactSpec, folder: Path) -> dict[str, Any] | None:
        """Take an artifact from the ready files."""
        return self.shared.take(spec, folder) if self.shared else None

    def _export(self, folder: Path, rows: Sequence[Row]) -> dict[str, Any]:
        return build.export(
            folder,
            model=self.request.torch_model(tokenizer=self.pipe.tokenizer),
            tokenizer=self.pipe.tokenizer,
            task=self.task,
            backend=self.backend,
            threads=self.plan.threads,
            feeds=[row.feed for row in rows],
            beside=rows[0].others() if rows else (),
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
            if (ready := self._taken(spec, folder)) is not None:
                return ready
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

    def _remembered(self, accuracy: Accuracy, named: str | None) -> Report:
        """Give the report of a check with the same question, on the same hardware, or check now."""
        question = {
            "ladder": [asdict(recipe) for recipe in self.ladder],
            "named": named,
            "accuracy": asdict(accuracy),
            "measure": self._measure(),
            "sample": self.given.digest if self.given else samples.digest(self.task),
            "call": [
                self.task.name,
                self.task.sample,
                self.task.parameters,
                code_of(self.request.pipeline_class or type(None)),
            ],
            "hardware": self._machine(),
        }

        def check(folder: Path) -> dict[str, Any]:
            with self.steps.step("checking accuracy"):
                return {"report": self._check(accuracy, named).to_dict()}

        return Report.from_dict(self.store.obtain(replace(self.spec, choice=question), check).facts["report"])

    def _check(self, accuracy: Accuracy, named: str | None) -> Report:
        base = self.artifact(FP32)
        try:
            rows, description = self._sample()
        except (OSError, MemoryError):  # these pass; the report is remembered
            raise
        except Exception as error:
            if self.given:
                raise
            return Report(  # a tokenizer without a mask, a preprocess of the user's own
                backend=self.backend.name,
                chosen=FP32.name,
                reason=f"nothing can be checked: the built-in sample does not go through this pipeline ({error}). "
                "Give calibration_data=.",
            )

        def load(recipe: Recipe) -> tuple[gate.Run, int]:
            artifact = self.artifact(recipe)
            return self._run_of(recipe, artifact), artifact.size_bytes

        return gate.walk(
            self.ladder,
            load,
            gate.Sample(
                rows=rows,
                description=description,
                measure=self._measure(),
                outputs=tuple(base.facts["outputs"]),
                per_token=self.task.per_token,
                padding=Padding(base.facts["padding"]),
                pad_values=pad_values(self.pipe.tokenizer),
                mask_id=getattr(self.pipe.tokenizer, "mask_token_id", None),
                shaped=self.task.modality != "text",
                shared=self.task.shared,
                unit=self.task.sample if self.task.modality != "text" else "texts",
                once=bool(self.task.generates),
            ),
            accuracy,
            backend=self.backend.name,
            named=named,
        )

    def _run_of(self, recipe: Recipe, artifact: Artifact) -> gate.Run:
        run: gate.Run = self.backend.load(artifact.folder, self.settings(recipe)).run
        return run

    def _measure(self) -> str:
        """Refine the task's measure by what the model's head says."""
        if self.task.measure == "labels" and getattr(self.request.config, "num_labels", None) == 1:
            return "order"
        if (
            self.task.measure == "labels"
            and getattr(self.request.config, "problem_type", None) == "multi_label_classification"
        ):
            return "label-sets"
        return self.task.measure

    def _accuracy(self) -> Accuracy | None:
        """Give the thresholds; a single number stands for the figure that the task names first."""
        asked = self.options.accuracy
        if asked is None or isinstance(asked, Accuracy):
            return asked
        usual = ORDER if self._measure() == "order" else self.task.accuracy
        if asked == "auto":
            return usual
        which = "worst" if usual.worst is not None else "agreement"
        return Accuracy(**{which: float(asked)}, instability=usual.instability)

    def _sample(self) -> tuple[list[Feed], str]:
        """Give the rows to compare on, and what they are."""
        if self.given:
            given = self.given.parts()[1]
            rows, description = self._rows(given), f"{len(given)} inputs of the calibration data"
            if not rows:
                raise OptionError(
                    f"calibration_data= gives no rows of {self.task.modality}", remedy="Give inputs of this task."
                )
            return rows, description
        if self.task.modality == "text":
            return samples.texts(self._collector, self.task)
        found = samples.examples(self._collector, self.task)
        return [row.feed for row in found], f"a built-in sample of {len(found)} made-up {self.task.sample}"

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

    def _spec(self) -> ArtifactSpec:
        libraries = {"torch", "transformers", "nncf", *self.backend.libraries, *self._exporters()}
        return ArtifactSpec(
            weights=self.request.digest_of_weights(self.store.digest_of_file),
            config=digest_of_config(self.request.config),
            architecture=str((self.request.config.architectures or [""])[0]),
            task=self.task.export,
            inputs=components.names(self.pipe),
            backend=self.backend.name,
            versions={"fastpipe": __version__, **{name: registry.version_of(name) for name in sorted(libraries)}},
        )


def _unchecked(by_name: dict[str, Recipe]) -> Recipe:
    """Choose for a user who wants no check: int8 as it is by name, else fp32."""
    return by_name.get("int8", FP32)
