"""`tune()`: every engine and recipe that passes the accuracy check, timed on the user's own inputs and remembered."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from fastpipe import contest, factory
from fastpipe.artifacts.store import Store
from fastpipe.backends import registry
from fastpipe.contest import Contender, Tuning
from fastpipe.errors import FallbackWarning, OptionError
from fastpipe.hardware import Hardware, detect_hardware
from fastpipe.options import Options
from fastpipe.pipelines import components
from fastpipe.pipelines import request as requests
from fastpipe.pipelines.generators.model import GeneratorModel
from fastpipe.pipelines.model import EngineModel
from fastpipe.pipelines.request import Request
from fastpipe.pipelines.tuned import Tuned, question
from fastpipe.plan import Engine, Plan
from fastpipe.precision import calibration
from fastpipe.precision.calibration import Calibration
from fastpipe.precision.report import Report
from fastpipe.tasks import TASKS
from fastpipe.timing import side_by_side

_DTYPES = ("dtype", "torch_dtype")


def tune(pipe: Any, samples: Any, *, seconds: float = 60.0, **parameters: Any) -> Tuning:
    """Choose engine and recipe for a model by measuring on the user's own inputs, and remember the choice.

    Every installed engine that takes the model goes through the accuracy check on the samples, by the task's own
    thresholds. The most promising recipes that pass, and torch, then run lists of the samples in turns. The choice is
    kept in the cache: from then on `fastpipe.pipeline()` follows it for this model on this machine, unless it is told
    a backend or a precision that disagrees, a dtype, thresholds or calibration data. No sample is kept.

    Args:
        pipe: A pipeline that `fastpipe.pipeline` made; it stays as it is.
        samples: Inputs that stand for the user's, as for `calibration_data=`: up to 256 of them are drawn.
        seconds: What the timing at the end may take. Exports and checks come before it, and are made once.
        parameters: Arguments of the timed calls, as in `pipe(samples, top_k=None)`.

    Raises:
        OptionError: `pipe` is not from `fastpipe.pipeline`, only torch takes it, or there are no samples.
        InputError: A sample cannot be processed.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        raise OptionError(f"seconds={seconds!r} is not a positive number", remedy="Leave it out, or use 60.")
    origin, cache_dir = _origin(pipe)
    given = read(samples)
    started = time.perf_counter()
    hardware = detect_hardware()
    request = requests.resolve(_without_dtype(origin.arguments))
    workshop = _Workshop(request=request, hardware=hardware, given=given, cache_dir=cache_dir)
    contenders: dict[str, Contender] = {}
    reports: dict[str, Report] = {}
    for engine in registry.engines(hardware):
        if engine.name != "torch":
            found, reports[engine.name] = workshop.check(engine)
            contenders.update({one.name: one for one in found})
    pipes: dict[str, Any] = {}
    for one in contest.finalists(list(contenders.values())):
        contenders[one.name], reports[one.backend] = workshop.complete(one, reports[one.backend])
        if contenders[one.name].passed:
            built = workshop.build(one, reports[one.backend])
            if (built.plan.backend, built.plan.precision) == (one.backend, one.precision):  # else it was lost meanwhile
                pipes[one.name] = built
    on_torch = workshop.make("torch")
    reports["torch"] = on_torch.report
    torch = Contender(backend="torch", precision=on_torch.plan.precision, passed=True)
    contenders[torch.name], pipes[torch.name] = torch, on_torch

    said = {**workshop.defaults(), **parameters}
    timings = side_by_side(
        {name: partial(call, one, parameters=said) for name, one in pipes.items()}, given.items, budget_s=seconds
    )
    chosen, ranked = contest.ranked(list(contenders.values()), timings)
    ready, count = pipes[chosen.name], len(given.items)
    tuned = Tuned(
        backend=chosen.backend,
        precision=chosen.precision,
        inputs=components.names(ready),
        calibration=given.digest,
        reason=f"tuned on {count} inputs: {contest.figure(chosen.rate)} samples/s, {chosen.reason}",
        others=contest.others(ranked, chosen, count),
        report=contest.judged(reports[chosen.backend], chosen.precision, count),
    )
    tuned.explain(ready)
    tuning = Tuning(
        task=request.task_name,
        samples=count,
        chosen=chosen,
        contenders=tuple(ranked),
        took_s=round(time.perf_counter() - started, 2),
        pipe=ready,
    )
    kept = {"choice": tuned.to_dict(), "tuning": tuning.to_dict()}
    store = Store(cache_dir)
    store.replace(question(request, hardware, store), lambda folder: kept)
    return tuning


