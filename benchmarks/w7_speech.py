"""W7: speech to text, whisper-tiny.en with its real weights: short recordings in one call, a long one, a live stream.

Speed is how many seconds of audio a second takes; beside it stands what it costs in words, against what was said and
against transformers in fp32. All search with as many beams: five, the default of transformers' pipeline and of
faster-whisper, and one, greedily. The long recording is the short ones joined, with pauses.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from itertools import product
from typing import Any

from benchmarks import listeners, speech, whisper_weights
from benchmarks.contenders import TRANSFORMERS
from benchmarks.field import Bench, Entrant, Lane, say, shown
from benchmarks.listeners import Loaded, Setting
from benchmarks.report import Result, Table, ratios, spread
from benchmarks.worker import WorkerError

PEER = "faster-whisper-int8"
LIVE = ("fastpipe-auto", TRANSFORMERS)
_LONG_S, _LIVE_S = 180, 60
_CHUNK_S = 0.1
_PROBED = 4
_SHORT, _LONG, _GREEDY, _STREAM = "", ", long", ", greedy", ", live"  # what follows a contender's name in its lanes


def run(bench: Bench) -> Result:
    """Run the scenario.

    Raises:
        ModuleNotFoundError: The weights or the recordings are not installed.
    """
    bench.close()  # the other scenarios' processes would share the memory
    whisper_weights.packaged()
    short = speech.clips()
    short = short[: bench.scaled(len(short), least=2)]
    joined_s = [bench.scaled(seconds, least=5) for seconds in (_LONG_S, _LIVE_S)]
    long, live = (speech.joined(short, seconds) for seconds in joined_s)
    entrants = _entrants(bench, short=len(short), joined_s=joined_s)
    try:
        tables, lanes = [], []
        amounts = ((short, f"{len(short)} short recordings in one call"), ([long], "a long recording"))
        for beams, (clips, title) in product((listeners.BEAMS, 1), amounts):
            ending = (_SHORT if len(clips) > 1 else _LONG) + (_GREEDY if beams == 1 else "")
            finished = bench.race(_lanes(bench, entrants, clips, beams, ending))
            decoding = f"{beams} beams" if beams > 1 else "greedily"
            tables.append(_table(f"{title}, {decoding}", clips, finished, ending))
            lanes += finished
        streams = bench.race(_live(entrants, live))
        tables += [_live_table(live, streams)] if streams else []
    finally:
        for entrant in entrants:
            entrant.worker.close()
    tables[0].notes += [f"{entrant.contender.name}: {entrant.detail}." for entrant in entrants]
    facts = {
        "model": whisper_weights.NAME,
        "recordings": {clip.name: {"seconds": clip.seconds, "words": clip.words} for clip in short},
        "long_s": long.seconds,
        "live_s": live.seconds,
    }
    weights = whisper_weights.WEIGHTS
    return Result(scenario="W7", weights=weights, tables=tables, lanes=[*lanes, *streams], facts=facts)


def transcribe(loaded: Loaded, texts: Sequence[str], setting: Setting) -> dict[str, Any]:
    """Time one call with recordings, whose names stand where others have texts, inside the worker."""
    audios = [loaded.audios[name] for name in texts]
    started = time.perf_counter()
    texts = loaded.listener(audios, setting)
    return {"seconds": [time.perf_counter() - started], "texts": texts}


def stream(loaded: Loaded, name: str) -> dict[str, Any]:
    """Transcribe a recording as if it came from a microphone, inside the worker."""
    import fastpipe

    audio, size = loaded.audios[name], round(_CHUNK_S * speech.RATE)
    chunks = (audio[start : start + size] for start in range(0, len(audio), size))
    assert isinstance(loaded.listener, listeners.Pipe)
    updates = list(fastpipe.stream_transcribe(loaded.listener.pipe, chunks))
    summary = updates[-1].summary
    return {
        "seconds": [summary.processing_s],
        "texts": ["".join(update.text for update in updates)],
        "offline": loaded.listener([audio], {})[0],
        "summary": {**vars(summary), "real_time_factor": summary.real_time_factor},
    }


def _entrants(bench: Bench, *, short: int, joined_s: list[int]) -> list[Entrant]:
    """Load who takes part, each in its process."""
    entrants = []
    for contender in bench.contenders:
        if contender.name not in listeners.LOADERS:
            continue
        say(f"loading {contender.name}, {whisper_weights.NAME}")
        given = {"contender": contender.name, "short": short, "joined_s": joined_s}
        try:
            worker, facts = bench.start(f"w7-{contender.name}", "benchmarks.listeners:Loaded", **given)
        except WorkerError as error:
            bench.failures[contender.name] = str(error)
        else:
            entrants.append(Entrant(contender=contender, worker=worker, detail=facts["detail"]))
    return entrants


def _lanes(bench: Bench, entrants: list[Entrant], clips: Sequence[speech.Clip], beams: int, ending: str) -> list[Lane]:
    """Find each contender's best setting for these recordings, and make the lanes that run it."""
    names = [clip.name for clip in clips]
    lanes = []
    for entrant in entrants:
        settings = listeners.settings(entrant.contender.name, bench.hardware.cores, beams)
        name = entrant.contender.name + ending
        lane = bench.lane(
            entrant, "benchmarks.w7_speech:transcribe", names, settings=settings, parts=[names[:_PROBED]], name=name
        )
        lanes += [lane] if lane else []
    return lanes


