"""What the accuracy check found: every recipe that was tried, its figures, and which one is used, and why."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from fastpipe.precision.accuracy import Figures


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One recipe beside the others.

    Attributes:
        recipe: Its name.
        figures: Beside fp32; `None` for fp32 itself, and for one that could not run.
        size_bytes: Of its files.
        rate: Inputs per second of the sample, in sorted batches; 0 where it was not measured.
        single_s: Median seconds of one input alone; 0 where it was not measured.
        passed: Whether it may be used.
        verdict: Why not, or why it is used or not used.
    """

    recipe: str
    figures: Figures | None = None
    size_bytes: int = 0
    rate: float = 0.0
    single_s: float = 0.0
    passed: bool = False
    verdict: str = ""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The record of one accuracy check.

    Attributes:
        backend: The engine.
        chosen: Name of the recipe that is used.
        reason: Why, in a sentence.
        sample: What the recipes were compared on.
        agreement: What `Figures.agreement` and `worst` count.
        drift: What `Figures.drift` counts.
        headline: The figure to name first.
        thresholds: What was asked for: the fields of `fastpipe.Accuracy`.
        candidates: In the order of the ladder, fp32 last. Empty where nothing was checked.
        took_s: Seconds that all of it took.
        unit: What the sample is of: "texts", "images" or "sounds".
    """

    backend: str
    chosen: str
    reason: str
    sample: str = ""
    agreement: str = ""
    drift: str = ""
    headline: str = "agreement"
    thresholds: Mapping[str, float | None] = field(default_factory=dict)
    candidates: tuple[Candidate, ...] = ()
    took_s: float = 0.0
    unit: str = "texts"

    def __getitem__(self, recipe: str) -> Candidate:
        """Give the candidate of a recipe.

        Raises:
            KeyError: It was not tried.
        """
        for candidate in self.candidates:
            if candidate.recipe == recipe:
                return candidate
        raise KeyError(
            f"{recipe!r} was not tried; these were: {', '.join(c.recipe for c in self.candidates) or 'none'}"
        )

    @property
    def refused(self) -> list[str]:
        """Names of the recipes that do not agree with fp32 as they must."""
        return [candidate.recipe for candidate in self.candidates if not candidate.passed]

    def to_dict(self) -> dict[str, Any]:
        """Give the report as plain values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Report:
        """Make a report of what `to_dict` gave."""
        candidates = tuple(
            Candidate(**{**one, "figures": Figures(**one["figures"]) if one["figures"] else None})
            for one in values["candidates"]
        )
        return cls(**{**values, "candidates": candidates})

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [tuple(f"{self.unit}/s" if name == "texts/s" else name for name in _HEAD)]
        fp32 = next((c.rate for c in self.candidates if c.recipe == "fp32"), 0.0)
        for c in self.candidates:
            f = c.figures
            rows.append(
                (
                    ("* " if c.recipe == self.chosen else "  ") + c.recipe,
                    *(f"{value:.4f}" if f else "" for value in ((f.agreement, f.worst, f.drift) if f else (0.0,) * 3)),
                    f"{f.instability:.1e}" if f and f.instability is not None else "",
                    f"{c.size_bytes / 1e6:.1f} MB" if c.size_bytes else "",
                    f"{c.rate:.0f}" if c.rate else "",
                    f"{c.rate / fp32:.2f}" if c.rate and fp32 else "",
                    f"{c.single_s * 1e3:.1f}" if c.single_s else "",
                    c.verdict,
                )
            )
        return rows

    def _notes(self) -> list[str]:
        if not self.candidates:
            return []
        wanted = ", ".join(f"{name} {value:g}" for name, value in self.thresholds.items() if value is not None)
        return [
            f"compared on {self.sample}, in {self.took_s:.1f} s; wanted: {wanted or 'nothing'}",
            f"agreement: {self.agreement}; drift: {self.drift}; unstable: drift between alone and in a batch",
        ]

    def __str__(self) -> str:
        lines = [f"{self.backend}, {self.chosen}: {self.reason}"]
        if self.candidates:
            rows = self._rows()
            wide = [max(len(row[column]) for row in rows) for column in range(len(_HEAD) - 1)]
            for row in rows:
                cells = [
                    f"{cell:>{w}}" if n else f"{cell:<{w}}" for n, (cell, w) in enumerate(zip(row, wide, strict=False))
                ]
                lines.append("  ".join([*cells, row[-1]]).rstrip())
        return "\n".join([*lines, *self._notes()])

    def _repr_html_(self) -> str:
        head, *rows = self._rows() if self.candidates else [()]
        cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        notes = "".join(f"<p>{html.escape(note)}</p>" for note in self._notes())
        title = html.escape(f"{self.backend}, {self.chosen}: {self.reason}")
        return f"<table><caption>{title}</caption><tr>{cells}</tr>{body}</table>{notes}"

    def plot(self, axes: Any = None) -> Any:
        """Draw agreement against speed.

        Args:
            axes: A matplotlib `Axes` to draw on; `None` makes one.

        Returns:
            The axes.

        Raises:
            ImportError: matplotlib is not installed.
        """
        if axes is None:
            from matplotlib import pyplot

            axes = pyplot.figure().add_subplot()
        for c in self.candidates:
            if not c.rate:
                continue
            level = getattr(c.figures, self.headline) if c.figures else 1.0
            marker = "*" if c.recipe == self.chosen else "o" if c.passed else "x"
            axes.scatter([c.rate], [level], marker=marker, s=90)
            axes.annotate(c.recipe, (c.rate, level), textcoords="offset points", xytext=(6, 4))
        least = self.thresholds.get(self.headline)
        if least is not None:
            axes.axhline(least, linestyle="--", linewidth=1)
        axes.set_xlabel(f"{self.unit}/s of the sample, in sorted batches")
        axes.set_ylabel(f"{self.headline}: {self.agreement}")
        axes.set_title(f"{self.backend}: * used, o passed, x did not pass")
        return axes


_HEAD = ("  recipe", "agreement", "worst", "drift", "unstable", "size", "texts/s", "x fp32", "ms alone", "verdict")
