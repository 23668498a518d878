"""A pipeline asked for a window's words, with the best timestamps that it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpipe.live.transcripts import Transcript, transcript

# By name: what `return_timestamps` is tried in turn. Not every model has all of them, and only a call tells.
TIMESTAMPS: Mapping[str, tuple[str | bool, ...]] = {
    "auto": ("word", True, False),
    "word": ("word",),
    "segment": (True,),
    "none": (False,),
}
# Tokens that Whisper may write: more than anybody speaks, and far less than when it repeats itself to its limit.
_TOKENS, _TOKENS_A_SECOND, _MOST_TOKENS = 16, 20, 440
_LEAST_S = 0.1  # shorter windows are padded: the first layers need some samples


class Hearing:
    """Calls the pipeline.

    Args:
        pipe: An automatic-speech-recognition pipeline.
        rate_hz: Of its audio.
        timestamps: One of `TIMESTAMPS`.
        parameters: More parameters for each call.
    """

    def __init__(self, pipe: Any, rate_hz: int, timestamps: str, parameters: Mapping[str, Any]) -> None:
        self._pipe = pipe
        self._rate_hz = rate_hz
        self._left = list(TIMESTAMPS[timestamps])
        self._worked = False
        self._parameters = parameters

    def __call__(self, samples: np.ndarray, start_s: float, end_s: float) -> Transcript:
        """Transcribe a window.

        Args:
            samples: float32 (samples,).
            start_s: Where it begins, in seconds from the start of the stream.
            end_s: Where it ends.
        """
        short = round(_LEAST_S * self._rate_hz) - len(samples)
        return transcript(self._call(np.pad(samples, (0, max(0, short)))), start_s, end_s)

    def _call(self, samples: np.ndarray) -> Mapping[str, Any]:
        while True:
            asked = {"return_timestamps": self._left[0]} if self._left[0] else {}
            asked |= self._limit(len(samples) / self._rate_hz)
            try:
                audio = {"raw": samples, "sampling_rate": self._rate_hz}
                result: Mapping[str, Any] = self._pipe(audio, **{**self._parameters, **asked})
            except Exception:
                # Models without these timestamps raise errors of many kinds, and do so at the first call.
                if self._worked or len(self._left) == 1:
                    raise
                del self._left[0]
            else:
                self._worked = True
                return result

    def _limit(self, seconds: float) -> dict[str, Any]:
        """Give the limit of what Whisper writes about so many seconds, unless the caller has one."""
        given = self._parameters.get("generate_kwargs") or {}
        if getattr(self._pipe, "type", "") != "seq2seq_whisper" or {"max_new_tokens", "max_length"} & {*given}:
            return {}
        most = min(_MOST_TOKENS, _TOKENS + round(_TOKENS_A_SECOND * seconds))
        return {"generate_kwargs": {"max_new_tokens": most, **given}}
