"""A language of tones, and a pipeline that understands it: what live transcription gives can be known exactly."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np

RATE = 16000
WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven"),
    *("eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen"),
)
_FRAME = 160  # 10 ms, in which every word's tone has whole periods
_LOWEST = 4  # the first word's tone is 400 Hz, the next one's 500 Hz
_WHOLE_S = 0.2  # less of a word at the end of the audio is misheard
_SENTENCE_S = 0.25


def speech(words: Sequence[tuple[int, float]], word_s: float = 0.3) -> np.ndarray:
    """Say words: the number of each, and the seconds of silence after it; float32 (samples,)."""
    time_s = np.arange(round(word_s * RATE)) / RATE
    parts = [np.zeros(0, np.float32)]
    for number, pause_s in words:
        parts.append(0.3 * np.sin(2 * np.pi * 100 * (_LOWEST + number) * time_s))
        parts.append(np.zeros(round(pause_s * RATE)))
    return np.concatenate(parts).astype(np.float32)


class TonePipe:
    """Behaves like an automatic-speech-recognition pipeline.

    Args:
        kind: "whisper" (words with spaces before them), "ctc" (bare words), "segments" or "plain": the best
            timestamps that it has.
    """

    def __init__(self, kind: str = "whisper") -> None:
        self.kind = kind
        self.feature_extractor = SimpleNamespace(sampling_rate=RATE)
        self.seconds: list[float] = []  # of each call's audio
        self.parameters: list[dict[str, Any]] = []

    def __call__(self, audio: Any, return_timestamps: Any = False, **parameters: Any) -> dict[str, Any]:
        assert audio["sampling_rate"] == RATE
        assert audio["raw"].dtype == np.float32
        if return_timestamps == "word" and self.kind in ("segments", "plain"):
            raise ValueError("no alignment heads")
        if return_timestamps and self.kind == "plain":
            raise ValueError("no timestamps")
        self.seconds.append(len(audio["raw"]) / RATE)
        self.parameters.append(parameters)
        heard = self.words(audio["raw"])
        space = "" if self.kind == "ctc" else " "
        result: dict[str, Any] = {"text": space + " ".join(text for text, _, _ in heard) if heard else ""}
        if return_timestamps == "word":
            result["chunks"] = [{"text": space + text, "timestamp": (start, end)} for text, start, end in heard]
        elif return_timestamps:
            result["chunks"] = self._segments(heard)
        return result

    def words(self, samples: np.ndarray) -> list[tuple[str, float, float]]:
        """Understand words: text, start and end in seconds."""
        count = len(samples) // _FRAME
        frames = samples[: count * _FRAME].reshape(count, _FRAME)
        tones = np.abs(np.fft.rfft(frames, axis=1)).argmax(1) - _LOWEST
        tones[np.square(frames).mean(1) < 1e-3] = -1
        edges = np.flatnonzero(np.diff(tones, prepend=-2, append=-2))
        heard = []
        for start, end in pairwise(edges):
            if 0 <= tones[start] < len(WORDS) and end - start >= 5:
                cut_off = bool(end >= count - 1 and end - start < _WHOLE_S * RATE / _FRAME)
                heard.append((WORDS[tones[start]] + "ish" * cut_off, start / 100, end / 100))
        return heard

    def _segments(self, heard: list[tuple[str, float, float]]) -> list[dict[str, Any]]:
        segments: list[dict[str, Any]] = []
        for text, start, end in heard:
            if segments and start - segments[-1]["timestamp"][1] < _SENTENCE_S:
                segments[-1]["text"] += f" {text}"
                segments[-1]["timestamp"] = (segments[-1]["timestamp"][0], end)
            else:
                segments.append({"text": f" {text}", "timestamp": (start, end)})
        if segments:  # Whisper leaves the last one open
            segments[-1]["timestamp"] = (segments[-1]["timestamp"][0], None)
        return segments


def cut(samples: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    """Cut audio into chunks of these sizes, again and again."""
    chunks, start, turn = [], 0, 0
    while start < len(samples):
        chunks.append(samples[start : start + sizes[turn % len(sizes)]])
        start, turn = start + sizes[turn % len(sizes)], turn + 1
    return chunks
