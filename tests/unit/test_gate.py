"""The accuracy gate, over engines that are made up: what it chooses, what it says, and what it holds in memory."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fastpipe.batching.planner import Padding
from fastpipe.options import Accuracy
from fastpipe.precision import gate
from fastpipe.precision.accuracy import MEASURES
from fastpipe.precision.recipes import FP32, Recipe, Weights
from fastpipe.precision.report import Report

LADDER = (
    Recipe(name="int4", weights=Weights(method="compressed", bits=4), automatic=False),
    Recipe(name="int8-static", weights=Weights(method="static")),
    Recipe(name="int8", weights=Weights(method="compressed")),
    Recipe(name="bf16", compute="bf16"),
    FP32,
)
WANTED = Accuracy(agreement=0.98, drift=0.1, instability=0.02)
MEASURED_RATE = gate.Trial.rate  # the tests patch it


@cache
def _logits(ids: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(np.random.default_rng(ids).normal(0, 2, 3).tolist())


def logits(ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Three scores for each row, by its own ids alone: padding does not count."""
    return np.array([_logits(tuple(row[row != 0].tolist())) for row in ids], np.float32)


Change = Callable[[Any, Any], Any]


def exact(scores, ids):
    return scores


def close(scores, ids):
    return scores * np.float32(1.01)


def wrong(scores, ids):
    return scores[:, ::-1]


def loud(scores, ids):
    return scores * 3  # the same labels, other probabilities


def swayed(scores, ids):
    return scores * np.float32(1 + 0.05 * (len(ids) - 1))  # the same labels; by how much depends on the batch


def neighbourly(scores, ids):
    """One scale for the whole batch, as an engine that quantizes activations by tensor."""
    scale = np.abs(scores).max() / 3
    return np.round(scores / scale) * scale


def not_a_number(scores, ids):
    return np.full_like(scores, np.nan)


def partly_not_a_number(scores, ids):
    return np.where(ids[:, :1] % 4 == 0, np.float32(np.nan), scores)


def raising(error: BaseException) -> Change:
    def change(scores, ids):
        raise error

    return change


