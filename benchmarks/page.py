"""The page with the figures: `python -m benchmarks page results.json more.json` writes docs/benchmarks.md and its plot.

Every file is one run. The page holds what the files hold: nothing is computed here but medians for the plot, which
comes from the scenario "lengths" and takes matplotlib.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import data
from benchmarks.lengths import MODEL, lane_name
from benchmarks.worker import ROOT

_PLOT_SCENARIO = "LENGTHS"
# By the precision that a contender's name ends with.
_STYLES: Mapping[str, str] = {"auto": "-", "int8": "--", "fp32": ":"}

Document = Mapping[str, Any]


def main(arguments: Sequence[str]) -> int:
    """Write the page and, where there is something to draw and matplotlib to draw it, the plot.

    Returns:
        0.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks page", description="Write the page of the figures.")
    parser.add_argument("results", nargs="+", type=Path, help="what runs wrote with --json")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks.md", help="the page to write")
    options = parser.parse_args(arguments)
    documents: list[Document] = [json.loads(path.read_text("utf-8")) for path in options.results]
    picture = options.out.with_suffix(".svg")
    reason = plot(documents, picture)
    print(f"no plot: {reason}" if reason else f"wrote {picture}")
    options.out.write_text(text(documents, "" if reason else picture.name), "utf-8")
    print(f"wrote {options.out}")
    return 0


def text(documents: Sequence[Document], picture: str = "") -> str:
    """Give the page.

    Args:
        documents: What runs wrote.
        picture: File name of the plot; empty for a page without one.
    """
    results = [(run, result) for run, document in enumerate(documents, 1) for result in document["results"]]
    scenarios = list(dict.fromkeys(result["scenario"] for _, result in results))
    lines = [
        "# Benchmarks",
        "",
        "Written by `python -m benchmarks page` from what `python -m benchmarks --json` measured; not edited by hand.",
        "Each contender runs in a process of its own, the contenders take turns, and ratios are taken within a round.",
        "Other machines give other figures: `nox -s bench -- W1` measures yours.",
        "",
        "## Runs",
        "",
        *_grid(("", *(f"run {run}" for run in range(1, len(documents) + 1))), _runs(documents)),
        "",
        "## Weights",
        "",
        *_grid(("scenario", "model", "weights"), _weights([result for _, result in results])),
        "",
    ]
    if picture:
        lines += ["## Throughput by length", "", f"![Texts per second against tokens of a text]({picture})", ""]
    for scenario in scenarios:
        lines += [f"## {scenario.lower() if scenario.isalpha() else scenario}", ""]
        for run, result in results:
            if result["scenario"] == scenario:
                lines += _section(run, documents[run - 1], result)
    return "\n".join(lines).rstrip("\n") + "\n"


def _runs(documents: Sequence[Document]) -> list[list[str]]:
    """One row a fact, one column a run."""
    libraries = dict.fromkeys(library for document in documents for library in document["machine"]["versions"])
    machines = [document["machine"] for document in documents]
    return [
        ["CPU", *(machine["cpu"] for machine in machines)],
        ["cores", *(str(machine["cores"]) for machine in machines)],
        ["instruction sets", *(", ".join(machine["isa"]) or "-" for machine in machines)],
        ["memory", *(f"{machine['memory_bytes'] / 2**30:.1f} GiB" for machine in machines)],
        [
            "load of 1, 5, 15 minutes at the start",
            *(", ".join(f"{load:.2f}" for load in machine["load_average_at_start"]) for machine in machines),
        ],
        ["system", *(machine["system"] for machine in machines)],
        ["rounds", *(str(document["rounds"]) for document in documents)],
        ["share of the full amount of work", *(f"{document['size']:g}" for document in documents)],
        ["Python", *(machine["python"] for machine in machines)],
        *([library, *(machine["versions"].get(library, "-") for machine in machines)] for library in libraries),
    ]


