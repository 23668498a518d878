"""Who may serve a model, who is timed, who wins, and the record of it. Pure: nothing here runs a model."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from fastpipe.plan import Engine
from fastpipe.precision.recipes import FP32, NAMES
from fastpipe.precision.report import Candidate, Report
from fastpipe.timing import Timing

_FINALISTS = 4  # all of them are loaded at once
_HOPEFUL = 0.5  # of the engine's best speed in the check: who has less does not make up for it end to end
_CLEARLY = 1.05  # what a measurement on a busy machine is worth
_HEAD = ("  backend", "precision", "samples/s", "passed", "reason")


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One engine with one recipe.

    Attributes:
        backend: Name of the engine.
        precision: Name of the recipe; empty where the engine is out before any.
        passed: Whether it passes the accuracy check; fp32 and torch do by definition.
        check_rate: Texts per second in the check: the model alone, in sorted batches; 0 where it was not measured.
        rate: Samples per second of the whole pipeline; 0 where it was not timed.
        reason: Why it was chosen or not.
    """

    backend: str
    precision: str
    passed: bool
    check_rate: float = 0.0
    rate: float = 0.0
    reason: str = ""

    @property
    def name(self) -> str:
        """Engine and recipe."""
        return f"{self.backend} {self.precision}".strip()


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What `fastpipe.tune` measured, and what it chose.

    Attributes:
        task: transformers' name of the task.
        samples: How many inputs it was measured on.
        chosen: The winner.
        contenders: Every engine and recipe, with figures and reasons.
        took_s: Seconds that all of it took, exports included.
        pipe: A pipeline on the winner, ready for use.
    """

    task: str
    samples: int
    chosen: Contender
    contenders: tuple[Contender, ...]
    took_s: float
    pipe: Any = field(repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Give the record, without the pipeline, as plain values that JSON can hold."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "pipe"}
        return {**values, "chosen": asdict(self.chosen), "contenders": [asdict(one) for one in self.contenders]}

    @property
    def title(self) -> str:
        """The choice in a sentence."""
        inputs = f"{self.samples} input{'s' if self.samples > 1 else ''}"
        return f"{self.task}, tuned on {inputs} in {self.took_s:.1f} s: {self.chosen.name}"

    def rows(self) -> list[tuple[str, ...]]:
        """Give the table as texts, its head first; the row of the choice begins with a star."""
        found = [
            (
                ("* " if one.name == self.chosen.name else "  ") + one.backend,
                one.precision,
                figure(one.rate) if one.rate else "",
                "yes" if one.passed else "no",
                one.reason,
            )
            for one in self.contenders
        ]
        return [_HEAD, *found]

    def __str__(self) -> str:
        rows = self.rows()
        wide = [max(len(row[column]) for row in rows) for column in range(len(_HEAD) - 1)]
        sides = ("<", "<", ">", "<")
        lines = [
            "  ".join([*(f"{cell:{s}{w}}" for cell, s, w in zip(row, sides, wide, strict=False)), row[-1]]).rstrip()
            for row in rows
        ]
        return "\n".join([self.title, *lines])

    def _repr_html_(self) -> str:
        head, *rows = self.rows()
        cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        return f"<table><caption>{html.escape(self.title)}</caption><tr>{cells}</tr>{body}</table>"


def entrants(engine: Engine, report: Report) -> list[Contender]:
    """Give an engine's recipes as the accuracy check left them, and those it does not try."""
    tried = {c.recipe: c for c in report.candidates}
    missing = Candidate(recipe="", verdict="by name only")
    found = [(name, tried.get(name, missing)) for name in engine.precisions]
    why = {name: "" if c.passed else c.verdict for name, c in found}
    return [
        Contender(backend=engine.name, precision=name, passed=c.passed, check_rate=c.rate, reason=why[name])
        for name, c in found
    ]


