"""What listens to speech in W7, inside its worker: whisper-tiny.en in each library, behind one call."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks import speech, whisper_weights

_TASK = "automatic-speech-recognition"
_BATCH = 8
BEAMS = 5  # by default, in transformers' pipeline and in faster-whisper
_LONG_S = 30  # what Whisper hears at once

Setting = Mapping[str, int]


class Listener(Protocol):
    """A library with the model in it."""

    detail: str

    def __call__(self, audios: Sequence[np.ndarray], setting: Setting) -> list[str]:
        """Write down recordings, float32 (samples,) at 16 kHz, and give the text of each."""


class Pipe:
    """A pipeline in the manner of transformers.

    Args:
        pipe: The pipeline.
        detail: What runs.
    """

    def __init__(self, pipe: Any, detail: str) -> None:
        self.pipe = pipe
        self.detail = detail

    def __call__(self, audios: Sequence[np.ndarray], setting: Setting) -> list[str]:
        given: dict[str, Any] = dict(setting)
        if "beams" in given:
            given["generate_kwargs"] = {"num_beams": given.pop("beams")}
        if "threads" in given:
            import torch

            torch.set_num_threads(given.pop("threads"))
        if any(len(audio) > _LONG_S * speech.RATE for audio in audios):
            given["chunk_length_s"] = _LONG_S  # overlapping pieces, which can be batched
        inputs = [{"raw": audio, "sampling_rate": speech.RATE} for audio in audios]
        return [str(answer["text"]) for answer in self.pipe(inputs, **given)]


class Faster:
    """faster-whisper, which takes one recording at a time and batches the pieces of a long one.

    Args:
        folder: The model in CTranslate2's layout.
    """

    detail = "weights int8, activations int8 per row, the rest fp32; without fallback to sampling"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._models: dict[int, Any] = {}  # threads are chosen when it loads

    def __call__(self, audios: Sequence[np.ndarray], setting: Setting) -> list[str]:
        return [self._text(audio, setting) for audio in audios]

    def _text(self, audio: np.ndarray, setting: Setting) -> str:
        library = importlib.import_module("faster_whisper")
        threads = setting["threads"]
        if threads not in self._models:
            self._models[threads] = library.WhisperModel(
                str(self._folder), device="cpu", compute_type="int8", cpu_threads=threads, local_files_only=True
            )
        model = self._models[threads]
        given: dict[str, Any] = {}
        if setting.get("batch_size", 1) > 1:
            model, given = library.BatchedInferencePipeline(model), {"batch_size": setting["batch_size"]}
        long = len(audio) > _LONG_S * speech.RATE
        given |= {"beam_size": setting.get("beams", BEAMS), "without_timestamps": not long}
        segments, _ = model.transcribe(audio, temperature=0, **given)
        return "".join(segment.text for segment in segments)


def _transformers(folder: str, workspace: Path) -> Listener:
    import torch
    import transformers

    pipe = transformers.pipeline(_TASK, model=folder, device="cpu", dtype=torch.float32)
    return Pipe(pipe, "weights and activations fp32, torch eager")


def _fastpipe(folder: str, workspace: Path) -> Listener:
    import fastpipe

    pipe = fastpipe.pipeline(_TASK, model=folder)
    return Pipe(pipe, f"{pipe.plan.backend}, {pipe.plan.precision}")


def _optimum(folder: str, workspace: Path, bits: int = 32) -> Listener:
    from optimum.intel import OVModelForSpeechSeq2Seq
    from transformers import AutoFeatureExtractor, AutoTokenizer, pipeline

    exported = workspace / "optimum" / f"{whisper_weights.NAME}-openvino-{bits}"
    if not exported.is_dir():
        made = OVModelForSpeechSeq2Seq.from_pretrained(folder, export=True, compile=False, load_in_8bit=bits == 8)
        made.save_pretrained(exported)
    # The engine's default is bf16 where the CPU has it, in which this model's decoder writes nonsense.
    model = OVModelForSpeechSeq2Seq.from_pretrained(exported, ov_config={"INFERENCE_PRECISION_HINT": "f32"})
    parts = {
        "tokenizer": AutoTokenizer.from_pretrained(folder),
        "feature_extractor": AutoFeatureExtractor.from_pretrained(folder),
    }
    pipe = pipeline(_TASK, model=model, device="cpu", **parts)
    return Pipe(pipe, f"weights {'int8' if bits == 8 else 'fp32'}, the rest f32")


def _optimum_int8(folder: str, workspace: Path) -> Listener:
    return _optimum(folder, workspace, bits=8)


def _faster_whisper(folder: str, workspace: Path) -> Listener:
    return Faster(whisper_weights.packaged())


# By contender.
LOADERS: Mapping[str, Callable[[str, Path], Listener]] = {
    "fastpipe-auto": _fastpipe,
    "transformers-fp32": _transformers,
    "faster-whisper-int8": _faster_whisper,
    "optimum-openvino-fp32": _optimum,
    "optimum-openvino-int8": _optimum_int8,
}


def settings(contender: str, cores: int, beams: int) -> list[dict[str, int]]:
    """Give what is probed; fastpipe chooses by itself, Optimum's engine takes all cores."""
    threads = dict.fromkeys((cores, 1)) if contender in ("transformers-fp32", "faster-whisper-int8") else (0,)
    batches = (0,) if contender == "fastpipe-auto" else (1, _BATCH)
    every = [{"threads": thread, "batch_size": batch, "beams": beams} for batch in batches for thread in threads]
    return [{name: value for name, value in each.items() if value} for each in every]


class Loaded:
    """A contender that is ready, with the recordings.

    Args:
        workspace: Folder for everything that a run makes.
        contender: One of `LOADERS`.
        short: How many recordings there are.
        joined_s: How long those are that are joined of them, in seconds.
    """

    def __init__(self, workspace: str, contender: str, short: int, joined_s: Sequence[float]) -> None:
        folder = whisper_weights.save(Path(workspace) / "models" / whisper_weights.NAME)
        self.listener = LOADERS[contender](folder, Path(workspace))
        clips = speech.clips()[:short]
        clips += [speech.joined(clips, seconds) for seconds in joined_s]
        self.audios = {clip.name: clip.samples for clip in clips}

    def facts(self) -> dict[str, Any]:
        """Give what the parent may know."""
        return {"detail": self.listener.detail}
