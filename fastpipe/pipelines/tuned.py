"""What tuning found to be fastest for a model on this machine: remembered in the cache, found before planning."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fastpipe import plan
from fastpipe._version import __version__
from fastpipe.artifacts.spec import ArtifactSpec, code_of, digest_of_config
from fastpipe.artifacts.store import Store
from fastpipe.backends import registry
from fastpipe.errors import CacheWarning
from fastpipe.hardware import Hardware
from fastpipe.options import Options
from fastpipe.pipelines.request import Request
from fastpipe.precision.report import Report

_IGNORED = "what fastpipe.tune found is ignored; call it again"


class Outdated(Exception):  # noqa: N818 - it is no error, and no user sees it
    """A remembered choice does not hold any more."""


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """One choice of an engine and a recipe.

    Attributes:
        backend: Name of the engine.
        precision: Name of the recipe.
        calibration: Digest of the samples, with which a calibrated recipe's artifact is found again.
        report: The accuracy check on the samples.
        inputs: What the tokenizer gave the model; empty while that does not matter.
        reason: Why this engine, for the plan.
        others: Why not, by engine, for the plan.
    """

    backend: str
    precision: str
    calibration: str
    report: Report
    inputs: tuple[str, ...] = ()
    reason: str = ""
    others: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Give the record as plain values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Tuned:
        """Make a record of what `to_dict` gave.

        Raises:
            KeyError, TypeError: These are not its values.
        """
        return cls(**{**values, "inputs": tuple(values["inputs"]), "report": Report.from_dict(values["report"])})

    def explain(self, pipe: Any) -> None:
        """Say in a pipeline's plan and report why it runs what it runs."""
        found = pipe.plan
        if self.backend != "torch":
            found = plan.decided(found, self.precision, self.report.reason, found.streams)
        pipe.plan, pipe.report = plan.as_tuned(found, self.reason, self.others), self.report


def question(request: Request, hardware: Hardware, store: Store) -> ArtifactSpec:
    """Say which choice it is: of a model for a task on this machine, among engines in their versions.

    The same whatever engine is chosen. What the model's own tokenizer gives is not known before a pipeline is there: it
    is in the record.
    """
    backends = [registry.load(name) for name in registry.known()]
    built_with = {name for backend in backends for name in (*backend.libraries, *backend.exporters())}
    tokenizer = request.arguments.get("tokenizer")
    return ArtifactSpec(
        weights=request.digest_of_weights(store.digest_of_file),
        config=digest_of_config(request.config),
        architecture=str((request.config.architectures or [""])[0]),
        task=request.task_name,
        inputs=tuple(getattr(tokenizer, "model_input_names", ())),
        backend="",
        versions={
            "fastpipe": __version__,
            **{name: registry.version_of(name) for name in sorted({"torch", "transformers", "nncf", *built_with})},
        },
        choice={
            "tuned": [code_of(request.pipeline_class or type(None))],
            "machine": [hardware.cpu_model, hardware.isa, hardware.cores],
        },
    )


def find(
    request: Request, options: Options, precision: str | None, hardware: Hardware, engines: Sequence[plan.Engine]
) -> Tuned | None:
    """Give what tuning found, where it answers the call.

    It does when the user left thresholds and calibration data open, and named no other engine and no other precision.
    The weights are digested only where an engine would be asked for next, which digests them too.

    Args:
        request: The resolved call.
        options: What the user said to us.
        precision: The precision they named, by any name.
        hardware: What this machine has; the pipeline will be on its CPU.
        engines: The backends.
    """
    wanted = precision or "auto"
    able = [
        engine.name
        for engine in engines
        if engine.version
        and engine.name != "torch"
        and options.backend in ("auto", engine.name)
        and wanted in ("auto", *engine.precisions)
    ]
    is_open = options.accuracy == "auto" and options.calibration_data is None
    if not (is_open and able and request.task) or request.obstacle:
        return None
    store = Store(options.cache_dir)
    found = store.find(question(request, hardware, store).key, then=_IGNORED)
    if found is None:
        return None
    try:
        tuned = Tuned.from_dict(found.facts["choice"])
    except (KeyError, TypeError) as error:
        warnings.warn(f"{found.folder}: its record is damaged ({error!r}); {_IGNORED}", CacheWarning)
        return None
    agrees = options.backend in ("auto", tuned.backend) and wanted in ("auto", tuned.precision)
    return tuned if agrees and tuned.backend in (*able, "torch") else None