def _live(entrants: list[Entrant], clip: speech.Clip) -> list[Lane]:
    """Make the lanes of the live stream, for those that are pipelines."""
    lanes = []
    for entrant in entrants:
        if entrant.contender.name in LIVE:
            ask = partial(entrant.worker.ask, "benchmarks.w7_speech:stream", name=clip.name)
            lanes.append(Lane(name=entrant.contender.name + _STREAM, ask=ask, precision=entrant.contender.precision))
    return lanes


def _table(title: str, clips: Sequence[speech.Clip], lanes: list[Lane], ending: str) -> Table:
    took = {lane.name: [sum(sample["seconds"]) for sample in lane.samples] for lane in lanes}
    texts = {lane.name: lane.samples[-1]["texts"] for lane in lanes}
    seconds = sum(clip.seconds for clip in clips)
    table = Table(
        title=f"{title}, {seconds:.0f} s of speech, {whisper_weights.NAME}",
        columns=(
            "contender",
            "setting",
            "seconds",
            "x real time",
            "x transformers",
            f"x {PEER}",
            "wrong words",
            "not as",
        ),
        notes=[
            "Median (min-max) over the rounds; ratios are taken within a round.",
            "Wrong words: of the words that are said. Not as: words that differ from transformers' in fp32.",
            f"Targets: 3 x transformers, 1 x {PEER}.",
        ],
    )
    for lane in lanes:
        own = took[lane.name]
        table.rows.append(
            (
                lane.name,
                shown(lane.setting) or "-",
                spread(own),
                spread([seconds / each for each in own], 1),
                spread(ratios(took.get(TRANSFORMERS + ending, []), own)),
                spread(ratios(took.get(PEER + ending, []), own)),
                _wrong([clip.words for clip in clips], texts[lane.name]),
                _wrong(texts[TRANSFORMERS + ending], texts[lane.name]) if TRANSFORMERS + ending in texts else "-",
            )
        )
    return table


def _live_table(clip: speech.Clip, lanes: list[Lane]) -> Table:
    table = Table(
        title=f"a live stream in chunks of {_CHUNK_S:g} s, {clip.seconds:.0f} s of speech, {whisper_weights.NAME}",
        columns=(
            "contender",
            "x real time",
            "transcriptions",
            "delay mean s",
            "p95 s",
            "max s",
            "wrong words",
            "not as",
        ),
        notes=[
            "fastpipe.stream_transcribe around the contender's pipeline; chunks wait for nothing.",
            "Delay: from the end of a word until it is final, in seconds of audio, over all words.",
            "Not as: words that differ from those of the same pipeline offline.",
        ],
    )
    for lane in lanes:
        figures = [sample["summary"] for sample in lane.samples]
        last = lane.samples[-1]
        table.rows.append(
            (
                lane.name,
                spread([1 / each["real_time_factor"] for each in figures], 1),
                spread([float(each["transcriptions"]) for each in figures], 0),
                *(spread([each[f"delay_{kind}_s"] for each in figures]) for kind in ("mean", "p95", "max")),
                _wrong([clip.words], last["texts"]),
                _wrong([last["offline"]], last["texts"]),
            )
        )
    return table


def _wrong(said: Sequence[str], heard: Sequence[str]) -> str:
    counted = [speech.errors(one, other) for one, other in zip(said, heard, strict=True)]
    return f"{100 * sum(wrong for wrong, _ in counted) / max(1, sum(words for _, words in counted)):.1f} %"
