"""W1: a list of 1,000 texts of mixed lengths, classified in one call by a DistilBERT of the base size.

Word counts are lognormal (median 25, sigma 0.9, from 2 to 380). Every contender gets the whole list at once, with
`truncation=True`; the peers run at the best batch size, and transformers at the best number of threads, too, that a
short probe on every so-manieth text finds.
"""

from __future__ import annotations

from benchmarks import data
from benchmarks.contenders import TRANSFORMERS
from benchmarks.field import Bench, Entrant, Lane, shown
from benchmarks.report import Result, Table, ratios, spread
from benchmarks.worker import WorkerError

MODEL = "distilbert-base"
TEXTS = 1000
_PART = 32
_BARE = "bare "
_PRODUCT = "int8 product"


def run(bench: Bench) -> Result:
    """Run the scenario."""
    texts = data.mixed_texts(bench.scaled(TEXTS, least=4))
    sample = data.every(texts, 2 * _PART)
    parts = [sample[::2], sample[1::2]]
    entrants = bench.entrants(MODEL)
    lanes: list[Lane] = []
    for entrant in entrants:
        settings = entrant.contender.settings(bench.hardware.cores)
        lane = bench.lane(entrant, "benchmarks.jobs:as_list", texts, settings=settings, parts=parts)
        if lane:
            lanes.append(lane)
    differences = _differences(entrants, lanes, sample)
    ceilings = [_bare(entrant, texts) for entrant in entrants if entrant.contender.runner]
    worker, _ = bench.start("int8-product", "benchmarks.ceilings:Product", model=MODEL, cores=bench.hardware.cores)
    try:
        ceilings.append(Lane(name=_PRODUCT, ask=lambda: worker.ask("benchmarks.ceilings:int8_product", texts=texts)))
        finished = bench.race([*lanes, *ceilings])
    finally:
        worker.close()
    table = _table(finished, texts, differences)
    table.notes += [f"{entrant.contender.name}: {entrant.detail}." for entrant in entrants]
    return Result(
        scenario="W1", weights=data.WEIGHTS, tables=[table], lanes=finished, facts={"texts": len(texts), "model": MODEL}
    )


def _bare(entrant: Entrant, texts: list[str]) -> Lane:
    return Lane(
        name=_BARE + entrant.contender.name,
        ask=lambda: entrant.worker.ask("benchmarks.ceilings:bare_batches", texts=texts),
    )


def _differences(entrants: list[Entrant], lanes: list[Lane], sample: list[str]) -> dict[str, float]:
    """Give each contender's largest difference from transformers' scores, so that wrong answers do not pass as fast."""
    settings = {lane.name: lane.setting for lane in lanes}
    answers: dict[str, list[float]] = {}
    for entrant in entrants:
        name = entrant.contender.name
        if name in settings:
            try:
                answers[name] = entrant.worker.ask("benchmarks.jobs:scores", texts=sample, setting=settings[name])
            except WorkerError:  # the race meets it again, and reports it
                continue
    wanted = answers.get(TRANSFORMERS)
    if wanted is None:
        return {}
    return {
        name: max(abs(one - other) for one, other in zip(scores, wanted, strict=True))
        for name, scores in answers.items()
    }


def _table(lanes: list[Lane], texts: list[str], differences: dict[str, float]) -> Table:
    took = {lane.name: [sum(sample["seconds"]) for sample in lane.samples] for lane in lanes}
    peers = [name for name in took if not name.startswith(("fastpipe-", _BARE, _PRODUCT))]
    best_peer = [min(times) for times in zip(*(took[name] for name in peers), strict=True)]
    table = Table(
        title=f"{len(texts)} texts of mixed lengths, text-classification, DistilBERT-base size",
        columns=(
            "contender", "setting", "seconds", "texts/s", "x transformers", "x best peer", "of bare",
            "of int8 product", "score difference",
        ),
        notes=[
            "Median (min-max) over the rounds; ratios are taken within a round.",
            "Bare: fastpipe's runner on the same tokenized, sorted, padded batches.",
            "Int8 product: operations without padding / rate of a large torch._int_mm in the same round.",
            "Score difference: the largest to transformers' over a sample of the texts.",
            "Targets: 7 x transformers' best, 2 x the best peer, 75 % of the int8 product.",
        ],
    )  # fmt: skip
    for lane in lanes:
        own = took[lane.name]
        bare = took.get(_BARE + lane.name, [])
        product = took[_PRODUCT] if lane.precision == "int8" and _PRODUCT in took else []
        is_ours = lane.name.startswith("fastpipe-")
        table.rows.append(
            (
                lane.name,
                shown(lane.setting) or "-",
                spread(own),
                spread([len(texts) / seconds for seconds in own], 1),
                spread(ratios(took.get(TRANSFORMERS, []), own)),
                spread(ratios(best_peer, own)) if is_ours else "-",
                spread([100 * share for share in ratios(bare, own)], 0, " %"),
                spread([100 * share for share in ratios(product, own)], 0, " %"),
                f"{differences[lane.name]:.1g}" if lane.name in differences else "-",
            )
        )
    return table
