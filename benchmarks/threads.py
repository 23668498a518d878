"""Threads: 8 threads that call one pipeline at once, beside one thread with the same calls. Results must be the same.

A measurement is both, one after the other; a thread with somebody else's result, or a result that is not that of one
thread, is a failure of the contender.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

from benchmarks import data
from benchmarks.field import Bench, Lane
from benchmarks.jobs import Setting
from benchmarks.loaders import Loaded
from benchmarks.report import Result, Table, ratios, spread

MODEL = "distilbert-base"
THREADS = 8
LIST = 16
TEXTS, LISTS = 25, 4  # calls of each thread
FEWEST_TOKENS, MOST_TOKENS = 8, 64
# How far a score may be from that of one thread; those of two texts are a hundred times as far from each other.
_TOLERANCE = 1e-5
_SHAPES = {"one text": "benchmarks.threads:with_texts", "a list": "benchmarks.threads:with_lists"}


def run(bench: Bench) -> Result:
    """Run the scenario."""
    counts = {
        "one text": THREADS * bench.scaled(TEXTS, least=2),
        "a list": THREADS * bench.scaled(LISTS, least=1) * LIST,
    }
    lanes: list[Lane] = []
    for entrant in bench.entrants(MODEL, runners=True):
        for shape, job in _SHAPES.items():
            texts = data.ranged_texts(counts[shape], FEWEST_TOKENS, MOST_TOKENS)
            name = f"{entrant.contender.name}, {shape}"
            lane = bench.lane(entrant, job, texts, settings=[{}], parts=[texts[: THREADS * LIST]], name=name)
            lanes += [lane] if lane else []
    finished = bench.race(lanes)
    facts = {"model": MODEL, "threads": THREADS, "texts": counts}
    return Result(
        scenario="THREADS", weights=data.MODELS[MODEL].weights, tables=[_table(finished)], lanes=finished, facts=facts
    )


def with_texts(loaded: Loaded, texts: list[str], setting: Setting) -> dict[str, Any]:
    """Time calls with one text, inside the worker."""
    return _both(loaded, [[text] for text in texts], setting, single=True)


def with_lists(loaded: Loaded, texts: list[str], setting: Setting) -> dict[str, Any]:
    """Time calls with a list, inside the worker."""
    return _both(loaded, [texts[start : start + LIST] for start in range(0, len(texts), LIST)], setting, single=False)


def _both(loaded: Loaded, calls: Sequence[list[str]], setting: Setting, *, single: bool) -> dict[str, Any]:
    """Make the calls in one thread, and then in several at once.

    Raises:
        RuntimeError: A result is not that of one thread.
    """
    barrier = Barrier(THREADS + 1)

    def call(texts: list[str]) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = loaded(texts[0] if single else texts, setting)
        return answers

    def share(thread: int) -> list[list[dict[str, Any]]]:
        barrier.wait()
        return [call(texts) for texts in calls[thread::THREADS]]

    started = time.perf_counter()
    wanted = [call(texts) for texts in calls]
    alone = time.perf_counter() - started
    with ThreadPoolExecutor(THREADS) as pool:
        shares = [pool.submit(share, thread) for thread in range(THREADS)]
        barrier.wait()
        started = time.perf_counter()
        found = [future.result() for future in shares]
        seconds = time.perf_counter() - started
    difference = 0.0
    for thread, answers in enumerate(found):
        for texts, answer, right in zip(calls[thread::THREADS], answers, wanted[thread::THREADS], strict=True):
            difference = max(difference, _difference(texts, answer, right))
    return {"seconds": [seconds], "one_thread_s": alone, "texts": sum(map(len, calls)), "difference": difference}


def _difference(texts: list[str], answers: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> float:
    """Give the largest difference of the scores."""
    differences = [0.0]
    for text, answer, right in zip(texts, answers, wanted, strict=True):
        differences.append(abs(answer["score"] - right["score"]))
        if answer["label"] != right["label"] or differences[-1] > _TOLERANCE:
            raise RuntimeError(f"{THREADS} threads give {answer} where one gives {right}, for the text {text!r}")
    return max(differences)


def _table(lanes: list[Lane]) -> Table:
    table = Table(
        title=f"{THREADS} threads at one pipeline, text-classification, DistilBERT-base size",
        columns=(
            "contender, a call with",
            "one thread texts/s",
            f"{THREADS} threads texts/s",
            "x one thread",
            "difference",
        ),
        notes=[
            f"Texts of {FEWEST_TOKENS} to {MOST_TOKENS} tokens; a list has {LIST} of them.",
            "Median (min-max) over the rounds; ratios are taken within a round; target: 1.0.",
            f"Difference: the largest of a score to that of one thread; more than {_TOLERANCE:g} is a failure.",
        ],
    )
    for lane in lanes:
        alone = [sample["one_thread_s"] for sample in lane.samples]
        own = [sum(sample["seconds"]) for sample in lane.samples]
        counts = [sample["texts"] for sample in lane.samples]
        table.rows.append(
            (
                lane.name,
                spread([count / seconds for count, seconds in zip(counts, alone, strict=True)], 1),
                spread([count / seconds for count, seconds in zip(counts, own, strict=True)], 1),
                spread(ratios(alone, own)),
                f"{max(sample['difference'] for sample in lane.samples):.1g}",
            )
        )
    return table
