"""The record of an accuracy check: what it shows, and what of it JSON keeps."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

import pytest

from fastpipe.precision.accuracy import Figures
from fastpipe.precision.report import Candidate, Report

REPORT = Report(
    backend="openvino",
    chosen="int8",
    reason="the fastest of 4 recipes that passes",
    sample="the built-in sample of 99 inputs",
    agreement="share of texts with the same label",
    drift="largest change of a label's probability",
    headline="agreement",
    thresholds={"agreement": 0.98, "worst": None, "drift": 0.1, "instability": 0.02},
    candidates=(
        Candidate(recipe="int8-static", verdict="it does not run: ValueError: no such operator"),
        Candidate(
            recipe="int8-token",
            figures=Figures(agreement=0.91, worst=0.0, drift=0.4321),
            size_bytes=23_400_000,
            rate=412.0,
            verdict="agreement 0.91, at least 0.98 is wanted",
        ),
        Candidate(
            recipe="int8",
            figures=Figures(agreement=0.9912, worst=0.5, drift=0.0312, instability=0.00042),
            size_bytes=23_500_000,
            rate=300.0,
            single_s=0.0021,
            passed=True,
            verdict="used",
        ),
        Candidate(
            recipe="fp32", size_bytes=90_900_000, rate=100.0, single_s=0.0043, passed=True, verdict="the reference"
        ),
    ),
    took_s=12.34,
)
EMPTY = Report(backend="onnxruntime", chosen="fp32", reason="asked for")


def test_a_report_prints_as_a_table_of_every_candidate():
    lines = str(REPORT).splitlines()
    assert lines[0] == "openvino, int8: the fastest of 4 recipes that passes"
    table = lines[1 : 2 + len(REPORT.candidates)]
    for heading in ("recipe", "agreement", "worst", "drift", "unstable", "size", "texts/s", "x fp32", "verdict"):
        assert heading in table[0]
    for candidate, line in zip(REPORT.candidates, table[1:], strict=True):
        assert line.split()[line.startswith("*")] == candidate.recipe
        assert line.endswith(candidate.verdict)
        assert line.startswith("* ") == (candidate.recipe == "int8")
    for figure in ("0.9912", "0.5000", "0.0312", "4.2e-04", "23.5 MB", "300", "3.00", "2.1"):
        assert figure in table[3].split("used")[0]
    assert len({line.index(c.verdict) for c, line in zip(REPORT.candidates, table[1:], strict=True)}) == 1
    assert all(line == line.rstrip() for line in lines)


def test_a_report_says_on_what_and_by_what():
    shown = str(REPORT)
    for words in (REPORT.sample, REPORT.agreement, REPORT.drift, "agreement 0.98", "drift 0.1", "instability 0.02"):
        assert words in shown
    assert "12.3 s" in shown
    assert "None" not in shown
    assert "wanted: nothing" in str(dataclasses.replace(REPORT, thresholds={"agreement": None}))


def test_what_was_not_measured_is_left_blank():
    broken = str(REPORT).splitlines()[2]
    assert broken.split("it does not run")[0].split() == ["int8-static"]


@pytest.mark.parametrize("field", ["reason", "sample", "agreement", "drift", "backend", "chosen"])
def test_the_html_escapes_what_it_shows(field):
    html = dataclasses.replace(REPORT, **{field: "<script>alert('x')</script>"})._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html


def test_the_html_escapes_candidates():
    bad = Candidate(recipe="<b>int8</b>", verdict="it does not run: <script>alert(1)</script>")
    html = dataclasses.replace(REPORT, candidates=(bad, *REPORT.candidates))._repr_html_()
    for tag in ("<script>", "<b>"):
        assert tag not in html
    assert "&lt;script&gt;" in html
    assert "&lt;b&gt;" in html


def test_the_html_shows_every_candidate_and_notes():
    html = REPORT._repr_html_()
    assert html.count("<tr>") == html.count("</tr>") == 1 + len(REPORT.candidates)
    assert html.count("<td>") == len(REPORT.candidates) * html.count("<th>")
    assert "<td>* int8</td>" in html
    for words in (REPORT.sample, "agreement 0.98", REPORT.agreement, *(c.verdict for c in REPORT.candidates)):
        assert words in html


@pytest.mark.parametrize("report", [REPORT, EMPTY], ids=["full", "empty"])
def test_json_gives_an_equal_report_back(report):
    written = json.dumps(report.to_dict(), allow_nan=False)
    again = Report.from_dict(json.loads(written))
    assert again == report
    assert str(again) == str(report)
    assert again.to_dict() == report.to_dict()
    assert all(isinstance(c, Candidate) for c in again.candidates)


def test_a_candidate_is_found_by_its_recipe():
    assert REPORT["int8"].rate == 300.0
    assert REPORT["fp32"].figures is None
    with pytest.raises(KeyError) as raised:
        REPORT["bf16"]
    for words in ("bf16", "int8-static", "int8-token", "int8", "fp32"):
        assert words in str(raised.value)
    with pytest.raises(KeyError, match="none"):
        EMPTY["int8"]


def test_a_report_without_candidates_prints_and_renders():
    assert str(EMPTY) == "onnxruntime, fp32: asked for"
    html = EMPTY._repr_html_()
    assert "onnxruntime, fp32: asked for" in html
    assert "<td>" not in html
    assert EMPTY.plot(axes := Axes()) is axes
    assert axes.named("scatter") == axes.named("axhline") == []


def test_a_report_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        REPORT.chosen = "fp32"


class Axes:
    """Records what is drawn."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **options: self.calls.append((name, args, options))

    def named(self, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [(args, options) for called, args, options in self.calls if called == name]


def test_a_plot_has_a_point_for_each_that_was_measured_and_the_threshold():
    axes = Axes()
    assert REPORT.plot(axes=axes) is axes
    points = [(list(x), list(y), options["marker"]) for (x, y), options in axes.named("scatter")]
    assert points == [([412.0], [0.91], "x"), ([300.0], [0.9912], "*"), ([100.0], [1.0], "o")]
    assert [args[0] for args, _ in axes.named("annotate")] == ["int8-token", "int8", "fp32"]
    assert [args for args, _ in axes.named("axhline")] == [(0.98,)]
    assert axes.named("set_xlabel")
    assert REPORT.agreement in axes.named("set_ylabel")[0][0][0]
    assert "openvino" in axes.named("set_title")[0][0][0]


def test_a_plot_shows_the_figure_that_counts_most():
    axes = Axes()
    dataclasses.replace(REPORT, headline="worst").plot(axes=axes)
    assert [list(y) for (_, y), _ in axes.named("scatter")] == [[0.0], [0.5], [1.0]]
    assert axes.named("axhline") == []  # no least value was asked of it
    assert "worst" in axes.named("set_ylabel")[0][0][0]


def test_a_plot_without_matplotlib_says_so_and_all_else_works(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="matplotlib"):
        REPORT.plot()
    assert str(REPORT)
    assert REPORT.plot(axes=Axes())
