"""Live transcription of a language that is understood exactly: nothing is lost, doubled, taken back or kept."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastpipe
from fastpipe.errors import InputError, OptionError
from tests.live.tones import RATE, WORDS, TonePipe, cut, speech

KINDS = ("whisper", "ctc", "segments", "plain")
SAID = st.lists(
    st.tuples(st.integers(0, len(WORDS) - 1), st.sampled_from([0.08, 0.1, 0.3, 0.9])), min_size=1, max_size=60
)
SIZES = st.lists(st.integers(1, 12_000), min_size=1, max_size=5)


def live(pipe: Any, chunks: Iterable[Any], **options: Any) -> list[fastpipe.TranscriptUpdate]:
    return list(fastpipe.stream_transcribe(pipe, chunks, **options))


def text(updates: Iterable[fastpipe.TranscriptUpdate]) -> str:
    return "".join(update.text for update in updates)


def offline(samples: np.ndarray, kind: str) -> str:
    return TonePipe(kind)({"raw": samples, "sampling_rate": RATE})["text"]


def endless(seed: int = 0) -> Iterable[np.ndarray]:
    """Somebody who never stops and hardly pauses."""
    chance = random.Random(seed)
    while True:
        yield speech([(chance.randrange(len(WORDS)), 0.1)])


@pytest.mark.parametrize("vad", ["energy", None])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(said=SAID, sizes=SIZES)
def test_the_final_text_is_what_the_pipeline_says_of_the_whole(kind, vad, said, sizes):
    samples = speech(said)
    updates = live(TonePipe(kind), cut(samples, sizes), vad=vad, keep_up=False)
    assert text(updates) == offline(samples, kind)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=10, deadline=None)
@given(said=SAID, sizes=SIZES)
def test_updates_do_not_depend_on_how_the_stream_is_cut(kind, said, sizes):
    samples = speech(said)
    whole, parts = (live(TonePipe(kind), chunks, keep_up=False) for chunks in ([samples], cut(samples, sizes)))
    assert [(u.text, u.partial, u.words, u.delay_s) for u in parts] == [
        (u.text, u.partial, u.words, u.delay_s) for u in whole
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_times_go_forward_and_are_those_of_the_words(kind):
    said = [(number % 16, 0.1 + 0.8 * (number % 9 == 0)) for number in range(60)]
    words = [word for update in live(TonePipe(kind), [speech(said)], keep_up=False) for word in update.words]
    assert [word.text.strip() for word in words] == [WORDS[number] for number, _ in said]
    times = [second for word in words for second in (word.start_s, word.end_s)]
    assert times == sorted(times)
    if kind in ("whisper", "ctc"):
        begins = np.cumsum([0.0] + [0.3 + pause for _, pause in said])[:-1]
        assert [word.start_s for word in words] == pytest.approx(list(begins), abs=0.025)


def test_partial_text_comes_before_final_text():
    said = speech([(1, 0.1), (2, 0.1), (3, 0.1), (4, 0.1), (5, 0.1), (6, 0.1)])
    updates = live(TonePipe(), [said], keep_up=False, interval_s=0.9)
    assert (updates[0].text, updates[0].partial) == ("", " one two threeish")
    assert (updates[1].text, updates[1].partial) == (" one two", " three four five")
    assert (updates[1].start_s, updates[1].end_s) == pytest.approx((0.0, 0.7), abs=0.02)
    assert updates[1].delay_s == pytest.approx(1.83 - 0.3, abs=0.03)
    assert text(updates) == " one two three four five six"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vad", ["energy", None])
def test_window_and_delay_are_bounded_on_an_endless_stream(kind, vad):
    pipe = TonePipe(kind)
    samples = np.concatenate([chunk for _, chunk in zip(range(450), endless(), strict=False)])
    updates = live(pipe, [samples], vad=vad, window_s=8, max_delay_s=3, keep_up=False)
    summary = updates[-1].summary
    assert summary.audio_s == pytest.approx(len(samples) / RATE)
    assert max(pipe.seconds) <= 8.1
    assert summary.delay_max_s <= 4.2
    assert text(updates) == offline(samples, kind)


def test_nothing_grows_with_the_stream():
    def held() -> int:
        updates = fastpipe.stream_transcribe(TonePipe(), endless(), keep_up=False)
        for update in updates:
            if update.end_s > length_s:
                break
        session = updates.gi_frame.f_locals["session"]
        return sum(
            value.nbytes if isinstance(value, np.ndarray) else len(value)
            for value in (*vars(session).values(), *vars(session._window).values())
            if hasattr(value, "__len__")
        )

    length_s = 30
    short = held()
    length_s = 300
    assert held() <= short + 20


def test_a_word_that_keeps_changing_is_final_by_force():
    class Fickle(TonePipe):
        def words(self, samples):
            turn = len(self.seconds)
            return [(f"{text}{turn}", start, end) for text, start, end in super().words(samples)]

    updates = live(Fickle(), [np.concatenate([c for _, c in zip(range(60), endless(), strict=False)])], keep_up=False)
    assert 5 < updates[-1].summary.delay_max_s <= 6.01
    assert updates[-1].summary.words > 50


def test_silence_costs_no_transcription_and_ends_an_utterance():
    pipe = TonePipe()
    silence = np.zeros(20 * RATE, np.float32)
    updates = live(pipe, [silence, speech([(1, 0.1), (2, 0.0)]), silence], keep_up=False)
    assert text(updates) == " one two"
    assert len(pipe.seconds) == updates[-1].summary.transcriptions <= 2
    assert updates[-1].summary.delay_max_s <= 1.1
    assert updates[-2].end_s == pytest.approx(20.7, abs=0.02)


def test_a_click_is_no_speech():
    pipe = TonePipe()
    click = np.zeros(3 * RATE, np.float32)
    click[RATE : RATE + 300] = 0.5
    assert text(live(pipe, [click])) == ""
    assert pipe.seconds == []


def test_more_words_than_anybody_can_speak_are_not_believed():
    class Looping(TonePipe):
        def words(self, samples):
            heard = super().words(samples)
            if len(self.seconds) in (3, 6, 7):
                end_s = len(samples) / RATE
                heard += [("bye", end_s, end_s)] * 200
            return heard

    samples = speech([(number % 16, 0.1) for number in range(30)])
    assert text(live(Looping(), [samples], keep_up=False)) == offline(samples, "whisper")

    class Polite(TonePipe):
        def words(self, samples):
            return [(word, 0.3, 0.4) for word in ("thank", "you", "for", "watching")]

    noise = np.zeros(3 * RATE, np.float32)
    noise[RATE : RATE + 3200] = 0.1
    pipe = Polite()
    assert text(live(pipe, [noise])) == ""
    assert len(pipe.seconds) == 1


@pytest.mark.parametrize("chunks", [[], [np.zeros(0, np.float32)], [b""], [np.zeros(7, np.float32)]])
def test_a_stream_of_nothing_ends_with_a_summary(chunks):
    (update,) = live(TonePipe(), chunks)
    assert (update.text, update.partial, update.words) == ("", "", ())
    assert (update.summary.words, update.summary.transcriptions) == (0, 0)
    assert update.summary.real_time_factor >= 0


def test_the_summary_has_the_figures_of_all_updates():
    pipe = TonePipe()
    updates = live(pipe, cut(speech([(n % 16, 0.1) for n in range(40)]), [4000]), keep_up=False)
    summary = updates[-1].summary
    assert [update.summary for update in updates[:-1]] == [None] * (len(updates) - 1)
    assert summary.words == sum(len(update.words) for update in updates) == 40
    assert summary.transcriptions == len(pipe.seconds)
    assert summary.delay_max_s == max(update.delay_s for update in updates)
    assert 0 < summary.delay_mean_s <= summary.delay_p95_s <= summary.delay_max_s
    assert summary.real_time_factor == summary.processing_s / summary.audio_s > 0


def test_async_is_the_same():
    chunks = cut(speech([(n % 16, 0.1 + 0.8 * (n % 7 == 0)) for n in range(40)]), [3000, 50, 9000])

    async def source() -> AsyncIterator[np.ndarray]:
        for chunk in chunks:
            await asyncio.sleep(0)
            yield chunk

    async def collect() -> list[fastpipe.TranscriptUpdate]:
        return [update async for update in fastpipe.stream_transcribe(TonePipe(), source(), keep_up=False)]

    asynchronous, synchronous = asyncio.run(collect()), live(TonePipe(), chunks, keep_up=False)
    assert [(u.text, u.partial, u.words) for u in asynchronous] == [(u.text, u.partial, u.words) for u in synchronous]


def test_async_leaves_the_loop_free():
    ticks: list[int] = []

    class Slow(TonePipe):
        def __call__(self, audio, **given):
            before = len(ticks)
            for _ in range(1000):
                if len(ticks) > before:  # the loop turns while the pipeline is busy
                    return super().__call__(audio, **given)
                asyncio.run(asyncio.sleep(0.001))
            raise AssertionError("the loop stood still")

    async def source() -> AsyncIterator[np.ndarray]:
        yield speech([(1, 0.1)] * 6)

    async def tick() -> None:
        while True:
            ticks.append(1)
            await asyncio.sleep(0.001)

    async def collect() -> str:
        task = asyncio.create_task(tick())
        updates = [update async for update in fastpipe.stream_transcribe(Slow(), source())]
        task.cancel()
        return text(updates)

    assert asyncio.run(collect()).strip().split() == ["one"] * 6


def test_a_slow_pipeline_transcribes_less_often_instead_of_falling_behind(monkeypatch):
    from fastpipe.live import session

    clock = [0.0]
    monkeypatch.setattr(session.time, "perf_counter", lambda: clock[0])

    class Slow(TonePipe):
        def words(self, samples):
            clock[0] += 3.0
            return super().words(samples)

    samples = np.concatenate([chunk for _, chunk in zip(range(75), endless(), strict=False)])
    often, seldom = (live(Slow(), [samples], keep_up=keep_up)[-1].summary for keep_up in (False, True))
    assert often.real_time_factor > 2.5
    assert seldom.real_time_factor <= 1.3
    assert seldom.words == often.words == 75


def test_what_was_heard_before_the_source_fails_comes_first():
    def source():
        yield speech([(1, 0.1), (2, 0.1)])
        raise ConnectionResetError("the line is dead")

    heard: list[str] = []
    with pytest.raises(ConnectionResetError, match="dead"):
        heard.extend(update.text for update in fastpipe.stream_transcribe(TonePipe(), source()))
    assert "".join(heard) == " one two"


def test_a_bad_chunk_is_named():
    with pytest.raises(InputError, match="item 2: the chunk has values that are not finite") as raised:
        live(TonePipe(), [speech([(1, 0.1)]), b"\0\0", np.array([0.0, np.nan], np.float32)])
    assert raised.value.index == 2


def test_an_error_of_the_pipeline_is_its_own_and_nothing_is_asked_again():
    class Broken(TonePipe):
        def __call__(self, audio, **given):
            if self.seconds:
                raise MemoryError("too much")
            return super().__call__(audio, **given)

    pipe = Broken()
    with pytest.raises(MemoryError, match="too much"):
        live(pipe, [speech([(1, 0.1)] * 20)])
    assert len(pipe.seconds) == 1


def test_timestamps_that_a_model_lacks_are_asked_for_once_and_those_named_are_insisted_on():
    pipe = TonePipe("segments")
    assert text(live(pipe, [speech([(1, 0.1)])])) == " one"
    with pytest.raises(ValueError, match="alignment heads"):
        live(TonePipe("segments"), [speech([(1, 0.1)])], timestamps="word")
    live(pipe, [speech([(1, 0.1)])], generate_kwargs={"num_beams": 2}, timestamps="none")
    assert pipe.parameters[-1] == {"generate_kwargs": {"num_beams": 2}}


def test_whisper_is_kept_from_repeating_itself_for_ever():
    pipe = TonePipe()
    pipe.type = "seq2seq_whisper"
    live(pipe, [speech([(1, 0.1)])], generate_kwargs={"num_beams": 2})
    assert pipe.parameters[-1]["generate_kwargs"]["num_beams"] == 2
    assert 16 < pipe.parameters[-1]["generate_kwargs"]["max_new_tokens"] < 30
    live(pipe, [speech([(1, 0.1)])], generate_kwargs={"max_new_tokens": 7})
    assert pipe.parameters[-1] == {"generate_kwargs": {"max_new_tokens": 7}}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"interval_s": 0}, "interval_s"),
        ({"interval_s": "1"}, "interval_s"),
        ({"window_s": float("inf")}, "window_s"),
        ({"window_s": 8}, "max_delay_s"),
        ({"interval_s": 7}, "interval_s"),
        ({"silence_s": -1}, "silence_s"),
        ({"vad": "loud"}, "'energy', 'silero', None"),
        ({"vad": 3}, "frame"),
        ({"timestamps": "char"}, "'auto', 'word', 'segment', 'none'"),
        ({"sampling_rate": 0}, "sampling_rate"),
        ({"sampling_rate": 44100.0}, "sampling_rate"),
    ],
)
def test_an_option_that_cannot_be_is_refused_at_once(options, named):
    with pytest.raises(OptionError, match=named):
        fastpipe.stream_transcribe(TonePipe(), [], **options)


@pytest.mark.parametrize("chunks", [np.zeros(5, np.float32), b"\0\0", {"raw": 1, "sampling_rate": 2}, "a.wav", 5, None])
def test_a_single_chunk_is_no_stream(chunks):
    with pytest.raises(OptionError, match="not an iterator of chunks"):
        fastpipe.stream_transcribe(TonePipe(), chunks)


def test_whisper_has_a_longest_window():
    pipe = TonePipe()
    pipe.type = "seq2seq_whisper"
    with pytest.raises(OptionError, match="less than 30 s"):
        fastpipe.stream_transcribe(pipe, [], window_s=30)