@dataclass(frozen=True, kw_only=True)
class _Workshop:
    """Makes pipelines of one model: those to check, and those to time."""

    request: Request
    hardware: Hardware
    given: Calibration
    cache_dir: Path | None

    def make(self, backend: str, precision: str = "auto", tuned: Tuned | None = None) -> Any:
        own = Options(backend=backend, precision=precision, cache_dir=self.cache_dir)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)  # what does not pass is in the table
            return factory.make(self.request, own, precision, self.hardware, "cpu", self.given, tuned)

    def check(self, engine: Engine) -> tuple[list[Contender], Report]:
        """Take an engine through the accuracy check: give its recipes, or why it has none."""
        out = partial(Contender, backend=engine.name, precision="", passed=False)
        none = Report(backend=engine.name, chosen="", reason="")
        if not engine.version:
            return [out(reason=f"not installed: {engine.remedy}")], none
        pipe = self.make(engine.name)
        if pipe.plan.backend != engine.name:
            return [out(reason=next(c.reason for c in pipe.plan.rejected if c.value == engine.name))], none
        return contest.entrants(engine, pipe.report), pipe.report

    def complete(self, one: Contender, report: Report) -> tuple[Contender, Report]:
        """Complete the check of a recipe that was not run row by row, as the check did not want it."""
        figures = report[one.precision].figures
        wanted = report.thresholds.get("instability")
        if figures is None or wanted is None or figures.instability is not None:
            return one, report
        alone = self.make(one.backend, one.precision).report
        complete = alone[one.precision]
        candidates = tuple(complete if c.recipe == one.precision else c for c in report.candidates)
        reason = "" if alone.chosen == one.precision else complete.verdict
        return replace(one, passed=not reason, reason=reason), replace(report, candidates=candidates)

    def build(self, one: Contender, report: Report) -> Any:
        """Make the pipeline that would serve, in the way in which the next construction will make it."""
        digest = self.given.digest
        choice = Tuned(backend=one.backend, precision=one.precision, calibration=digest, report=report)
        return self.make(one.backend, tuned=choice)

    def defaults(self) -> dict[str, Any]:
        """Give what a call of this task needs where the user did not say it."""
        known = defaults(self.request.task_name)
        return {name: value for name, value in known.items() if name not in self.request.arguments}


def _origin(pipe: Any) -> tuple[Request, Path | None]:
    """Find what a pipeline was made from, and the folder of its artifacts."""
    model, plan = getattr(pipe, "model", None), getattr(pipe, "plan", None)
    if not isinstance(plan, Plan):
        raise OptionError(
            f"{type(pipe).__name__} is not from fastpipe.pipeline()", remedy="Give fastpipe.tune a pipeline that is."
        )
    if isinstance(model, EngineModel):
        return model.request, model.cache_dir
    request = getattr(pipe, "_request", None)
    if isinstance(model, GeneratorModel):
        raise OptionError("tune() compares no models that generate", remedy="pipe.report has their figures.")
    if request is None:
        raise OptionError("no engine takes this task or this model", remedy="Torch runs it: there is nothing to tune.")
    if not plan.device.startswith("cpu"):
        raise OptionError(f"this pipeline is on {plan.device}", remedy="Engines run on the CPU: say device='cpu'.")
    return request, pipe._cache_dir


def read(samples: Any) -> Calibration:
    """Draw the inputs to measure on, as `calibration.read` does, and speak of samples.

    Raises:
        OptionError: There are none, or they are no inputs.
    """
    try:
        return calibration.read(samples)
    except OptionError as error:  # it speaks of the option of pipeline()
        fact = error.fact.removeprefix("calibration_data")
        raise OptionError(f"samples{fact}" if fact != error.fact else fact, remedy=error.remedy) from error


def _without_dtype(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what would decide the precision."""
    found = {name: value for name, value in arguments.items() if name not in _DTYPES}
    if found.get("model_kwargs"):
        found["model_kwargs"] = {n: value for n, value in found["model_kwargs"].items() if n not in _DTYPES}
    return found


def defaults(task_name: str) -> dict[str, Any]:
    """Give what a call of a task needs where the user did not say it."""
    return dict(TASKS[task_name].parameters) if task_name in TASKS else {}


def call(pipe: Any, items: Sequence[Any], parameters: Mapping[str, Any]) -> None:
    """Run inputs as a user would: as one list where the task takes them so."""
    known = TASKS.get(pipe.task)
    if not isinstance(items[0], Mapping) or "text" in items[0] or (known and known.modality != "text"):
        pipe(list(items), **parameters)
    elif pipe.task == "question-answering":
        pipe(**{name: [item[name] for item in items] for name in ("question", "context")}, **parameters)
    else:
        for item in items:
            pipe(**{**parameters, **item})
