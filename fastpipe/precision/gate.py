"""The accuracy gate: run every recipe of the ladder as it would serve, compare it with fp32, choose."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from fastpipe.batching import shapes
from fastpipe.batching.collate import Feed, run_batch
from fastpipe.batching.planner import Limits, Padding, split
from fastpipe.options import Accuracy
from fastpipe.precision.accuracy import MEASURES, Figures, Measure, figures, instability, shortfalls
from fastpipe.precision.recipes import FP32, Recipe, Weights
from fastpipe.precision.report import Candidate, Report

Array: TypeAlias = "np.ndarray[Any, Any]"

# Every fifth row is run alone, and every fifth batch is timed, the longest not among them: enough to see, and short
# beside an export.
_STEP = 5
_PASSES = 2
# A recipe must beat a safer one by more than a measurement on a busy machine is worth.
_FASTER = 1.05
_NO_TOKENS: Array = np.zeros((1, 0), np.int64)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What recipes are compared on, and how its rows run.

    Attributes:
        rows: Inputs of the model by name: arrays whose axis 0 is 1.
        description: What they are, in words.
        measure: Name of the measure.
        outputs: Outputs that the task reads, in order.
        per_token: Whether axis 1 of the outputs counts tokens.
        padding: What the model does with padded rows.
        pad_values: What each input is padded with.
        mask_id: The tokenizer's id of the mask token, if it has one.
        shaped: Whether rows are numbers of some shape, which are never padded, and no tokens.
        shared: Inputs that belong to all rows of a batch.
        unit: What the rows are of, in the plural.
        once: Whether one pass says it all: rows run alone, and take so long that they are not run again for the time.
    """

    rows: Sequence[Feed]
    description: str
    measure: str
    outputs: tuple[str, ...]
    per_token: bool
    padding: Padding
    pad_values: Mapping[str, int]
    mask_id: int | None
    shaped: bool = False
    shared: frozenset[str] = frozenset()
    unit: str = "texts"
    once: bool = False

    def batches(self) -> list[list[int]]:
        """Give the positions of rows that run together."""
        if self.once:
            return [[position] for position in range(len(self.rows))]
        if not self.shaped:
            return split([row["input_ids"].shape[1] for row in self.rows], self.padding, Limits())
        sizes = [shapes.size_of(row, self.shared) for row in self.rows]
        keys = [shapes.key_of(row, self.shared) for row in self.rows]
        return shapes.split(keys, sizes, self.padding, most=shapes.MOST_NUMBERS, rows=shapes.USUAL_ROWS)


Run = Callable[[Feed], Feed]


class Trial:
    """A sample on its way through one recipe: in the batches that serve lists, and row by row as single calls are."""

    def __init__(self, run: Run, sample: Sample) -> None:
        self._run = run
        self._sample = sample
        self._batches = sample.batches()
        self._took: list[float] = []

    def together(self) -> list[Array]:
        """Give each row's reduced outputs, from batches."""
        found = {}
        for batch in self._batches:
            started = time.perf_counter()
            answers = list(self._outputs(batch))
            self._took.append((time.perf_counter() - started) / len(batch))
            found.update({position: self._reduced(position, outputs) for position, outputs in answers})
        return [found[position] for position in range(len(self._sample.rows))]

    def rate(self) -> float:
        """Measure rows per second in some of the batches, long and short, whose shapes `together` has prepared."""
        if self._sample.once:
            return 1 / statistics.median(self._took)
        some = self._batches[1::_STEP] or self._batches
        took = []
        for _ in range(_PASSES):
            started = time.perf_counter()
            for batch in some:
                list(self._outputs(batch))
            took.append(time.perf_counter() - started)
        return sum(map(len, some)) / min(took)

    def alone(self) -> tuple[dict[int, Array], float]:
        """Give some rows' reduced outputs, run alone, by position; and the median seconds of one."""
        if self._sample.once:
            return {}, statistics.median(self._took)
        found, took = {}, []
        for position in range(0, len(self._sample.rows), _STEP):
            started = time.perf_counter()
            outputs = self._run(self._sample.rows[position])
            took.append(time.perf_counter() - started)
            found[position] = self._reduced(position, outputs)
        return found, statistics.median(took)

    def _outputs(self, batch: Sequence[int]) -> Iterable[tuple[int, Feed]]:
        rows = [self._sample.rows[position] for position in batch]
        values, per_token, shared = self._sample.pad_values, self._sample.per_token, self._sample.shared
        return zip(batch, run_batch(self._run, rows, values, per_token=per_token, shared=shared), strict=True)

    def _reduced(self, position: int, outputs: Feed) -> Array:
        ids = self._sample.rows[position].get("input_ids", _NO_TOKENS)
        read = [outputs[name] for name in self._sample.outputs]
        return MEASURES[self._sample.measure].reduce(read, ids, self._sample.mask_id)


