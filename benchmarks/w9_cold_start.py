"""W9: from the start of a process to its first result with a warm cache, and the peak of its memory; BERT-base size.

Every measurement is a fresh process. The warm-up runs each contender once, so that fastpipe's artifact is built and
every file is in the system's cache. Beside it: what making the pipeline alone takes, with a warm cache and, once, an
empty one.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from benchmarks import data
from benchmarks.contenders import TRANSFORMERS
from benchmarks.field import Bench, Lane, probe, say, shown
from benchmarks.report import Result, Table, ratios, spread
from benchmarks.worker import ROOT, WorkerError, environment

MODEL = "bert-base"
_FLOOR = "imports of torch and transformers"


def run(bench: Bench) -> Result:
    """Run the scenario."""
    bench.close()  # the other scenarios' processes would share the memory and the caches
    maker, _ = bench.start("model", "benchmarks.w9_cold_start:Maker", model=MODEL)
    maker.close()
    lanes, firsts = [], {}
    for contender in bench.contenders:
        if contender.runner:
            lanes += _lane(bench, contender.name, contender.precision, "fastpipe", contender.options, [{}])
            say(f"building {contender.name} in an empty cache")
            with contextlib.suppress(WorkerError):  # the lane has said so
                wanted = _wanted(bench, "fastpipe", contender.options, first=True)
                firsts[contender.name] = start_to_result(bench, wanted)
        elif contender.name == TRANSFORMERS:
            threads = dict.fromkeys((bench.hardware.cores, 1))
            settings = [{"threads": count} for count in threads]
            lanes += _lane(bench, contender.name, contender.precision, "transformers", {}, settings)
    lanes += _lane(bench, _FLOOR, "", "", {}, [{}])
    finished = bench.race(lanes)
    return Result(
        scenario="W9",
        weights=data.WEIGHTS,
        tables=[_table(finished), _constructions(finished, firsts)],
        lanes=finished,
        facts={"model": MODEL, "first": firsts},
    )


class Maker:
    """Saves the model, in a process that has ended before anything is measured."""

    def __init__(self, workspace: str, model: str) -> None:
        self.folder = data.save_model(workspace, model)

    def facts(self) -> dict[str, Any]:
        """Give what the parent may know."""
        return {"folder": self.folder}


def _lane(
    bench: Bench, name: str, precision: str, library: str, options: Mapping[str, Any], settings: list[dict[str, int]]
) -> list[Lane]:
    """Warm the caches, and find the better number of threads where there is a choice."""

    def start(setting: dict[str, int]) -> dict[str, Any]:
        return start_to_result(bench, _wanted(bench, library, options, threads=setting.get("threads", 0)))

    say(f"warming {name}")
    try:
        setting, probed = probe(lambda setting, _: sum(start(setting)["seconds"]), settings, [[]])
    except WorkerError as error:
        bench.failures[name] = str(error)
        return []
    return [Lane(name=name, ask=lambda: start(setting), precision=precision, setting=setting, probed=probed)]


def _wanted(
    bench: Bench, library: str, options: Mapping[str, Any], *, threads: int = 0, first: bool = False
) -> dict[str, Any]:
    """Say what a fresh process is to load; `first` is with an empty cache."""
    model = str(data.model_folder(bench.workspace, MODEL))
    return {"library": library, "model": model, "options": dict(options), "threads": threads, "first": first}


def start_to_result(bench: Bench, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Time a fresh process from its start until its result has come.

    Raises:
        WorkerError: The process ended without a result.
    """
    command = [sys.executable, "-m", "benchmarks.cold_start", json.dumps(wanted)]
    with tempfile.TemporaryFile("w+") as log:
        started = time.perf_counter()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, env=environment(bench.workspace)
        ) as process:
            assert process.stdout is not None
            line = next((line for line in process.stdout if line.startswith('{"result"')), "")
            seconds = time.perf_counter() - started
        if not line:
            log.seek(0)
            raise WorkerError(f"no result; the process said: {log.read()[-2000:]}")
    found = json.loads(line)
    return {"seconds": [seconds], **{name: value for name, value in found.items() if name != "result"}}


def _table(lanes: list[Lane]) -> Table:
    took = {lane.name: [sum(sample["seconds"]) for sample in lane.samples] for lane in lanes}
    peaks = {lane.name: [float(sample["peak_rss_bytes"]) for sample in lane.samples] for lane in lanes}
    table = Table(
        title="process start to first result with a warm cache, text-classification, BERT-base size",
        columns=("contender", "setting", "seconds", "of transformers' time", "peak RSS MiB", "of transformers' peak"),
        notes=[
            "Median (min-max) over the rounds; ratios are taken within a round; each measurement is a fresh process.",
            "Peak RSS counts mapped files, too. Targets: 1.0 of transformers' time, 0.7 of its peak.",
        ],
    )
    for lane in lanes:
        table.rows.append(
            (
                lane.name,
                shown(lane.setting) or "-",
                spread(took[lane.name]),
                spread(ratios(took[lane.name], took.get(TRANSFORMERS, []))),
                spread([peak / 2**20 for peak in peaks[lane.name]], 0),
                spread(ratios(peaks[lane.name], peaks.get(TRANSFORMERS, []))),
            )
        )
    return table


def _constructions(lanes: list[Lane], firsts: Mapping[str, Mapping[str, Any]]) -> Table:
    """Show what making a pipeline takes: the first time, from then on, and in transformers."""
    table = Table(
        title="making the pipeline, imports excluded, text-classification, BERT-base size",
        columns=("contender", "cache", "seconds", "peak RSS MiB"),
        notes=["Warm cache: median (min-max) over the rounds. Empty: once, exports and checks included."],
    )
    for lane in lanes:
        if "construction_s" not in lane.samples[0]:
            continue
        ours = lane.name in firsts
        if ours:
            first = firsts[lane.name]
            peak = first["construction_peak_bytes"] / 2**20
            table.rows.append((lane.name, "empty", f"{first['construction_s']:.2f}", f"{peak:.0f}"))
        table.rows.append(
            (
                lane.name,
                "warm" if ours else "-",
                spread([sample["construction_s"] for sample in lane.samples]),
                spread([sample["construction_peak_bytes"] / 2**20 for sample in lane.samples], 0),
            )
        )
    return table
