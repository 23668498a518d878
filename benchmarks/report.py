"""Figures as text, tables on the terminal, raw samples as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.field import Lane


@dataclass(kw_only=True)
class Table:
    """One table of a scenario: a header, and a row of texts for each lane."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(kw_only=True)
class Result:
    """What a scenario gives: its tables, and the lanes with every raw sample."""

    scenario: str
    weights: str
    tables: list[Table]
    lanes: list[Lane]
    facts: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Give the result as plain values."""
        return {
            "scenario": self.scenario,
            "weights": self.weights,
            "facts": self.facts,
            "tables": [vars(table) for table in self.tables],
            "lanes": [lane.to_dict() for lane in self.lanes],
        }


def spread(values: Sequence[float], digits: int = 2, unit: str = "") -> str:
    """Give median and range: "9.81 (9.70-10.02)"; nothing for no values."""
    if not values:
        return "-"
    low, middle, high = (f"{v:.{digits}f}" for v in (min(values), statistics.median(values), max(values)))
    return f"{middle}{unit}" if len(values) == 1 else f"{middle}{unit} ({low}-{high})"


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Divide within each round; nothing where one of the two was not measured."""
    return [a / b for a, b in zip(above, below, strict=True)] if above and below else []


def percentile(values: Sequence[float], percent: float) -> float:
    """Give a percentile by linear interpolation between the two nearest values."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    lower = int(place)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (place - lower)


def show(result: Result, warning: str) -> None:
    """Print a scenario's tables."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=180)
    for table in result.tables:
        drawn = RichTable(title=f"{result.scenario}  {table.title}", title_justify="left")
        for position, column in enumerate(table.columns):
            drawn.add_column(column, justify="left" if position == 0 else "right", no_wrap=position == 0)
        for row in table.rows:
            drawn.add_row(*(Text(cell) for cell in row))
        console.print(drawn)
        for note in (*([warning] if warning else []), f"Weights: {result.weights}.", *table.notes):
            console.print(Text(f"  {note}"))
        console.print()


def write(path: Path, document: dict[str, Any]) -> None:
    """Write everything as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")