def walk(
    ladder: Sequence[Recipe],
    load: Callable[[Recipe], tuple[Run, int]],
    sample: Sample,
    accuracy: Accuracy,
    *,
    backend: str,
    named: str | None = None,
) -> Report:
    """Try recipes, and choose the fastest of those that pass.

    Args:
        ladder: The recipes, fastest first and ever safer, fp32 last.
        load: Builds and loads a recipe: gives what runs a batch, and the bytes of its files.
        sample: What they are compared on.
        accuracy: What they must reach.
        backend: Name of the engine, for the report.
        named: The recipe that the user named; the others are tried only when it does not pass.

    Returns:
        The report. `chosen` is fp32 where nothing else passes.
    """
    started = time.perf_counter()
    measure = MEASURES[sample.measure]
    run, size = load(FP32)
    trial = Trial(run, sample)
    reference = trial.together()
    fp32 = Candidate(recipe=FP32.name, size_bytes=size, rate=trial.rate(), single_s=trial.alone()[1], passed=True)
    found, serving = {FP32.name: fp32}, fp32
    del run, trial  # one recipe at a time is in memory

    def check(recipe: Recipe) -> Candidate:
        """Compare; whoever cannot be chosen any more is not run row by row."""
        run, size = load(recipe)
        trial = Trial(run, sample)
        together = trial.together()
        seen = figures(measure, reference, together)
        candidate = Candidate(recipe=recipe.name, figures=seen, size_bytes=size, rate=trial.rate())
        missed = shortfalls(seen, accuracy)
        if not missed and (recipe.name == named or candidate.rate > _FASTER * serving.rate):
            alone, single_s = trial.alone()
            seen = replace(seen, instability=instability(measure, together, alone))
            candidate = replace(candidate, figures=seen, single_s=single_s)
            missed = shortfalls(seen, accuracy)
        return replace(candidate, passed=not missed, verdict="; ".join(missed))

    def attempt(recipe: Recipe) -> Candidate:
        try:
            return check(recipe)
        except (OSError, MemoryError):  # these pass, and say nothing of the recipe
            raise
        except Exception as error:
            line = (str(error).strip().splitlines() or [""])[0][:200]
            return Candidate(recipe=recipe.name, verdict=f"it does not run: {type(error).__name__}: {line}")

    if named is not None:
        found[named] = serving = attempt(next(recipe for recipe in ladder if recipe.name == named))
    if not serving.passed or named is None:
        serving = fp32
        hopeless: dict[Weights, str] = {}
        for recipe in reversed(ladder):  # safest first: what is coarser than one that failed need not be tried
            if not recipe.automatic or recipe.name in found:
                continue
            if recipe.activation_group and recipe.weights in hopeless:
                verdict = f"not tried: {hopeless[recipe.weights]}, which is safer, did not pass"
                found[recipe.name] = Candidate(recipe=recipe.name, verdict=verdict)
                continue
            candidate = found[recipe.name] = attempt(recipe)
            if not candidate.passed:
                hopeless[recipe.weights] = recipe.name
            elif candidate.rate > _FASTER * serving.rate:
                serving = candidate
    candidates = [found[recipe.name] for recipe in ladder if recipe.name in found]
    chosen = serving.recipe
    return Report(
        backend=backend,
        chosen=chosen,
        reason=_reason(found, chosen, named, measure),
        sample=sample.description,
        agreement=measure.agreement,
        drift=measure.drift,
        headline=measure.headline,
        thresholds=asdict(accuracy),
        candidates=tuple(_judged(candidates, chosen, sample.unit)),
        took_s=round(time.perf_counter() - started, 2),
        unit=sample.unit,
    )


def _judged(candidates: Sequence[Candidate], chosen: str, unit: str) -> Iterable[Candidate]:
    """Add to each candidate why it is used or not."""
    best = next(c for c in candidates if c.recipe == chosen)
    for c in candidates:
        if c.recipe == chosen:
            yield replace(c, verdict="used")
        elif c.verdict:
            yield c
        elif c.recipe == FP32.name:
            yield replace(c, verdict="the reference")
        else:
            rates = f"{_shown(c.rate)} and {_shown(best.rate)} {unit}/s"
            yield replace(c, verdict=f"passed, and is not clearly faster than {chosen} ({rates})")


def _shown(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"


def _reason(found: Mapping[str, Candidate], chosen: str, named: str | None, measure: Measure) -> str:
    """Say in a sentence why a recipe is used, with the figure that counts."""
    if named is not None and chosen != named:
        return f"{named} does not pass the accuracy check ({found[named].verdict}): {chosen} runs instead"
    candidate, others = found[chosen], [c for c in found.values() if c.recipe != FP32.name]
    if candidate.figures is None:
        failed = sum(not c.passed for c in others)
        return f"no recipe is faster here and passes the accuracy check: of {len(others)}, {failed} did not pass"
    level = _headline(candidate.figures, measure)
    speed = f"{candidate.rate / found[FP32.name].rate:.1f}x the speed of fp32"
    if named is not None:
        return f"asked for, and it passes the accuracy check: {level}, {speed}"
    return f"the fastest of {len(found)} recipes that passes the accuracy check: {level}, {speed}"


def _headline(found: Figures, measure: Measure) -> str:
    words = "worst agreement" if measure.headline == "worst" else "agreement"
    return f"{words} {getattr(found, measure.headline):.4f} ({measure.agreement})"
