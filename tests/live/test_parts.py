"""The parts of live transcription: chunks, rates, speech detectors, and what is made of a pipeline's answer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpipe.errors import InputError
from fastpipe.live.chunks import Reader
from fastpipe.live.detectors import EnergyDetector, SileroDetector
from fastpipe.live.records import Word
from fastpipe.live.resample import Resampler
from fastpipe.live.transcripts import agreed, known, transcript
from fastpipe.live.window import Window
from tests.live.tones import RATE, cut

RAMP = np.linspace(-0.5, 0.5, 1000, dtype=np.float32)
PCM = (RAMP * 32768).astype("<i2")


@pytest.mark.parametrize(
    "chunk",
    [
        RAMP,
        RAMP.astype(np.float64),
        RAMP[:, None],
        torch.from_numpy(RAMP),
        PCM,
        PCM.tobytes(),
        bytearray(PCM.tobytes()),
        {"raw": RAMP, "sampling_rate": RATE},
        {"array": PCM, "sampling_rate": np.int64(RATE), "path": None},
    ],
)
def test_every_form_of_a_chunk_is_the_same_audio(chunk):
    before = dict(chunk) if isinstance(chunk, dict) else None
    samples = Reader(RATE, RATE).read(chunk)
    assert samples.dtype == np.float32
    assert samples == pytest.approx(RAMP, abs=2**-15)
    if before is not None:
        assert list(chunk) == list(before)
        assert all(chunk[key] is before[key] for key in before)
    if isinstance(chunk, np.ndarray):
        assert not np.shares_memory(samples, chunk)


def test_a_sample_may_be_split_between_two_chunks():
    reader, raw = Reader(RATE, RATE), PCM.tobytes()
    parts = [reader.read(part) for part in (raw[:1], raw[1:4], b"", raw[4:333], raw[333:])]
    assert np.concatenate(parts) == pytest.approx(PCM / 32768)


@pytest.mark.parametrize(
    ("chunk", "named"),
    [
        (None, "None"),
        ("speech.wav", "speech.wav"),
        ([[0.0, 1.0], [0.5]], "list"),
        (np.zeros((2, 100)), r"\(2, 100\)"),
        (np.zeros(4, np.int32), "int32"),
        (np.zeros(4, bool), "bool"),
        (np.array(["a"]), "<U1"),
        (np.array([np.inf], np.float32), "finite"),
        (PCM.astype(np.float32), "up to 16384"),
        ({"raw": RAMP}, "sampling_rate"),
        ({"raw": RAMP, "sampling_rate": "16000"}, "sampling_rate"),
        ({"sampling_rate": RATE}, "raw"),
        ({"raw": RAMP, "sampling_rate": 8000}, "8000 Hz"),
    ],
)
def test_what_is_no_audio_is_named_with_its_place(chunk, named):
    reader = Reader(RATE, RATE)
    reader.read(RAMP)
    with pytest.raises(InputError, match=named) as raised:
        reader.read(chunk)
    assert raised.value.index == 1
    assert raised.value.remedy


@pytest.mark.parametrize("source", [8000, 11025, 44100, 48000])
def test_another_rate_keeps_the_tone_and_its_length(source):
    time_s = np.arange(source) / source
    made = Resampler(source, RATE)(np.sin(2 * np.pi * 440 * time_s).astype(np.float32), last=True)
    assert len(made) == RATE
    wanted = np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE)
    assert made[200:-200] == pytest.approx(wanted[200:-200], abs=2e-3)


def test_what_the_new_rate_cannot_hold_is_gone():
    tone = np.sin(2 * np.pi * 12_000 * np.arange(48_000) / 48_000).astype(np.float32)
    assert np.abs(Resampler(48_000, RATE)(tone, last=True)[200:-200]).max() < 2e-3


@settings(max_examples=15, deadline=None)
@given(sizes=st.lists(st.integers(1, 5000), min_size=2, max_size=6), source=st.sampled_from([8000, 44100, 48000]))
def test_another_rate_does_not_depend_on_the_chunks(sizes, source):
    noise = np.random.default_rng(0).normal(size=10_000).astype(np.float32)
    whole, parts = Resampler(source, RATE), Resampler(source, RATE)
    made = [parts(chunk) for chunk in cut(noise, sizes)] + [parts(np.zeros(0, np.float32), last=True)]
    assert np.concatenate(made) == pytest.approx(whole(noise, last=True), abs=1e-6)


def heard(detector, samples: np.ndarray) -> list[bool]:
    return [
        detector(frame)
        for frame in samples[: len(samples) // detector.frame * detector.frame].reshape(-1, detector.frame)
    ]


@pytest.mark.parametrize("noise", [0.0, 0.001, 0.004])
def test_energy_is_speech_above_the_noise(noise):
    chance = np.random.default_rng(0)
    background = noise * chance.normal(size=3 * RATE)
    voice = background.copy()
    voice[RATE : 2 * RATE] += 0.1 * np.sin(np.arange(RATE))
    found = heard(EnergyDetector(RATE), np.concatenate([background, voice]).astype(np.float32))
    assert not any(found[40:132])
    assert all(found[135:165])
    assert not any(found[168:])


def test_loud_from_the_first_sample_and_without_end_is_speech():
    assert all(heard(EnergyDetector(RATE), (0.2 * np.sin(np.arange(60 * RATE))).astype(np.float32)))


def test_silero_hears_no_speech_in_noise_and_leaves_the_threads_alone():
    pytest.importorskip("silero_vad", reason="pip install 'transformers-fastpipe[live]'")
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        detector = SileroDetector(RATE)
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    noise = 0.1 * np.random.default_rng(0).normal(size=2 * RATE).astype(np.float32)
    assert sum(heard(detector, noise)) <= 2


def words(text: str, every_s: float = 0.5, start_s: float = 0.0) -> list[Word]:
    return [
        Word(text=f" {word}", start_s=start_s + every_s * n, end_s=start_s + every_s * (n + 1) - 0.1)
        for n, word in enumerate(text.split())
    ]


@pytest.mark.parametrize(
    ("final", "window", "count"),
    [
        ("", "a b c", 0),
        ("a b", "a b c", 2),
        ("a b", "A, b! c", 2),
        ("a b", "x b c", 2),
        ("no no", "no no no no", 2),
        ("a b c", "", 0),
        ("a b c", "b c d", 2),
        ("for", "four queens", 1),
    ],
)
def test_what_is_final_is_found_at_the_start_of_the_window(final, window, count):
    assert known(words(final), words(window)) == count


def test_times_decide_between_equals():
    window = [Word(text="illdisposed", start_s=0.0, end_s=0.9), *words("young man", start_s=1.0)]
    assert known(words("ill disposed"), window) == 1


def test_words_agree_without_case_and_marks():
    assert agreed(words("It was the best"), words("it was, the worst of times")) == 3
    assert agreed(words("... a"), words("... a b")) == 2
    assert agreed([], words("a")) == 0


def test_bare_words_get_the_spaces_of_the_text():
    chunks = [{"text": text, "timestamp": (n, n + 1)} for n, text in enumerate(("so", "it", "goes"))]
    found = transcript({"text": "so it goes", "chunks": chunks}, 10.0, 14.0)
    assert "".join(word.text for word in found.words) == "so it goes"
    assert [word.start_s for word in found.words] == [10, 11, 12]
    assert found.breaks == {1, 2, 3}


def test_words_without_spaces_stay_without():
    chunks = [{"text": text, "timestamp": (n, n + 1)} for n, text in enumerate(("你好", "世界"))]
    found = transcript({"text": "你好世界", "chunks": chunks}, 0.0, 2.0)
    assert "".join(word.text for word in found.words) == "你好世界"
    assert not found.spaced


def test_words_of_a_segment_share_its_time_and_missing_times_are_filled():
    chunks = [{"text": " a bcd.", "timestamp": (0.0, None)}, {"text": " e", "timestamp": (None, 99.0)}]
    found = transcript({"text": " a bcd. e", "chunks": chunks}, 5.0, 8.0)
    assert [(w.text, w.start_s, w.end_s) for w in found.words] == [
        (" a", 5.0, pytest.approx(5 + 3 * 2 / 7)),
        (" bcd.", pytest.approx(5 + 3 * 2 / 7), 8.0),
        (" e", 8.0, 8.0),
    ]
    assert found.breaks == {2, 3}
    assert transcript({"text": "a b"}, 0.0, 1.0).breaks == frozenset()


def test_a_window_holds_no_more_than_it_has_room_for_and_finds_quiet():
    window = Window(RATE, 2.0)
    loud = np.ones(RATE, np.float32)
    for part in (loud, loud, loud):
        window.add(part)
    assert (window.start_s, window.end_s) == (1.0, 3.0)
    window.cut(2.5)
    window.add(0 * loud[:3200])
    window.add(loud[:3200])
    assert 3.03 <= window.quietest_s(2.5, 3.4) <= 3.17
    assert not np.shares_memory(window.until(3.0), window._room)
    assert len(window.until(3.0)) == RATE // 2
