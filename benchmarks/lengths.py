"""Lengths: texts that are all of one length, of 8 to 512 tokens, so that nobody pads: texts per second by length.

This is what the plot of the page shows. The model is W1's; each length has as many texts as make up the same number of
tokens, and each contender the setting that is the best for that length.
"""

from __future__ import annotations

from benchmarks import data
from benchmarks.field import Bench, Lane
from benchmarks.report import Result, Table, spread

MODEL = "distilbert-base"
LENGTHS = (8, 32, 64, 128, 256, 512)
TOKENS = 4096
_PROBED = 32


def lane_name(contender: str, tokens: int) -> str:
    """Name the lane of a contender at one length."""
    return f"{contender}, {tokens} tokens"


def run(bench: Bench) -> Result:
    """Run the scenario."""
    counts = {tokens: bench.scaled(TOKENS // tokens, least=2) for tokens in LENGTHS}
    finished: list[Lane] = []
    for tokens, count in counts.items():
        texts = data.exact_texts(count, tokens)
        lanes = []
        for entrant in bench.entrants(MODEL):
            # A batch cannot be larger than the list: such a setting would be probed for nothing.
            settings = [s for s in entrant.contender.settings(bench.hardware.cores) if s.get("batch_size", 1) <= count]
            settings = settings or entrant.contender.settings(bench.hardware.cores)[:1]
            lane = bench.lane(
                entrant,
                "benchmarks.jobs:as_list",
                texts,
                settings=settings,
                parts=[data.every(texts, _PROBED)],
                name=lane_name(entrant.contender.name, tokens),
            )
            if lane:
                lanes.append(lane)
        finished += bench.race(lanes)
    table = _table(finished, [contender.name for contender in bench.contenders], counts)
    facts = {"model": MODEL, "texts": {str(tokens): count for tokens, count in counts.items()}}
    return Result(scenario="LENGTHS", weights=data.MODELS[MODEL].weights, tables=[table], lanes=finished, facts=facts)


def _table(lanes: list[Lane], contenders: list[str], counts: dict[int, int]) -> Table:
    took = {lane.name: [sum(sample["seconds"]) for sample in lane.samples] for lane in lanes}
    table = Table(
        title="texts per second of one length, text-classification, DistilBERT-base size",
        columns=("contender", *(f"{tokens} tokens" for tokens in counts)),
        notes=["Median (min-max) over the rounds; no two texts are equal."],
    )
    for contender in contenders:
        cells = [
            spread([count / seconds for seconds in took.get(lane_name(contender, tokens), [])], 1)
            for tokens, count in counts.items()
        ]
        if set(cells) != {"-"}:
            table.rows.append((contender, *cells))
    return table
