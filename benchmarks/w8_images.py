"""W8: 64 pictures of mixed sizes and modes in one call, image-classification, a model of ViT-base's size.

The weights are random, and so are the labels: what counts is the speed, and how far scores are from transformers'.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import pictures
from benchmarks.contenders import TRANSFORMERS
from benchmarks.field import Bench, Entrant, Lane, say, shown
from benchmarks.report import Result, Table, ratios, spread
from benchmarks.worker import WorkerError

_COUNT = 64
_PROBED = 8


def run(bench: Bench) -> Result:
    """Run the scenario."""
    bench.close()  # the other scenarios' processes would share the memory
    count = bench.scaled(_COUNT, least=4)
    entrants = _entrants(bench, count)
    try:
        lanes = bench.race(_lanes(bench, entrants, count))
    finally:
        for entrant in entrants:
            entrant.worker.close()
    table = _table(count, lanes)
    table.notes += [f"{entrant.contender.name}: {entrant.detail}." for entrant in entrants]
    facts = {"model": pictures.NAME, "pictures": count}
    return Result(scenario="W8", weights=pictures.WEIGHTS, tables=[table], lanes=lanes, facts=facts)


def classify(loaded: pictures.Loaded, texts: Sequence[str], setting: pictures.Setting) -> dict[str, Any]:
    """Time one call with pictures, whose numbers stand where others have texts, inside the worker."""
    drawn = [loaded.pictures[int(number)] for number in texts]
    started = time.perf_counter()
    scores = loaded(drawn, setting)
    return {"seconds": [time.perf_counter() - started], "scores": scores}


def difference(wanted: Sequence[Mapping[str, float]], found: Sequence[Mapping[str, float]]) -> float:
    """Give the largest difference between two scores of the same class for the same picture."""
    pairs = zip(wanted, found, strict=True)
    return max(abs(score - other[label]) for one, other in pairs for label, score in one.items())


def _entrants(bench: Bench, count: int) -> list[Entrant]:
    """Load who takes part, each in its process."""
    entrants = []
    for contender in bench.contenders:
        if contender.name not in pictures.LOADERS:
            continue
        say(f"loading {contender.name}, {pictures.NAME}")
        given = {"contender": contender.name, "count": count}
        try:
            worker, facts = bench.start(f"w8-{contender.name}", "benchmarks.pictures:Loaded", **given)
        except WorkerError as error:
            bench.failures[contender.name] = str(error)
        else:
            entrants.append(Entrant(contender=contender, worker=worker, detail=facts["detail"]))
    return entrants


def _lanes(bench: Bench, entrants: list[Entrant], count: int) -> list[Lane]:
    """Find each contender's best setting, and make the lanes that run it."""
    numbers = [str(number) for number in range(count)]
    lanes = []
    for entrant in entrants:
        settings = pictures.settings(entrant.contender.name, bench.hardware.cores)
        job = "benchmarks.w8_images:classify"
        lane = bench.lane(entrant, job, numbers, settings=settings, parts=[numbers[:_PROBED]])
        lanes += [lane] if lane else []
    return lanes


def _table(count: int, lanes: Sequence[Lane]) -> Table:
    took = {lane.name: [sum(sample["seconds"]) for sample in lane.samples] for lane in lanes}
    scores = {lane.name: lane.samples[-1]["scores"] for lane in lanes}
    table = Table(
        title=f"{count} pictures of mixed sizes and modes, image-classification, {pictures.NAME}",
        columns=("contender", "setting", "seconds", "pictures/s", "x transformers", "largest difference"),
        notes=[
            "Median (min-max) over the rounds; ratios are taken within a round.",
            "Largest difference: of a score, from transformers' in fp32, over all classes and pictures.",
            "Targets: 3 x transformers' best, 1 x the best peer.",
        ],
    )
    for lane in lanes:
        own = took[lane.name]
        table.rows.append(
            (
                lane.name,
                shown(lane.setting) or "-",
                spread(own),
                spread([count / each for each in own], 1),
                spread(ratios(took.get(TRANSFORMERS, []), own)),
                f"{difference(scores[TRANSFORMERS], scores[lane.name]):.1e}" if TRANSFORMERS in scores else "-",
            )
        )
    return table
