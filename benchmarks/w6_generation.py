"""W6: text generation, SmolLM2-135M-Instruct with its real weights: one chat, and eight of different lengths.

All decode greedily and write the same number of tokens: no token ends an answer. Beside the
speed stands how much of the text is what transformers writes in fp32.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from benchmarks import memory, smollm2, writers
from benchmarks.contenders import TRANSFORMERS
from benchmarks.field import Bench, Entrant, Lane, say, shown
from benchmarks.report import Result, Table, ratios, spread
from benchmarks.worker import WorkerError

PEER = "llama-cpp-q8_0"
_NEW_TOKENS = 64
_PROBED_TOKENS = 8


def run(bench: Bench) -> Result:
    """Run the scenario.

    Raises:
        ModuleNotFoundError: The weights are not installed.
    """
    bench.close()  # the other scenarios' processes would share the memory
    if not smollm2.folder_in(bench.workspace).is_dir():
        smollm2.packaged()
    tokens = bench.scaled(_NEW_TOKENS, least=4)
    entrants = _entrants(bench)
    tables, lanes = [], []
    try:
        for prompts in (smollm2.PROMPTS[:1], smollm2.PROMPTS):
            finished = bench.race(_lanes(bench, entrants, prompts, tokens))
            tables.append(_table(prompts, tokens, finished))
            lanes += finished
    finally:
        for entrant in entrants:
            entrant.worker.close()
    tables[0].notes += [f"{entrant.contender.name}: {entrant.detail}." for entrant in entrants]
    facts = {"model": smollm2.NAME, "new_tokens": tokens, "prompts": list(smollm2.PROMPTS)}
    return Result(scenario="W6", weights=smollm2.WEIGHTS, tables=tables, lanes=lanes, facts=facts)


def generate(
    loaded: writers.Loaded, texts: Sequence[str], setting: writers.Setting, tokens: int = _PROBED_TOKENS
) -> dict[str, Any]:
    """Time one call with chats, and for a single one its first token in another call, inside the worker."""
    prompts = [loaded.chat(text) for text in texts]
    started = time.perf_counter()
    ids = loaded.writer.write(prompts, tokens, setting)
    seconds = time.perf_counter() - started
    if any(len(each) != tokens for each in ids):
        raise RuntimeError(f"{tokens} new tokens were asked for, and there are {[len(each) for each in ids]}")
    sample = {"seconds": [seconds], "ids": ids, "peak": memory.peak_rss_bytes()}
    return sample if len(prompts) > 1 else {**sample, "first_s": loaded.writer.first(prompts[0], tokens, setting)}


def agreement(wanted: Sequence[Sequence[int]], written: Sequence[Sequence[int]]) -> float:
    """Give the share of tokens that are the same at the same place, from 0 to 1."""
    pairs = [pair for one, other in zip(wanted, written, strict=True) for pair in zip(one, other, strict=True)]
    return sum(one == other for one, other in pairs) / max(1, len(pairs))


def _entrants(bench: Bench) -> list[Entrant]:
    """Load who takes part, each in its process."""
    entrants = []
    for contender in bench.contenders:
        if contender.name not in writers.LOADERS:
            continue
        say(f"loading {contender.name}, {smollm2.NAME}")
        try:
            worker, facts = bench.start(f"w6-{contender.name}", "benchmarks.writers:Loaded", contender=contender.name)
        except WorkerError as error:
            bench.failures[contender.name] = str(error)
        else:
            entrants.append(Entrant(contender=contender, worker=worker, detail=facts["detail"]))
    return entrants


def _lanes(bench: Bench, entrants: list[Entrant], prompts: Sequence[str], tokens: int) -> list[Lane]:
    """Find each contender's best setting for these chats, and make the lanes that run it."""
    lanes = []
    for entrant in entrants:
        name = entrant.contender.name
        lane = bench.lane(
            entrant,
            "benchmarks.w6_generation:generate",
            list(prompts),
            settings=writers.settings(name, bench.hardware.cores, len(prompts)),
            parts=[list(prompts)],
            name=name + _ending(prompts),
            tokens=tokens,
        )
        lanes += [lane] if lane else []
    return lanes


def _ending(prompts: Sequence[str]) -> str:
    return f", {len(prompts)} chats" if len(prompts) > 1 else ""


def _table(prompts: Sequence[str], tokens: int, lanes: list[Lane]) -> Table:
    took = {lane.name: [sum(sample["seconds"]) for sample in lane.samples] for lane in lanes}
    ids = {lane.name: lane.samples[-1]["ids"] for lane in lanes}
    ending = _ending(prompts)
    plain = TRANSFORMERS + ending
    table = Table(
        title=f"{len(prompts)} chat(s), {tokens} new tokens each, greedy, {smollm2.NAME}",
        columns=(
            "contender",
            "setting",
            "tokens/s",
            "x transformers",
            f"x {PEER}",
            "first token ms",
            "tokens as transformers'",
            "peak RSS MiB",
        ),
        notes=[
            "Median (min-max) over the rounds; ratios are taken within a round.",
            "Everybody writes the same number of tokens: none of them ends an answer.",
            "Tokens as transformers': the same at the same place in fp32; after the first other one, texts part.",
            f"Targets: 6 x transformers in fp32, 1 x {PEER} at equal bits.",
        ],
    )
    for lane in lanes:
        own = took[lane.name]
        table.rows.append(
            (
                lane.name,
                shown(lane.setting) or "-",
                spread([len(prompts) * tokens / each for each in own], 1),
                spread(ratios(took.get(plain, []), own)),
                spread(ratios(took.get(PEER + ending, []), own)),
                spread([1000 * sample["first_s"] for sample in lane.samples if "first_s" in sample], 1),
                f"{100 * agreement(ids[plain], ids[lane.name]):.1f} %" if plain in ids else "-",
                f"{max(sample['peak'] for sample in lane.samples) / 2**20:.0f}",
            )
        )
    return table
