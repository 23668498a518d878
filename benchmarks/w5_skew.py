"""W5: 63 short texts and one of 500 tokens in one list: does the long one make the short ones slow?

A batch of all 64 is padded to 500 tokens. The yardstick is the same engine called with one text after the other.
"""

from __future__ import annotations

from benchmarks import data
from benchmarks.contenders import TRANSFORMERS
from benchmarks.field import Bench, Entrant, Lane, shown
from benchmarks.report import Result, Table, percentile, ratios, spread

MODEL = "distilbert-base"
SHORT, SHORT_TOKENS, LONG_TOKENS = 63, 10, 500
# A quick measurement is repeated within its round, and its median counts.
_REPEAT = 3
_ONE_BY_ONE = ", one by one"
_PROBED = 15


def run(bench: Bench) -> Result:
    """Run the scenario."""
    count = bench.scaled(SHORT, least=3)
    texts = data.exact_texts(count, SHORT_TOKENS)
    texts.insert(count // 2, data.exact_texts(1, LONG_TOKENS)[0])
    lanes: list[Lane] = []
    for entrant in bench.entrants(MODEL):
        if entrant.contender.runner:
            lanes += _ours(bench, entrant, texts)
        elif entrant.contender.name == TRANSFORMERS:
            for size in (1, 64):
                lanes += _theirs(bench, entrant, texts, size)
    finished = bench.race(lanes)
    facts = {"model": MODEL, "short": count, "short_tokens": SHORT_TOKENS, "long_tokens": LONG_TOKENS}
    return Result(
        scenario="W5", weights=data.WEIGHTS, tables=[_table(finished, len(texts) - 1)], lanes=finished, facts=facts
    )


def _ours(bench: Bench, entrant: Entrant, texts: list[str]) -> list[Lane]:
    """The list call, and the loop that it must not be slower than."""
    name = entrant.contender.name
    both = ((name, "benchmarks.jobs:as_list"), (name + _ONE_BY_ONE, "benchmarks.jobs:in_turn"))
    lanes = [
        bench.lane(entrant, job, texts, settings=[{}], parts=[texts], name=row, repeat=_REPEAT) for row, job in both
    ]
    return [lane for lane in lanes if lane]


def _theirs(bench: Bench, entrant: Entrant, texts: list[str], batch_size: int) -> list[Lane]:
    """Transformers at one batch size, with the better number of threads."""
    threads = dict.fromkeys(setting["threads"] for setting in entrant.contender.settings(bench.hardware.cores))
    long = max(range(len(texts)), key=lambda position: len(texts[position]))
    sample = [*texts[: min(_PROBED, long)], texts[long]]
    lane = bench.lane(
        entrant,
        "benchmarks.jobs:as_list",
        texts,
        settings=[{"threads": count, "batch_size": batch_size} for count in threads],
        parts=[sample],
        name=f"{entrant.contender.name}, batch {batch_size}",
    )
    return [lane] if lane else []


def _table(lanes: list[Lane], short: int) -> Table:
    took = {lane.name: [percentile(sample["seconds"], 50) for sample in lane.samples] for lane in lanes}
    yardstick = took.get(f"{TRANSFORMERS}, batch 1", [])
    table = Table(
        title=f"{short} texts of {SHORT_TOKENS} tokens and one of {LONG_TOKENS}, DistilBERT-base size",
        columns=("contender", "setting", "ms", "of one by one", "x transformers at batch 1"),
        notes=[
            "Median (min-max) over the rounds; ratios are taken within a round.",
            "Of one by one: time of the list call / time of the same pipeline called text by text; target: 1.05.",
        ],
    )
    for lane in lanes:
        own = took[lane.name]
        table.rows.append(
            (
                lane.name,
                shown(lane.setting) or "-",
                spread([1000 * seconds for seconds in own], 1),
                spread(ratios(own, took.get(lane.name + _ONE_BY_ONE, []))),
                spread(ratios(yardstick, own)),
            )
        )
    return table
