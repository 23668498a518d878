"""Who is timed, who wins and what is said of the others: tables, no engine."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fastpipe.contest import Contender, Tuning, entrants, finalists, judged, others, ranked
from fastpipe.pipelines.tuned import Tuned
from fastpipe.plan import Engine
from fastpipe.precision.accuracy import Figures
from fastpipe.precision.report import Candidate, Report
from fastpipe.timing import Timing

FIGURES = Figures(agreement=0.999, worst=0.99, drift=0.01, instability=0.0)
REPORT = Report(
    backend="openvino",
    chosen="bf16",
    reason="the fastest",
    headline="agreement",
    agreement="share of labels",
    candidates=(
        Candidate(recipe="int8", figures=FIGURES, rate=90.0, passed=True, verdict="passed, and is not clearly faster"),
        Candidate(recipe="bf16", figures=FIGURES, rate=100.0, passed=True, verdict="used"),
        Candidate(recipe="fp32", rate=40.0, passed=True, verdict="the reference"),
    ),
)


def one(name: str, check_rate: float = 0.0, passed: bool = True, reason: str = "") -> Contender:
    backend, precision = name.split()
    return Contender(backend=backend, precision=precision, passed=passed, check_rate=check_rate, reason=reason)


def timed(**rates: float) -> dict[str, Timing]:
    """By "backend_precision"; a negative rate is of one that was left out."""
    return {
        name.replace("_", " "): Timing(rate=abs(rate), items=8 if rate < 0 else 100, rounds=0 if rate < 0 else 5)
        for name, rate in rates.items()
    }


ALL = [
    one("openvino int4", passed=False, reason="by name only"),
    one("openvino int8", 300),
    one("openvino bf16", 200),
    one("openvino fp32", 100),
    one("onnxruntime int8", 30, passed=False, reason="drift 0.3 instead of at most 0.1"),
    one("onnxruntime fp32", 20),
    one("torch fp32"),
]


def test_an_engines_recipes_enter_with_what_the_check_said():
    engine = Engine(name="openvino", version="1", remedy="", precisions=("int4", "int8", "bf16", "fp32"))
    found = {c.precision: c for c in entrants(engine, REPORT)}
    assert [c.passed for c in found.values()] == [False, True, True, True]
    assert found["int4"].reason == "by name only"
    assert found["int8"].check_rate == 90.0


def test_the_best_of_every_engine_is_timed_and_the_hopeless_are_not():
    assert [c.name for c in finalists(ALL[:-1])] == ["openvino int8", "onnxruntime fp32", "openvino bf16"]
    assert finalists([c for c in ALL if not c.passed]) == []
    many = [one(f"openvino r{n}", 100 - n) for n in range(9)]
    assert [c.name for c in finalists([*many, one("onnxruntime fp32", 1)])] == [
        "openvino r0", "onnxruntime fp32", "openvino r1", "openvino r2",
    ]  # fmt: skip


def test_the_fastest_wins_and_every_other_one_hears_why():
    timings = timed(openvino_int8=300, openvino_bf16=150, onnxruntime_fp32=30, torch_fp32=-10)
    chosen, found = ranked(ALL, timings)
    assert chosen.name == "openvino int8"
    assert {c.name: (c.rate, c.reason) for c in found} == {
        "openvino int4": (0.0, "by name only"),
        "openvino int8": (300.0, "the fastest of 3 timed end to end"),
        "openvino bf16": (150.0, "0.50x the chosen"),
        "openvino fp32": (0.0, "not timed: 100 texts/s in the check, int8 300"),
        "onnxruntime int8": (0.0, "drift 0.3 instead of at most 0.1"),
        "onnxruntime fp32": (30.0, "0.10x the chosen"),
        "torch fp32": (10.0, "0.03x the chosen on 8 inputs, and left out from there on"),
    }


def test_what_is_as_fast_and_safer_wins():
    chosen, found = ranked(ALL, timed(openvino_int8=102, openvino_bf16=100, torch_fp32=90))
    assert (chosen.name, chosen.reason) == ("openvino bf16", "as fast as the fastest of 3 timed end to end, and safer")
    assert "which is safer" in found[1].reason
    assert ranked(ALL, timed(openvino_int8=102, torch_fp32=101))[0].name == "torch fp32"
    assert ranked(ALL, timed(openvino_fp32=100, torch_fp32=101))[0].name == "torch fp32"


def test_a_hopeless_one_never_wins():
    assert ranked(ALL, timed(openvino_fp32=100, torch_fp32=-1000))[0].name == "openvino fp32"


def test_each_other_engine_has_one_reason():
    chosen, found = ranked(ALL, timed(openvino_int8=300, torch_fp32=100))
    assert others(found, chosen, 20) == {
        "onnxruntime": "not timed: 20 texts/s in the check, fp32 20",
        "torch": "tuned on 20 inputs: 100 samples/s in fp32",
    }
    missing = Contender(backend="onnxruntime", precision="", passed=False, reason="not installed: pip install it")
    assert others([chosen, missing], chosen, 20) == {"onnxruntime": "not installed: pip install it"}


def test_the_report_says_that_tuning_chose():
    found = judged(REPORT, "int8", 20)
    assert found.chosen == "int8"
    assert found.reason == "tuned on 20 inputs, where it passes the accuracy check: agreement 0.9990 (share of labels)"
    assert [c.verdict for c in found.candidates] == ["used", "passed", "the reference"]
    assert "the reference" in judged(REPORT, "fp32", 20).reason
    on_torch = Report(backend="torch", chosen="fp32", reason="as it is")
    assert judged(on_torch, "fp32", 20).reason == "tuned on 20 inputs: as it is"


@pytest.fixture
def tuning() -> Any:
    chosen, found = ranked([replace(c, reason=c.reason and f"<{c.reason}>") for c in ALL], timed(openvino_int8=7.25))
    return Tuning(task="t", samples=1, chosen=chosen, contenders=tuple(found), took_s=1.5, pipe=object())


def test_a_tuning_is_text_html_and_plain_values(tuning):
    lines = str(tuning).splitlines()
    assert lines[0] == "t, tuned on 1 input in 1.5 s: openvino int8"
    assert [line for line in lines if line.startswith("*")] == [lines[3]]
    assert "7.2" in lines[3]
    assert "&lt;by name only&gt;" in tuning._repr_html_()
    assert json.loads(json.dumps(tuning.to_dict()))["chosen"]["precision"] == "int8"
    assert "pipe" not in tuning.to_dict()
    assert "object" not in repr(tuning)


def test_a_choice_survives_json():
    tuned = Tuned(
        backend="openvino",
        precision="int8",
        inputs=("input_ids",),
        calibration="d",
        reason="r",
        others={"torch": "slow"},
        report=REPORT,
    )
    assert Tuned.from_dict(json.loads(json.dumps(tuned.to_dict()))) == tuned
    with pytest.raises((KeyError, TypeError)):
        Tuned.from_dict({"backend": "openvino"})