class Engine:
    """Runs a batch, at a speed that the test says."""

    def __init__(self, speed: float, change: Change = exact) -> None:
        self.speed = speed
        self.change = change

    def __call__(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        return {"logits": self.change(logits(feed["input_ids"]), feed["input_ids"])}


def rows(lengths: Any) -> list[dict[str, Any]]:
    random = np.random.default_rng(0)
    return [{"input_ids": random.integers(1, 100, (1, length))} for length in lengths]


SAMPLE = gate.Sample(
    rows=rows(np.random.default_rng(1).permutation([*range(1, 13)] * 4)),
    description="48 made-up rows",
    measure="labels",
    outputs=("logits",),
    per_token=False,
    padding=Padding.NEUTRAL,
    pad_values={"input_ids": 0},
    mask_id=None,
)


@pytest.fixture(autouse=True)
def _no_clock(monkeypatch):
    monkeypatch.setattr(gate.Trial, "rate", lambda self: self._run.speed)


def walk(
    engines: Mapping[str, Any],
    *,
    named: str | None = None,
    accuracy: Accuracy = WANTED,
    sample: gate.Sample = SAMPLE,
    tried: list[str] | None = None,
    fp32: Any = (10,),
) -> Report:
    """Walk the ladder of the recipes given: (speed, change) by name."""
    table = {**engines, "fp32": fp32}

    def load(recipe: Recipe) -> tuple[gate.Run, int]:
        if tried is not None:
            tried.append(recipe.name)
        if isinstance(table[recipe.name], BaseException):
            raise table[recipe.name]
        return Engine(*table[recipe.name]), 1000 * len(recipe.name)

    ladder = [recipe for recipe in LADDER if recipe.name in table]
    return gate.walk(ladder, load, sample, accuracy, backend="made-up", named=named)


@pytest.mark.parametrize(
    ("engines", "chosen"),
    [
        ({}, "fp32"),
        ({"int8": (20,)}, "int8"),
        ({"int8-static": (40,), "int8": (20,), "bf16": (15,)}, "int8-static"),
        ({"int8-static": (20,), "int8": (40,), "bf16": (15,)}, "int8"),
        ({"int8-static": (15,), "int8": (20,), "bf16": (40,)}, "bf16"),
        ({"int8-static": (40, close), "int8": (20,)}, "int8-static"),
        # What is fastest is stepped over where it does not pass.
        ({"int8-static": (40, wrong), "int8": (20,)}, "int8"),
        ({"int8-static": (40, loud), "int8": (20,)}, "int8"),
        ({"int8-static": (40, swayed), "int8": (20,)}, "int8"),
        ({"int8-static": (40, not_a_number), "int8": (20,)}, "int8"),
        ({"int8-static": (40, partly_not_a_number), "int8": (20,)}, "int8"),
        ({"int8-static": (40, wrong), "int8": (30, swayed), "bf16": (20, close)}, "bf16"),
        ({"int8-static": (40, wrong), "int8": (30, loud), "bf16": (20, swayed)}, "fp32"),
        ({"int8-static": (20,), "int8": (40, wrong)}, "int8-static"),
        # Of two that are as fast within 5 %, the safer.
        ({"int8-static": (20.9,), "int8": (20,)}, "int8"),
        ({"int8-static": (21.1,), "int8": (20,)}, "int8-static"),
        ({"int8-static": (20,), "int8": (20,), "bf16": (20,)}, "bf16"),
        ({"int8-static": (20.9,), "int8": (20, wrong)}, "int8-static"),
        ({"int8-static": (20.9,), "int8": (20, swayed)}, "int8-static"),
        # fp32 where nothing is faster.
        ({"int8": (9,)}, "fp32"),
        ({"int8": (10,)}, "fp32"),
        ({"int8": (10.4,)}, "fp32"),
        ({"int8": (10.6,)}, "int8"),
        # One that is not automatic is not considered.
        ({"int4": (90,), "int8": (20,)}, "int8"),
        ({"int4": (90,)}, "fp32"),
    ],
)
def test_the_fastest_that_passes_is_chosen(engines, chosen):
    report = walk(engines)
    assert report.chosen == chosen
    assert report[chosen].passed
    assert report[chosen].verdict == "used"
    assert [c.verdict for c in report.candidates].count("used") == 1


@pytest.mark.parametrize("bad", [wrong, loud, swayed, not_a_number, partly_not_a_number, neighbourly])
def test_a_gate_that_lets_all_pass_would_choose_otherwise(monkeypatch, bad):
    engines = {"int8-static": (40, bad), "int8": (20, close)}
    assert walk(engines).chosen == "int8"
    monkeypatch.setattr(gate, "shortfalls", lambda found, wanted: [])
    assert walk(engines).chosen == "int8-static"


@pytest.mark.parametrize(
    "rates",
    [
        (20, 20, 20),
        (10, 10, 10),
        (10.4, 10, 10.4),
        (10, 10.8, 10.4),  # each within 5 % of the one before, the last 8 % above fp32
        (10.8, 10.4, 10),
        (11.2, 10.8, 10.4),
        (11.5, 11, 10.6),
        (10.5, 10.5, 10),
        (105, 100, 20),
        (100, 105, 20),
    ],
)
def test_what_is_chosen_was_run_row_by_row(rates):
    names = ("int8-static", "int8", "bf16")
    report = walk({name: (rate,) for name, rate in zip(names, rates, strict=True)})
    assert report.chosen == "fp32" or report[report.chosen].figures.instability == 0
    for unstable in names:
        changes = [swayed if name == unstable else exact for name in names]
        engines = dict(zip(names, zip(rates, changes, strict=True), strict=True))
        assert walk(engines, accuracy=Accuracy(instability=0.02)).chosen != unstable


@pytest.mark.parametrize(
    ("change", "accuracy", "words"),
    [
        (wrong, Accuracy(agreement=0.98), ("agreement 0.", "at least 0.98")),
        (wrong, Accuracy(worst=1), ("worst agreement 0,", "at least 1")),
        (loud, WANTED, ("drift 0.", "at most 0.1")),
        (loud, Accuracy(drift=0.2), ("drift 0.", "at most 0.2")),
        (swayed, Accuracy(agreement=0.98, instability=0.02), ("instability 0.", "at most 0.02")),
        (not_a_number, WANTED, ("no numbers",)),
    ],
)
def test_the_verdict_holds_the_figure_and_the_limit(change, accuracy, words):
    report = walk({"int8-static": (40, change), "int8": (20,)}, accuracy=accuracy)
    assert report.chosen == "int8"
    assert not report["int8-static"].passed
    for word in words:
        assert word in report["int8-static"].verdict


@pytest.mark.parametrize("change", [swayed, neighbourly])
def test_a_result_that_depends_on_batch_mates_is_unstable(change):
    only = Accuracy(agreement=0, instability=0.02)
    report = walk({"int8": (20, change)}, accuracy=only)
    assert report.chosen == "fp32"
    assert report["int8"].figures.instability > 0.02
    assert report["int8"].verdict.startswith("instability")
    alone = replace(SAMPLE, padding=Padding.SINGLE)  # no batch-mates, nothing to depend on
    report = walk({"int8": (20, change)}, accuracy=only, sample=alone)
    assert report.chosen == "int8"
    assert report["int8"].figures.instability == 0


def surely_first(change: Change) -> Change:
    """The first label always wins, which is what `argmax` says of numbers that are none, too."""
    return lambda scores, ids: change(scores + np.array([50, 0, 0], np.float32), ids)


@pytest.mark.parametrize("bad", [not_a_number, partly_not_a_number])
@pytest.mark.parametrize(
    "accuracy",
    [WANTED, Accuracy(agreement=0.9), Accuracy(worst=0.9), Accuracy(drift=1), Accuracy(instability=1)],
    ids=["all", "agreement", "worst", "drift", "instability"],
)
@pytest.mark.parametrize("named", [None, "int8"])
def test_what_is_no_number_never_passes(bad, accuracy, named):
    engines = {"int8": (20, surely_first(bad))}
    report = walk(engines, accuracy=accuracy, named=named, fp32=(10, surely_first(exact)))
    assert report.chosen == "fp32"
    assert not report["int8"].passed


@pytest.mark.parametrize("measure", ["label-sets", "order", "embeddings"])
def test_what_is_no_number_never_passes_by_other_measures(measure):
    sample = replace(SAMPLE, measure=measure)
    if measure == "embeddings":
        sample = replace(sample, per_token=True)

    def shaped(change):
        if measure == "order":
            return lambda scores, ids: change(scores[:, :1], ids)
        if measure == "embeddings":
            return lambda scores, ids: np.repeat(change(scores, ids)[:, None], ids.shape[1], axis=1)
        return lambda scores, ids: change(-np.abs(scores), ids)  # every label is off

    fp32 = (10, shaped(exact))
    accuracy = Accuracy(agreement=0.9, drift=None if measure == "label-sets" else 0.4, instability=0.05)
    for bad in (not_a_number, partly_not_a_number):
        report = walk({"int8": (20, shaped(bad))}, accuracy=accuracy, sample=sample, fp32=fp32)
        assert report.chosen == "fp32"
    assert walk({"int8": (20, shaped(exact))}, accuracy=accuracy, sample=sample, fp32=fp32).chosen == "int8"


@pytest.mark.parametrize("at", ["load", "run"])
@pytest.mark.parametrize("error", [ValueError("no operator X\nand more"), RuntimeError(""), KeyError("x")])
def test_a_recipe_that_does_not_run_is_reported_and_not_chosen(at, error):
    broken = error if at == "load" else (40, raising(error))
    report = walk({"int8-static": broken, "int8": (20,)})
    assert report.chosen == "int8"
    found = report["int8-static"]
    assert (found.passed, found.figures, found.rate) == (False, None, 0)
    assert f"it does not run: {type(error).__name__}" in found.verdict
    assert "\n" not in found.verdict
    assert "and more" not in found.verdict
    if isinstance(error, ValueError):
        assert "no operator X" in found.verdict


@pytest.mark.parametrize("at", ["load", "run"])
@pytest.mark.parametrize("error", [MemoryError, OSError, FileNotFoundError, KeyboardInterrupt])
@pytest.mark.parametrize("named", [None, "int8-static"])
def test_what_passes_and_says_nothing_of_the_recipe_is_raised(at, error, named):
    with pytest.raises(error):
        walk({"int8-static": error() if at == "load" else (40, raising(error())), "int8": (20,)}, named=named)


@pytest.mark.parametrize("at", ["load", "run"])
def test_without_fp32_there_is_nothing_to_compare_with(at):
    error = ValueError("no operator X")
    tried: list[str] = []
    with pytest.raises(ValueError, match="no operator X"):
        walk({"int8": (20,)}, fp32=error if at == "load" else (10, raising(error)), tried=tried)
    assert tried == ["fp32"]


@pytest.mark.parametrize("speed", [90, 10, 5])
@pytest.mark.parametrize("named", ["int4", "int8", "bf16"])
def test_one_that_was_named_and_passes_is_used_and_nothing_else_is_tried(named, speed):
    tried: list[str] = []
    engines = {"int4": (30,), "int8-static": (40,), "int8": (30,), "bf16": (30,), named: (speed, close)}
    report = walk(engines, named=named, tried=tried)
    assert tried == ["fp32", named]
    assert report.chosen == named
    assert [c.recipe for c in report.candidates] == [named, "fp32"]
    assert report[named].verdict == "used"
    assert report[named].figures.instability is not None
    assert "asked for" in report.reason
    assert f"{speed / 10:.1f}x" in report.reason
    assert "agreement 1.0000" in report.reason


@pytest.mark.parametrize(
    ("bad", "figure"),
    [
        (wrong, "agreement 0."),
        (loud, "drift 0."),
        (swayed, "drift 0."),
        (raising(ValueError("no X")), "ValueError: no X"),
    ],
)
def test_where_the_one_named_does_not_pass_the_others_are_tried(bad, figure):
    tried: list[str] = []
    report = walk({"int4": (99, bad), "int8-static": (40, wrong), "int8": (20,)}, named="int4", tried=tried)
    assert sorted(tried) == sorted(["fp32", "int4", "int8-static", "int8"])
    assert report.chosen == "int8"
    assert report.reason.startswith("int4 does not pass")
    assert figure in report.reason
    assert "int8 runs instead" in report.reason


def test_where_the_one_named_is_slow_and_unstable_it_is_not_used():
    report = walk({"int8": (5, swayed)}, named="int8", accuracy=Accuracy(agreement=0.98, instability=0.02))
    assert report.chosen == "fp32"
    assert "instability 0." in report.reason
    assert "fp32 runs instead" in report.reason


def test_where_the_one_named_does_not_pass_no_other_that_is_there_for_the_asking_is_tried():
    tried: list[str] = []
    report = walk({"int4": (99,), "int8": (20, wrong), "bf16": (15,)}, named="int8", tried=tried)
    assert tried == ["fp32", "int8", "bf16"]
    assert report.chosen == "bf16"


def test_the_report_says_all_that_was_found():
    report = walk({"int8-static": (40, wrong), "int8": (20, close), "bf16": (12,)})
    assert [c.recipe for c in report.candidates] == ["int8-static", "int8", "bf16", "fp32"]
    assert (report.backend, report.sample) == ("made-up", "48 made-up rows")
    assert (report.agreement, report.drift) == (MEASURES["labels"].agreement, MEASURES["labels"].drift)
    assert report.headline == "agreement"
    assert report.thresholds == {"agreement": 0.98, "worst": None, "drift": 0.1, "instability": 0.02}
    assert [c.rate for c in report.candidates] == [40, 20, 12, 10]
    assert [c.size_bytes for c in report.candidates] == [11000, 4000, 4000, 4000]
    assert [c.passed for c in report.candidates] == [False, True, True, True]
    assert "of 4 recipes" in report.reason
    assert "2.0x" in report.reason
    assert "agreement 1.0000" in report.reason
    assert "not clearly faster than int8 (12 and 20 texts/s)" in report["bf16"].verdict
    assert report["fp32"].verdict == "the reference"
    assert report["fp32"].figures is None
    assert Report.from_dict(report.to_dict()) == report


def test_the_report_says_why_fp32_is_used():
    report = walk({"int8-static": (40, wrong), "int8": (30, loud), "bf16": (9,)})
    assert report.chosen == "fp32"
    assert "of 3, 2 did not pass" in report.reason
    assert "not clearly faster than fp32" in report["bf16"].verdict


def test_the_headline_of_the_measure_is_the_figure_of_the_reason():
    sample = replace(SAMPLE, measure="embeddings", per_token=True)
    spread = lambda scores, ids: np.repeat(scores[:, None], ids.shape[1], axis=1)  # noqa: E731
    report = walk({"int8": (20, spread)}, sample=sample, fp32=(10, spread), accuracy=Accuracy(worst=0.98))
    assert report.chosen == "int8"
    assert "worst agreement 1.0000" in report.reason


def test_only_what_can_still_be_chosen_is_run_row_by_row():
    report = walk({"int8-static": (15,), "int8": (30,), "bf16": (20, wrong)})
    assert report["int8-static"].figures.instability is None  # it is slower than another that passed
    assert report["int8"].figures.instability == 0
    assert report["bf16"].figures.instability is None  # another figure had decided


FAMILY = (
    Recipe(name="int8-static", weights=Weights(method="static")),
    Recipe(name="int8-token", weights=Weights(method="compressed"), activation_group=-1),
    Recipe(name="int8-g128", weights=Weights(method="compressed"), activation_group=128),
    Recipe(name="int8", weights=Weights(method="compressed"), activation_group=32),
    FP32,
)


@pytest.mark.parametrize("bad", [wrong, loud, swayed, not_a_number])
@pytest.mark.parametrize(
    ("failing", "tried", "chosen"),
    [
        ((), {"int8", "int8-g128", "int8-token"}, "int8-token"),
        (("int8-token",), {"int8", "int8-g128", "int8-token"}, "int8-g128"),
        (("int8-g128",), {"int8", "int8-g128"}, "int8"),
        (("int8",), {"int8"}, "int8-static"),
    ],
)
def test_what_is_coarser_than_one_that_failed_on_the_same_weights_is_not_tried(bad, failing, tried, chosen):
    table = {"int8-static": 20, "int8-token": 60, "int8-g128": 50, "int8": 40, "fp32": 10}
    loaded: list[str] = []

    def load(recipe):
        loaded.append(recipe.name)
        return Engine(table[recipe.name], bad if recipe.name in failing else exact), 1

    report = gate.walk(FAMILY, load, SAMPLE, WANTED, backend="made-up")
    assert sorted(loaded) == sorted({"fp32", "int8-static", *tried})  # each one once
    assert report.chosen == chosen
    for recipe in {"int8", "int8-g128", "int8-token"} - tried:
        assert (report[recipe].passed, report[recipe].figures) == (False, None)
        assert "not tried" in report[recipe].verdict
        assert failing[0] in report[recipe].verdict
    assert [c.recipe for c in report.candidates] == [recipe.name for recipe in FAMILY]


def guarded(padding: Padding) -> Change:
    """Refuses the batches that a model with this padding does not take."""

    def change(scores, ids):
        assert padding is not Padding.SINGLE or len(ids) == 1
        assert padding is not Padding.EQUAL_LENGTHS or (ids != 0).all()
        return scores

    return change


@pytest.mark.parametrize("padding", list(Padding))
@pytest.mark.parametrize("seed", range(3))
def test_each_row_is_compared_with_itself(padding, seed):
    order = np.random.default_rng(seed).permutation(len(SAMPLE.rows))
    sample = replace(SAMPLE, rows=[SAMPLE.rows[position] for position in order], padding=padding)
    trial = gate.Trial(Engine(1, guarded(padding)), sample)
    together, (alone, _) = trial.together(), trial.alone()
    assert len(together) == len(sample.rows)
    for row, found in zip(sample.rows, together, strict=True):
        scores = np.exp(logits(row["input_ids"])[0])
        assert found == pytest.approx(scores / scores.sum(), abs=1e-5)
    assert sorted(alone) == list(range(0, len(sample.rows), 5))
    assert all((together[position] == found).all() for position, found in alone.items())
    report = walk({"int8": (20, guarded(padding))}, sample=sample, fp32=(10, guarded(padding)))
    found = report["int8"].figures
    assert (found.agreement, found.worst, found.drift, found.instability) == (1, 1, 0, 0)


def test_rows_do_run_in_batches_and_the_longest_first():
    shapes: list[tuple[int, ...]] = []
    trial = gate.Trial(Engine(1, lambda scores, ids: shapes.append(ids.shape) or scores), SAMPLE)
    trial.together()
    assert sum(count for count, _ in shapes) == len(SAMPLE.rows)
    assert len(shapes) < len(SAMPLE.rows) / 2
    assert [tokens for _, tokens in shapes] == sorted((tokens for _, tokens in shapes), reverse=True)


def test_what_an_engine_writes_on_padding_is_not_compared():
    def by_token(scores, ids):
        found = np.repeat(scores[:, None], ids.shape[1], axis=1)
        return np.where((ids == 0)[..., None], np.float32(np.nan), found)

    sample = replace(SAMPLE, measure="token-labels", per_token=True)
    report = walk({"int8": (20, by_token)}, sample=sample, fp32=(10, by_token))
    found = report["int8"].figures
    assert report.chosen == "int8"
    assert (found.agreement, found.drift, found.instability) == (1, 0, 0)
    assert [len(one) for one in gate.Trial(Engine(1, by_token), sample).together()] == [
        row["input_ids"].shape[1] for row in SAMPLE.rows
    ]


@pytest.mark.parametrize("named", [None, "int4"])
def test_one_recipe_at_a_time_is_in_memory(named):
    earlier: list[weakref.ref[Engine]] = []
    still_there: list[str] = []

    def broken(scores, ids):
        raise ValueError("no operator X")  # a new one, which holds nothing once it is handled

    table = {
        "int4": (90, wrong),
        "int8-static": (40, broken),
        "int8": (30, swayed),
        "bf16": (20, exact),
        "fp32": (10, exact),
    }

    def load(recipe):
        if any(reference() for reference in earlier):
            still_there.append(recipe.name)
        engine = Engine(*table[recipe.name])
        earlier.append(weakref.ref(engine))
        return engine, 1

    report = gate.walk(LADDER, load, SAMPLE, WANTED, backend="made-up", named=named)
    assert still_there == []
    assert report.chosen == "bf16"
    assert len(earlier) == len(LADDER) - (named is None)
    assert not any(reference() for reference in earlier)


class Clock:
    """Stands still but for what engines add."""

    def __init__(self, *steps: float) -> None:
        self.now = 0.0
        self.steps = list(steps)

    def perf_counter(self) -> float:
        return self.now

    def tick(self, scores, ids):
        self.now += self.steps.pop(0)
        return scores


def test_the_rate_is_rows_per_second_of_the_better_pass(monkeypatch):
    clock = Clock(5, 5, 0.25, 0.25)  # two batches in each of two passes; the first one meets a busy machine
    monkeypatch.setattr(gate, "time", SimpleNamespace(perf_counter=clock.perf_counter))
    sample = replace(SAMPLE, rows=rows(range(1, 12)), padding=Padding.SINGLE)
    assert MEASURED_RATE(gate.Trial(Engine(1, clock.tick), sample)) == 2 / 0.5
    assert clock.steps == []


def test_a_sample_of_one_row_has_a_rate(monkeypatch):
    clock = Clock(0.5, 0.25)
    monkeypatch.setattr(gate, "time", SimpleNamespace(perf_counter=clock.perf_counter))
    assert MEASURED_RATE(gate.Trial(Engine(1, clock.tick), replace(SAMPLE, rows=rows([3])))) == 4


def test_single_calls_take_the_median_of_their_times(monkeypatch):
    clock = Clock(9, 1, 2)
    monkeypatch.setattr(gate, "time", SimpleNamespace(perf_counter=clock.perf_counter))
    found, took = gate.Trial(Engine(1, clock.tick), replace(SAMPLE, rows=rows(range(1, 12)))).alone()
    assert sorted(found) == [0, 5, 10]
    assert took == 2


@pytest.mark.parametrize("speed", [20, 5])
def test_a_sample_of_one_row_is_enough_to_choose(speed):
    report = walk({"int8": (speed,)}, sample=replace(SAMPLE, rows=rows([3])))
    assert report.chosen == ("int8" if speed > 10 else "fp32")
    assert not math.isnan(report["int8"].figures.agreement)
