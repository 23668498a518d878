"""Which recipe serves: artifacts for each, the accuracy check over them, and its remembered answer."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fastpipe.artifacts.spec import code_of
from fastpipe.artifacts.store import Artifact
from fastpipe.backends import registry
from fastpipe.batching.collate import Feed, pad_values
from fastpipe.batching.planner import Padding
from fastpipe.errors import ExportError, FallbackWarning, FetchError, OptionError, UnsafeFileError
from fastpipe.options import Accuracy
from fastpipe.pipelines import components, samples
from fastpipe.pipelines.building import Building
from fastpipe.pipelines.tuned import Outdated, Tuned
from fastpipe.precision import gate
from fastpipe.precision.recipes import FP32, Recipe
from fastpipe.precision.report import Candidate, Report
from fastpipe.tasks import ORDER

_logger = logging.getLogger(__name__)


class Selection(Building):
    """The recipes of one model on one engine; what it is made of is said in `Building`."""

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
            str(report)  # what cannot be shown is no report
            if recipe.name != FP32.name and not (
                report[recipe.name].passed
                and report.thresholds == asdict(accuracy)
                and choice.isa == self.hardware.isa
                and all(version == registry.version_of(name) for name, version in choice.versions.items())
            ):
                return None
            if recipe.calibrated:
                self.artifact(recipe)
        except (KeyError, TypeError, ValueError, AttributeError, Outdated) as error:
            _logger.info("the ready files of %s are not followed: %r", self.request.model_id, error)
            return None
        self.follows = True
        return recipe, replace(report, reason=f"as it was saved: {report.reason}")

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
            for recipe in self.ladder:
                if recipe.weights.origin:  # whether it comes is no answer to remember
                    with contextlib.suppress(ExportError, UnsafeFileError):
                        self.artifact(recipe)
            with self.steps.step("checking accuracy"):
                return {"report": self._check(accuracy, named).to_dict()}

        try:
            return Report.from_dict(self.store.obtain(replace(self.spec, choice=question), check).facts["report"])
        except FetchError as error:
            lost = self.leave_ready(error)
            if not lost:
                raise
            report = self._remembered(accuracy, named)
            return replace(report, candidates=(*lost, *report.candidates))

    def leave_ready(self, error: FetchError) -> tuple[Candidate, ...]:
        """Go on without what others have made, which does not come; give that as the report says it."""
        lost = [recipe for recipe in self.ladder if recipe.weights.origin]
        self.ladder = [recipe for recipe in self.ladder if recipe not in lost]
        return tuple(Candidate(recipe=r.name, verdict=f"it does not run: FetchError: {error}") for r in lost)

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


def _unchecked(by_name: dict[str, Recipe]) -> Recipe:
    """Choose for a user who wants no check: int8 as it is by name, else fp32."""
    return by_name.get("int8", FP32)
