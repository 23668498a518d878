"""W4: one text a call, of 8, 64 and 512 tokens, no text twice: how long does a caller wait?

Transformers runs at the best number of threads for each length. The ceiling is the tokenizer and the bare engine, with
nothing between them.
"""

from __future__ import annotations

from benchmarks import data
from benchmarks.contenders import TRANSFORMERS
from benchmarks.field import Bench, Lane, shown
from benchmarks.report import Result, Table, percentile, ratios, spread

MODEL = "distilbert-base"
# Calls a round by tokens of the text: about the same time for each.
CALLS = {8: 60, 64: 30, 512: 10}
_PROBED = 6
_BARE = "bare "


def run(bench: Bench) -> Result:
    """Run the scenario."""
    tables, lanes = [], []
    for tokens, calls in CALLS.items():
        finished = _race(bench, tokens, bench.scaled(calls, least=2))
        tables.append(_table(finished, tokens))
        lanes += finished
    facts = {"model": MODEL, "calls_a_round": {str(n): bench.scaled(calls, least=2) for n, calls in CALLS.items()}}
    return Result(scenario="W4", weights=data.WEIGHTS, tables=tables, lanes=lanes, facts=facts)


def _race(bench: Bench, tokens: int, calls: int) -> list[Lane]:
    texts = data.exact_texts(calls + _PROBED, tokens)
    probed, measured = texts[:_PROBED], texts[_PROBED:]
    lanes = []
    for entrant in bench.entrants(MODEL):
        # One text makes one batch, whatever the batch size.
        settings = [
            {name: value for name, value in setting.items() if name != "batch_size"}
            for setting in entrant.contender.settings(bench.hardware.cores)
        ]
        distinct = [setting for n, setting in enumerate(settings) if setting not in settings[:n]]
        lane = bench.lane(
            entrant, "benchmarks.jobs:one_by_one", measured, settings=distinct, parts=[probed[:3], probed[3:]]
        )
        if lane:
            lanes.append(lane)
        if lane and entrant.contender.runner:
            lanes.append(
                Lane(
                    name=_BARE + entrant.contender.name,
                    ask=lambda worker=entrant.worker: worker.ask(  # type: ignore[misc]
                        "benchmarks.ceilings:bare_one_by_one", texts=measured
                    ),
                )
            )
    return bench.race(lanes)


def _table(lanes: list[Lane], tokens: int) -> Table:
    medians = {lane.name: [1000 * percentile(s["seconds"], 50) for s in lane.samples] for lane in lanes}
    table = Table(
        title=f"one text of {tokens} tokens a call, text-classification, DistilBERT-base size",
        columns=("contender", "setting", "p50 ms", "p95 ms", "x transformers", "ms above bare"),
        notes=[
            "p50: median (min-max) of the rounds' medians; p95: over all calls of all rounds.",
            "Bare: the tokenizer and the engine, nothing else.",
            "Ms above bare: p50 minus that of bare in the same round; target: 0.3.",
        ],
    )
    for lane in lanes:
        own = medians[lane.name]
        bare = medians.get(_BARE + lane.name, own)
        calls = [1000 * second for sample in lane.samples for second in sample["seconds"]]
        above = [mine - theirs for mine, theirs in zip(own, bare, strict=True)]
        table.rows.append(
            (
                lane.name,
                shown(lane.setting) or "-",
                spread(own),
                f"{percentile(calls, 95):.2f}",
                spread(ratios(medians.get(TRANSFORMERS, []), own)),
                spread(above) if bare is not own else "-",
            )
        )
    return table