def finalists(contenders: Sequence[Contender]) -> list[Contender]:
    """Choose who is timed end to end: of each engine the fastest in the check that passed, then the second ones."""
    ranks: list[tuple[int, float, Contender]] = []
    for backend in dict.fromkeys(one.backend for one in contenders):
        passed = [one for one in contenders if one.backend == backend and one.passed]
        passed.sort(key=lambda one: -one.check_rate)
        hopeful = [one for one in passed if one.check_rate >= _HOPEFUL * passed[0].check_rate]
        ranks += [(place, -one.check_rate, one) for place, one in enumerate(hopeful)]
    return [one for *_, one in sorted(ranks, key=lambda rank: rank[:2])][:_FINALISTS]


def ranked(contenders: Sequence[Contender], timings: Mapping[str, Timing]) -> tuple[Contender, list[Contender]]:
    """Choose the winner: the fastest, or the safest of those that are as fast as it but for a few percent.

    Args:
        contenders: All of them.
        timings: Of those that were timed, by name; one at least went all the way.

    Returns:
        The winner, and all contenders in their order with rates and reasons.
    """
    rates = {name: timing.rate for name, timing in timings.items() if timing.rounds}
    fastest = max(rates, key=lambda name: rates[name])
    near = [one for one in contenders if rates.get(one.name, 0.0) * _CLEARLY >= rates[fastest]]
    winner = max(near, key=lambda one: (_safety(one), rates[one.name])).name
    checked = {one.backend: one for one in sorted(contenders, key=lambda one: one.check_rate) if one.passed}

    def reason(one: Contender) -> str:
        timing = timings.get(one.name)
        if timing is None:
            if not one.passed:
                return one.reason
            best = checked[one.backend]
            return (
                f"not timed: {figure(one.check_rate)} texts/s in the check, {best.precision} {figure(best.check_rate)}"
            )
        if one.name == winner:
            others = f"of {len(rates)} timed end to end"
            return f"the fastest {others}" if winner == fastest else f"as fast as the fastest {others}, and safer"
        times = timing.rate / rates[winner]
        if not timing.rounds:
            return f"{times:.2f}x the chosen on {timing.items} inputs, and left out from there on"
        return f"{times:.2f}x the chosen" + (", which is safer" if times > 1 else "")

    measured = {name: round(timing.rate, 3) for name, timing in timings.items()}
    found = [replace(one, rate=measured.get(one.name, 0.0), reason=reason(one)) for one in contenders]
    return next(one for one in found if one.name == winner), found


def others(contenders: Sequence[Contender], chosen: Contender, samples: int) -> dict[str, str]:
    """Say of each other engine in a sentence why it was not chosen, by its best recipe."""
    best: dict[str, Contender] = {}
    for one in contenders:
        before = best.get(one.backend)
        if one.backend != chosen.backend and (before is None or (one.rate, one.passed) > (before.rate, before.passed)):
            best[one.backend] = one
    return {
        name: f"tuned on {samples} inputs: {figure(one.rate)} samples/s in {one.precision}"
        if one.rate
        else one.reason or "tuning found it slower"
        for name, one in best.items()
    }


def judged(report: Report, chosen: str, samples: int) -> Report:
    """Say in the report of an accuracy check that tuning chose among those that passed."""
    if not report.candidates:
        return replace(report, reason=f"tuned on {samples} inputs: {report.reason}")
    figures, words = report[chosen].figures, "worst agreement" if report.headline == "worst" else "agreement"
    level = f"{words} {getattr(figures, report.headline):.4f} ({report.agreement})" if figures else "the reference"
    plain = {FP32.name: "the reference", chosen: "used"}
    candidates = tuple(
        replace(c, verdict=plain.get(c.recipe, "passed" if c.passed else c.verdict)) for c in report.candidates
    )
    reason = f"tuned on {samples} inputs, where it passes the accuracy check: {level}"
    return replace(report, chosen=chosen, candidates=candidates, reason=reason)


def figure(rate: float) -> str:
    """Write a rate in no more digits than it is known to."""
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"


def _safety(one: Contender) -> int:
    return NAMES.index(one.precision) if one.precision in NAMES else -1
