"""Growth: does a row cost more time or memory when there are more of them? Lists and generators of up to 100,000 rows.

Every measurement is a call in a fresh process, after some with 1,000 other rows each. The texts are short and all
different, and the model is tiny, so that what fastpipe does for each row is most of the time. A list is the caller's
own, and so are its results: their sizes are named, and taken away from the peak. A generator's results are thrown away.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from benchmarks import data, memory
from benchmarks.contenders import Contender
from benchmarks.field import Bench, Lane
from benchmarks.loaders import Loaded
from benchmarks.report import Result, Table, ratios, spread

MODEL = "distilbert-tiny"
KINDS = ("list", "generator")
ROWS = (1_000, 10_000, 100_000)
FEWEST_TOKENS, MOST_TOKENS = 3, 15
# Calls with the fewest rows before the measured one, and a generator of so many times as many: engines prepare
# something for each shape of a batch that is new to them.
_WARM_UPS = 5


def lane_name(contender: str, kind: str, rows: int) -> str:
    """Name the lane of a contender with so many rows."""
    return f"{contender}, {kind} of {rows:,}"


def run(bench: Bench) -> Result:
    """Run the scenario."""
    contenders = [entrant.contender for entrant in bench.entrants(MODEL, runners=True)]  # this builds the artifacts
    bench.close()
    counts = [bench.scaled(rows, least=4) for rows in ROWS]
    lanes = [
        _lane(bench, contender, kind, counts, rows) for contender in contenders for kind in KINDS for rows in counts
    ]
    finished = bench.race(lanes)
    facts = {"model": MODEL, "rows": counts, "fewest_tokens": FEWEST_TOKENS, "most_tokens": MOST_TOKENS}
    table = _table(finished, [contender.name for contender in contenders], counts)
    return Result(scenario="GROWTH", weights=data.MODELS[MODEL].weights, tables=[table], lanes=finished, facts=facts)


def _lane(bench: Bench, contender: Contender, kind: str, counts: Sequence[int], rows: int) -> Lane:
    """The call in a process of its own."""

    def ask() -> dict[str, Any]:
        worker, _ = bench.start(contender.name, contender.load, model=MODEL, **contender.options)
        try:
            sample: dict[str, Any] = worker.ask("benchmarks.growth:one_call", kind=kind, rows=rows, before=counts[0])
        finally:
            worker.close()
        return sample

    return Lane(name=lane_name(contender.name, kind, rows), ask=ask, precision=contender.precision)


def one_call(loaded: Loaded, kind: str, rows: int, before: int) -> dict[str, Any]:
    """Time one call and watch its memory, inside the worker.

    Args:
        loaded: The contender.
        kind: One of `KINDS`.
        rows: How many texts the call has.
        before: How many texts the calls before it have.

    Returns:
        Seconds, and bytes: of the caller's own `inputs` and `results`; resident `before` the call, at its `peak`,
        and `after` it, when the results are gone.
    """
    for number in range(_WARM_UPS):
        _call(loaded, kind, _texts(before, first=number * before))
    _call(loaded, "generator", _texts(_WARM_UPS * before, first=_WARM_UPS * before))
    inputs: Any = _texts(rows, first=2 * _WARM_UPS * before)
    if kind == "list":
        inputs = list(inputs)
    held = memory.held_bytes(inputs) if kind == "list" else 0
    gc.collect()
    resident, fresh_peak = memory.rss_bytes(), memory.reset_peak()
    started = time.perf_counter()
    results, count = _call(loaded, kind, inputs)
    seconds = time.perf_counter() - started
    peak = memory.peak_rss_bytes()
    if count != rows:
        raise RuntimeError(f"{rows} rows have {count} results")
    sizes = {"inputs": held, "results": memory.held_bytes(results) if results else 0}
    del results
    gc.collect()
    after = memory.rss_bytes()
    return {"seconds": [seconds], **sizes, "before": resident, "peak": peak, "after": after, "fresh_peak": fresh_peak}


def _texts(count: int, first: int = 0) -> Iterator[str]:
    return data.distinct_texts(count, FEWEST_TOKENS, MOST_TOKENS, first=first)


def _call(loaded: Loaded, kind: str, texts: Iterable[str]) -> tuple[list[Any], int]:
    """Give the results, where the caller keeps them, and how many there were."""
    if kind == "list":
        results = loaded(list(texts))
        return results, len(results)
    return [], sum(1 for _ in loaded(texts))


def _table(lanes: list[Lane], contenders: Sequence[str], counts: Sequence[int]) -> Table:
    samples = {lane.name: lane.samples for lane in lanes}
    table = Table(
        title=f"one call with texts of {FEWEST_TOKENS} to {MOST_TOKENS} tokens, text-classification, tiny model",
        columns=(
            "contender", "us per row", "time per row x", "inputs and results MiB", "peak - before MiB",
            "bytes per row", "peak RSS MiB", "peak RSS x", "kept MiB",
        ),
        notes=[
            "Median (min-max) over the rounds; every call is in a fresh process, after some with the fewest rows.",
            "Time per row x, peak RSS x: of those with the fewest rows, within a round; target: 0.9 to 1.1.",
            "Inputs and results: what the caller holds of a list; for a generator, nothing.",
            "Peak - before: the peak of resident memory, without results, minus that before the call; per row, too.",
            "Peak RSS: all that the process holds at the peak; peak RSS x: without inputs and results.",
            "Kept: resident memory after the call, when the results are gone, minus that before it.",
            *(
                ["The system cannot begin its peak anew: peaks count the loading of the model, too."]
                if any(not sample["fresh_peak"] for lane in lanes for sample in lane.samples)
                else []
            ),
        ],
    )  # fmt: skip
    for contender in contenders:
        for kind in KINDS:
            fewest = samples.get(lane_name(contender, kind, counts[0]), [])
            for rows in counts:
                name = lane_name(contender, kind, rows)
                if own := samples.get(name, []):
                    table.rows.append((name, *_cells(own, fewest, rows, counts[0])))
    return table


def _cells(own: list[dict[str, Any]], fewest: list[dict[str, Any]], rows: int, fewest_rows: int) -> tuple[str, ...]:
    grown = [sample["peak"] - sample["results"] - sample["before"] for sample in own]
    return (
        spread([1e6 * time_per_row for time_per_row in _per_row(own, rows)], 1),
        spread(ratios(_per_row(own, rows), _per_row(fewest, fewest_rows))),
        spread([_mib(sample["inputs"] + sample["results"]) for sample in own], 1),
        spread([_mib(count) for count in grown], 1),
        spread([count / rows for count in grown], 0),
        spread([_mib(sample["peak"]) for sample in own], 0),
        spread(ratios(_own_peak(own), _own_peak(fewest))),
        spread([_mib(sample["after"] - sample["before"]) for sample in own], 1),
    )


def _per_row(samples: list[dict[str, Any]], rows: int) -> list[float]:
    return [sum(sample["seconds"]) / rows for sample in samples]


def _own_peak(samples: list[dict[str, Any]]) -> list[float]:
    return [sample["peak"] - sample["inputs"] - sample["results"] for sample in samples]


def _mib(count: float) -> float:
    return count / 2**20
