"""What the scenarios W1 to W3 have in common: a list of texts in one call, beside the peers and the ceilings.

Every contender gets the whole list at once, with `truncation=True`; the peers run at the best batch size, and
transformers at the best number of threads, too, that a short probe on every so-manieth text finds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import data, overhead
from benchmarks.contenders import TRANSFORMERS
from benchmarks.field import Bench, Entrant, Lane, shown
from benchmarks.report import Result, Table, ratios, spread
from benchmarks.worker import WorkerError

_BARE = "bare "
_PRODUCT = "int8 product"
_TENSORS = ", tensors"
# Answers that are compared with transformers'.
_COMPARED = 64


@dataclass(frozen=True, kw_only=True)
class ListScenario:
    """A scenario with one list.

    Attributes:
        name: W1 to W3.
        title: Of the table, after the number of texts.
        model: One of `data.MODELS`.
        texts: Makes so many texts.
        count: How many there are at the full size.
        parts: How many parts the probe's sample has.
        part: Texts of one part; a batch size that is larger is not probed.
        targets: What the table says of them.
        tensors: Whether pipelines also run with `return_tensors=True`.
        overhead: Whether it is measured where fastpipe's time goes.
    """

    name: str
    title: str
    model: str
    texts: Callable[[int], list[str]]
    count: int
    parts: int
    part: int
    targets: str
    tensors: bool = False
    overhead: bool = False


@dataclass(frozen=True, kw_only=True)
class Likeness:
    """How near a contender's answers are to transformers', so that wrong answers do not pass as fast.

    Attributes:
        column: Of the table.
        note: What it means.
        job: Gives a contender's answers.
        compare: Makes a cell of its answers and transformers'.
    """

    column: str
    note: str
    job: str
    compare: Callable[[list[Any], list[Any]], str]


def _farthest_score(own: list[float], wanted: list[float]) -> str:
    return f"{max(abs(one - other) for one, other in zip(own, wanted, strict=True)):.1g}"


def _smallest_cosine(own: list[list[float]], wanted: list[list[float]]) -> str:
    return f"{np.einsum('nd,nd->n', own, wanted).min():.4f}"


def _shared_entities(own: list[list[str]], wanted: list[list[str]]) -> str:
    found, known = ({(row, token) for row, tokens in enumerate(rows) for token in tokens} for rows in (own, wanted))
    return f"{100 * len(found & known) / len(found | known):.1f} %" if found | known else "-"


LIKENESS: Mapping[str, Likeness] = {
    "text-classification": Likeness(
        column="score difference",
        note="Score difference: the largest to transformers' over a sample of the texts.",
        job="benchmarks.jobs:scores",
        compare=_farthest_score,
    ),
    "feature-extraction": Likeness(
        column="cosine min",
        note="Cosine: of a text's mean vector to transformers', the smallest over a sample of the texts.",
        job="benchmarks.jobs:vectors",
        compare=_smallest_cosine,
    ),
    "token-classification": Likeness(
        column="same entities",
        note="Same entities: tokens labelled as by transformers, of those that one of the two labels, over a sample.",
        job="benchmarks.jobs:entities",
        compare=_shared_entities,
    ),
}


def run(bench: Bench, scenario: ListScenario) -> Result:
    """Run a scenario."""
    texts = scenario.texts(bench.scaled(scenario.count, least=4))
    sample = data.every(texts, scenario.parts * scenario.part)
    parts = [part for first in range(scenario.parts) if (part := sample[first :: scenario.parts])]
    entrants = bench.entrants(scenario.model)
    lanes: list[Lane] = []
    for entrant in entrants:
        every = entrant.contender.settings(bench.hardware.cores)
        settings = [setting for setting in every if setting.get("batch_size", 1) <= scenario.part]
        lane = bench.lane(entrant, "benchmarks.jobs:as_list", texts, settings=settings, parts=parts)
        if lane:
            lanes.append(lane)
        if lane and scenario.tensors and entrant.contender.pipeline:
            lanes.append(_with_tensors(entrant, lane, texts))
    likeness = LIKENESS[data.MODELS[scenario.model].task]
    near = _compared(entrants, lanes, likeness, data.every(sample, _COMPARED))
    ceilings = [_bare(entrant, texts) for entrant in entrants if entrant.contender.runner]
    product, _ = bench.start(
        "int8-product", "benchmarks.ceilings:Product", model=scenario.model, cores=bench.hardware.cores
    )
    try:
        ceilings.append(Lane(name=_PRODUCT, ask=lambda: product.ask("benchmarks.ceilings:int8_product", texts=texts)))
        finished = bench.race([*lanes, *ceilings])
    finally:
        product.close()
    table = _table(scenario, finished, texts, likeness, near)
    table.notes += [f"{entrant.contender.name}: {entrant.detail}." for entrant in entrants]
    tables = [table]
    if scenario.overhead and any(entrant.contender.runner for entrant in entrants):
        measured = overhead.run(bench, entrants, texts)
        tables.append(overhead.table(measured, f"{len(texts)} {scenario.title}"))
        finished = [*finished, *measured]
    return Result(
        scenario=scenario.name,
        weights=data.MODELS[scenario.model].weights,
        tables=tables,
        lanes=finished,
        facts={"texts": len(texts), "model": scenario.model},
    )


def _with_tensors(entrant: Entrant, lane: Lane, texts: list[str]) -> Lane:
    """Make the lane of the same call that leaves its answers as tensors, at the same setting."""
    arguments = {"texts": texts, "setting": lane.setting, "options": {"return_tensors": True}}
    return Lane(
        name=lane.name + _TENSORS,
        ask=lambda: entrant.worker.ask("benchmarks.jobs:as_list", **arguments),
        precision=lane.precision,
        setting=lane.setting,
    )


def _bare(entrant: Entrant, texts: list[str]) -> Lane:
    return Lane(
        name=_BARE + entrant.contender.name,
        ask=lambda: entrant.worker.ask("benchmarks.ceilings:bare_batches", texts=texts),
    )


def _compared(entrants: list[Entrant], lanes: list[Lane], likeness: Likeness, sample: list[str]) -> dict[str, str]:
    """Compare each contender's answers with transformers'; nothing where that one takes no part."""
    settings = {lane.name: lane.setting for lane in lanes}
    answers: dict[str, list[Any]] = {}
    for entrant in entrants:
        name = entrant.contender.name
        if name in settings:
            # At the library's own batch size: pipelines of transformers that batch hand out the padding, too.
            setting = {option: value for option, value in settings[name].items() if option != "batch_size"}
            try:
                answers[name] = entrant.worker.ask(likeness.job, texts=sample, setting=setting)
            except WorkerError:  # the race meets it again, and reports it
                continue
    wanted = answers.get(TRANSFORMERS)
    return {} if wanted is None else {name: likeness.compare(own, wanted) for name, own in answers.items()}


def _table(
    scenario: ListScenario, lanes: list[Lane], texts: list[str], likeness: Likeness, near: dict[str, str]
) -> Table:
    took = {lane.name: [sum(sample["seconds"]) for sample in lane.samples] for lane in lanes}
    # The tokenizer and the engine one after the other, by the name of the bare engine's lane.
    encoded = {
        lane.name: [sum(sample["seconds"]) + sample["encode_batch_s"] for sample in lane.samples]
        for lane in lanes
        if lane.name.startswith(_BARE)
    }
    peers = [name for name in took if not name.startswith(("fastpipe-", _BARE, _PRODUCT))]
    best_peer = [min(times) for times in zip(*(took[name] for name in peers), strict=True)]
    table = Table(
        title=f"{len(texts)} {scenario.title}",
        columns=(
            "contender", "setting", "seconds", "texts/s", "x transformers", "x best peer", "of bare",
            "of int8 product", "x encode + bare", likeness.column,
        ),
        notes=[
            "Median (min-max) over the rounds; ratios are taken within a round.",
            "Bare: fastpipe's runner on the same tokenized, sorted, padded batches.",
            "Int8 product: operations without padding / rate of a large torch._int_mm in the same round.",
            "X encode + bare: time / (one encode_batch of the tokenizer with all texts + bare).",
            likeness.note,
            *(["Tensors: with return_tensors=True, beside transformers with it."] if scenario.tensors else []),
            f"Targets: {scenario.targets}.",
        ],
    )  # fmt: skip
    for lane in lanes:
        own = took[lane.name]
        contender = lane.name.removesuffix(_TENSORS)
        theirs = TRANSFORMERS + lane.name.removeprefix(contender)
        bare = took.get(_BARE + contender, [])
        product = took.get(_PRODUCT, []) if lane.precision in ("int8", "auto") else []
        is_ours = lane.name.startswith("fastpipe-")
        table.rows.append(
            (
                lane.name,
                shown(lane.setting) or "-",
                spread(own),
                spread([len(texts) / seconds for seconds in own], 1),
                spread(ratios(took.get(theirs, []), own)),
                spread(ratios(best_peer, own)) if is_ours else "-",
                spread([100 * share for share in ratios(bare, own)], 0, " %"),
                spread([100 * share for share in ratios(product, own)], 0, " %"),
                spread(ratios(own, encoded.get(_BARE + contender, []))),
                near.get(lane.name, "-"),
            )
        )
    return table
