"""Chunks of audio in the forms that microphones, files and sockets give them, as mono float32 at one rate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpipe.errors import InputError
from fastpipe.live.resample import Resampler

_FORMS = 'float or int16 arrays, bytes of 16-bit PCM, and {"raw": array, "sampling_rate": number} are chunks'
_LOUDEST = 100.0  # floats are audio between -1 and 1; far above, they are integers that were only cast


class Reader:
    """Reads chunks in their order; a sample whose two bytes come in different chunks is joined.

    Args:
        target_hz: Rate of what is wanted.
        source_hz: Rate of chunks that do not name their own.
    """

    def __init__(self, target_hz: int, source_hz: int) -> None:
        self._target_hz = target_hz
        self._source_hz = source_hz
        self._rate_hz = 0  # of the chunks so far
        self._odd = b""
        self._resampler: Resampler | None = None
        self._index = -1

    def read(self, chunk: Any) -> np.ndarray:
        """Give a chunk's samples at the wanted rate, float32 (samples,). The chunk is not changed.

        Raises:
            InputError: It is no audio, or its rate is not that of the chunks before it.
        """
        self._index += 1
        rate = self._source_hz
        if isinstance(chunk, Mapping):
            chunk, rate = self._opened(chunk)
        samples = self._pcm(chunk) if isinstance(chunk, (bytes, bytearray, memoryview)) else self._array(chunk)
        if not self._rate_hz:
            self._rate_hz = rate
            self._resampler = Resampler(rate, self._target_hz) if rate != self._target_hz else None
        if rate != self._rate_hz:
            raise self._error(
                f"is at {rate} Hz, and those before it at {self._rate_hz} Hz", "Give one stream one rate."
            )
        return self._resampler(samples) if self._resampler else samples

    def end(self) -> np.ndarray:
        """Give the samples that were waiting for more, float32 (samples,)."""
        nothing: np.ndarray = np.zeros(0, np.float32)
        return self._resampler(nothing, last=True) if self._resampler else nothing

    def _opened(self, chunk: Mapping[str, Any]) -> tuple[Any, int]:
        """Give the audio of a mapping and its rate."""
        audio = chunk.get("raw") if chunk.get("raw") is not None else chunk.get("array")
        rate = chunk.get("sampling_rate")
        if audio is None or not isinstance(rate, (int, np.integer)) or rate <= 0:
            raise self._error(
                f'has no "raw" with a "sampling_rate" among its keys {sorted(map(str, chunk))}', _FORMS + "."
            )
        return audio, int(rate)

    def _pcm(self, chunk: bytes | bytearray | memoryview) -> np.ndarray:
        joined = self._odd + bytes(chunk)
        whole = len(joined) // 2 * 2
        self._odd = joined[whole:]
        samples: np.ndarray = np.frombuffer(joined[:whole], "<i2").astype(np.float32) / 32768
        return samples

    def _array(self, chunk: Any) -> np.ndarray:
        if chunk is None or isinstance(chunk, str):
            raise self._error(f"is {chunk!r}, which is no audio", _FORMS + ".")
        try:
            values = np.asarray(chunk)
        except Exception as error:
            raise self._error(f"is a {type(chunk).__name__}, which is no audio", _FORMS + ".") from error
        if values.ndim == 2 and 1 in values.shape:
            values = values.reshape(-1)
        if values.ndim != 1:
            raise self._error(f"has the shape {values.shape}", "Mix it to mono: one dimension.")
        if values.size and values.dtype != np.int16 and values.dtype.kind != "f":
            raise self._error(f"has the type {values.dtype}", _FORMS + ".")
        samples: np.ndarray = values.astype(np.float32)  # a copy, also of float32
        if values.dtype == np.int16:
            samples /= 32768
        if not np.isfinite(samples).all():
            raise self._error("has values that are not finite", "Check what records it.")
        if samples.size and np.abs(samples).max() > _LOUDEST:
            loudest = float(np.abs(samples).max())
            raise self._error(f"has values up to {loudest:g}", "Floats are between -1 and 1; give int16 as int16.")
        return samples

    def _error(self, fact: str, remedy: str) -> InputError:
        return InputError(f"the chunk {fact}", index=self._index, remedy=remedy)