def _weights(results: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    rows = ((r["scenario"], _model(r["facts"]), r["weights"]) for r in results)
    return [list(row) for row in dict.fromkeys(rows)]


def _model(facts: Mapping[str, Any]) -> str:
    """Find the model among the facts of a scenario, or of its parts."""
    parts = [facts, *(part for part in facts.values() if isinstance(part, dict))]
    return next((str(part["model"]) for part in parts if "model" in part), "-")


def _section(run: int, document: Document, result: Mapping[str, Any]) -> list[str]:
    """The tables of one scenario of one run, with what has to be known about them."""
    lines = []
    for table in result["tables"]:
        remarks = [f"Weights: {result['weights']}.", *table["notes"]]
        if document["warning"]:
            remarks.insert(0, f"**{document['warning']}**")
        if document["size"] != 1:
            remarks.insert(0, f"**At {document['size']:g} of the full amount of work: not to be quoted.**")
        title = f"**{table['title'][:1].upper()}{table['title'][1:]}** (run {run})"
        lines += [_escaped(title), "", *_grid(table["columns"], table["rows"]), ""]
        lines += [*(f"- {_escaped(remark)}" for remark in remarks), ""]
    absent = {name: why for name, why in document["left_out"].items() if why != "not asked for"}
    failed = {name: why.strip().splitlines()[-1] for name, why in document.get("failures", {}).items()}
    for heading, reasons in (("Left out", absent), ("Failed", failed)):
        if reasons:
            listed = "; ".join(f"{name} ({why})" for name, why in reasons.items())
            lines += [_escaped(f"{heading} in this run: {listed}."), ""]
    return lines


def _grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Give a table in Markdown; all but the first column are aligned to the right."""
    rule = ["---", *("---:" for _ in columns[1:])]
    return [f"| {' | '.join(map(_escaped, row))} |" for row in (columns, rule, *rows)]


def _escaped(cell: str) -> str:
    """Keep what Markdown would read as markup in a cell or a line."""
    for sign in ("|", "<", "_", "~"):
        cell = cell.replace(sign, f"\\{sign}")
    return cell


def throughput(documents: Sequence[Document]) -> dict[str, dict[int, float]]:
    """Give median texts per second by contender and tokens of a text, of the last run that measured it."""
    found: dict[str, dict[int, float]] = {}
    for document in documents:
        for result in document["results"]:
            if result["scenario"] != _PLOT_SCENARIO:
                continue
            samples = {lane["name"]: lane["samples"] for lane in result["lanes"]}
            for contender in document["contenders"]:
                rates = {
                    int(tokens): count / statistics.median(sum(s["seconds"]) for s in samples[lane])
                    for tokens, count in result["facts"]["texts"].items()
                    if (lane := lane_name(contender, int(tokens))) in samples
                }
                if rates:
                    found[contender] = rates
    return found


def plot(documents: Sequence[Document], path: Path) -> str:
    """Draw throughput against length.

    Returns:
        Why nothing was drawn; empty when it was.
    """
    rates = throughput(documents)
    if not rates:
        return "no run has the scenario 'lengths'"
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        return f"{error} (pip install matplotlib)"
    families = list(dict.fromkeys(name.rpartition("-")[0] for name in rates))
    with matplotlib.rc_context({"svg.hashsalt": "fastpipe"}):  # the same figures give the same bytes
        figure = Figure(figsize=(9, 5.5), layout="constrained")
        axes = figure.subplots()
        for name, points in rates.items():
            family, _, precision = name.rpartition("-")
            axes.plot(
                list(points),
                list(points.values()),
                _STYLES.get(precision, "-."),
                color=f"C{families.index(family) % 10}",
                linewidth=2 if family.startswith("fastpipe") else 1,
                marker="o",
                markersize=3,
                label=name,
            )
        ticks = sorted({tokens for points in rates.values() for tokens in points})
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.set_title(f"{MODEL} size, texts of one length; weights: {data.MODELS[MODEL].weights}", fontsize="medium")
        axes.set_xlabel("tokens of a text")
        axes.set_ylabel("texts per second")
        axes.grid(alpha=0.3)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize="small", frameon=False)
        figure.savefig(path, metadata={"Date": None})
    return ""
