"""Soak: does memory grow in a process that lives long? Calls of every shape, and pipelines that come and go.

The calls are 20,000 with the tiny model: most of them with one text of 3 to 128 tokens, some with a list of up to 16.
The pipelines are 20 of a model of real size, each built from a warm cache, called once and dropped. Every measurement
is a fresh process.
"""

from __future__ import annotations

import gc
import random
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import data, loaders, memory
from benchmarks.contenders import Contender
from benchmarks.field import Bench, Lane
from benchmarks.loaders import Loaded
from benchmarks.report import Result, Table, spread

CALLED, BUILT = "distilbert-tiny", "all-MiniLM-L6-v2"
CALLS, PIPELINES = 20_000, 20
SHORTEST, LONGEST, LONGEST_LIST = 3, 128, 16
# Of so many calls one has a list.
_ONE_LIST_IN = 8
_SAMPLES = 100
_CALLS, _PIPELINES = ", calls", ", pipelines"


def run(bench: Bench) -> Result:
    """Run the scenario."""
    calls, pipelines = bench.scaled(CALLS, least=12), bench.scaled(PIPELINES, least=3)
    called = bench.race([_calls(bench, contender, calls) for contender in _built(bench, CALLED)])
    built = bench.race([_pipelines(bench, contender, pipelines) for contender in _built(bench, BUILT)])
    return Result(
        scenario="SOAK",
        weights="; ".join(f"{model}: {data.MODELS[model].weights}" for model in (CALLED, BUILT)),
        tables=[_calls_table(called, calls), _pipelines_table(built, pipelines)],
        lanes=[*called, *built],
        facts={"model": f"{CALLED}, {BUILT}", "calls": calls, "pipelines": pipelines},
    )


def _built(bench: Bench, model: str) -> list[Contender]:
    """Build the artifacts, and give those who can run the model."""
    contenders = [entrant.contender for entrant in bench.entrants(model, runners=True)]
    bench.close()
    return contenders


def _calls(bench: Bench, contender: Contender, calls: int) -> Lane:
    def ask() -> dict[str, Any]:
        worker, _ = bench.start(contender.name, contender.load, model=CALLED, **contender.options)
        try:
            sample: dict[str, Any] = worker.ask("benchmarks.soak:many_calls", calls=calls)
        finally:
            worker.close()
        return sample

    return Lane(name=contender.name + _CALLS, ask=ask, precision=contender.precision)


def _pipelines(bench: Bench, contender: Contender, pipelines: int) -> Lane:
    def ask() -> dict[str, Any]:
        load = "benchmarks.soak:Builder"
        worker, facts = bench.start(contender.name, load, model=BUILT, options=contender.options)
        try:
            return {**facts, **worker.ask("benchmarks.soak:built_and_dropped", pipelines=pipelines)}
        finally:
            worker.close()

    return Lane(name=contender.name + _PIPELINES, ask=ask, precision=contender.precision)


class Builder:
    """Builds one pipeline after the other, inside the worker."""

    def __init__(self, workspace: str, model: str, options: dict[str, str]) -> None:
        self._arguments = {"workspace": workspace, "model": model, **options}
        self._folder = Path(data.save_model(workspace, model))

    def facts(self) -> dict[str, Any]:
        """Give what the parent may know: the size of the file with the weights."""
        return {"model_bytes": sum(file.stat().st_size for file in self._folder.glob("*.safetensors"))}

    def build(self) -> Loaded:
        """Build the pipeline."""
        return loaders.fastpipe(**self._arguments)


def many_calls(loaded: Loaded, calls: int) -> dict[str, Any]:
    """Call with texts and lists of every shape, and give resident memory now and then, inside the worker."""
    chance = random.Random(CALLS)
    words, _ = data.pieces()
    every = max(1, calls // _SAMPLES)
    resident = []

    def text() -> str:
        return " ".join(chance.choices(words, k=chance.randint(SHORTEST, LONGEST) - 2))

    started = time.perf_counter()
    for number in range(1, calls + 1):
        as_list = chance.randrange(_ONE_LIST_IN) == 0
        loaded([text() for _ in range(chance.randint(2, LONGEST_LIST))] if as_list else text())
        if number % every == 0:
            resident.append(memory.rss_bytes())
    return {"seconds": [time.perf_counter() - started], "resident": resident}


def built_and_dropped(builder: Builder, pipelines: int) -> dict[str, Any]:
    """Build, call and drop pipelines, and give resident memory after each was dropped, inside the worker."""
    resident = []
    started = time.perf_counter()
    for _ in range(pipelines):
        loaded = builder.build()
        loaded("A pipeline that is not needed for long.")
        del loaded
        gc.collect()
        resident.append(memory.rss_bytes())
    return {"seconds": [time.perf_counter() - started], "resident": resident}


def thirds(resident: list[int]) -> tuple[float, float]:
    """Give the medians of the middle third and of the last one."""
    third = len(resident) // 3
    return median(resident[-2 * third : -third]), median(resident[-third:])


def _calls_table(lanes: list[Lane], calls: int) -> Table:
    table = Table(
        title=f"{calls:,} calls with a text of {SHORTEST} to {LONGEST} tokens, or up to {LONGEST_LIST}, tiny model",
        columns=("contender", "ms per call", "at first MiB", "middle third MiB", "last third MiB", "growth"),
        notes=[
            "Median (min-max) over the rounds; each measurement is a fresh process.",
            "Thirds: of the calls, the median of resident memory; growth: from middle to last; target: 5 %.",
        ],
    )
    for lane in lanes:
        both = [thirds(sample["resident"]) for sample in lane.samples]
        table.rows.append(
            (
                lane.name,
                spread([1000 * sum(sample["seconds"]) / calls for sample in lane.samples]),
                spread([sample["resident"][0] / 2**20 for sample in lane.samples], 0),
                spread([middle / 2**20 for middle, _ in both], 0),
                spread([last / 2**20 for _, last in both], 0),
                spread([100 * (last / middle - 1) for middle, last in both], 1, " %"),
            )
        )
    return table


def _pipelines_table(lanes: list[Lane], pipelines: int) -> Table:
    table = Table(
        title=f"{pipelines} pipelines built from a warm cache, called once and dropped, {BUILT}",
        columns=(
            "contender",
            "seconds each",
            "after the first MB",
            "after the last MB",
            "more MB",
            "model MB",
            "of model",
        ),
        notes=[
            "Median (min-max) over the rounds; each measurement is a fresh process; MB: 1,000,000 bytes.",
            "After: resident memory when the pipeline was dropped. Model: the file with its weights, in fp32.",
            "Of model: what is held more after the last than after the first, in sizes of the model; target: 1.",
        ],
    )
    for lane in lanes:
        more = [sample["resident"][-1] - sample["resident"][0] for sample in lane.samples]
        table.rows.append(
            (
                lane.name,
                spread([sum(sample["seconds"]) / pipelines for sample in lane.samples]),
                spread([sample["resident"][0] / 1e6 for sample in lane.samples], 0),
                spread([sample["resident"][-1] / 1e6 for sample in lane.samples], 0),
                spread([count / 1e6 for count in more], 1),
                spread([sample["model_bytes"] / 1e6 for sample in lane.samples][:1], 0),
                spread([count / sample["model_bytes"] for count, sample in zip(more, lane.samples, strict=True)]),
            )
        )
    return table
