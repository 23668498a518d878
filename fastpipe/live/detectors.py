"""Is somebody speaking? Asked of every frame of a stream, so that silence costs nothing and ends a sentence."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from fastpipe.errors import MissingBackendError, OptionError

_QUIET, _LOUD = 0.0018, 0.018  # -55 and -35 dB of full scale: below never speech, above always
_ABOVE = 2.8  # 9 dB over the noise
_RISE = 10 ** (1.5 / 20)  # the noise is believed to grow by 1.5 dB a second, until a quieter frame shows better


class SpeechDetector(Protocol):
    """Says of one frame after the other whether it has speech."""

    frame: int
    """Samples of a frame."""

    def __call__(self, frame: np.ndarray) -> bool:
        """Look at the next frame, float32 (samples,)."""


class EnergyDetector:
    """Speech is what is clearly louder than the quietest of the last seconds.

    Args:
        rate_hz: Of the stream.
    """

    def __init__(self, rate_hz: int) -> None:
        self.frame = rate_hz * 30 // 1000
        self._rise = _RISE ** (self.frame / rate_hz)
        self._noise = _LOUD / _ABOVE

    def __call__(self, frame: np.ndarray) -> bool:
        """Look at the next frame, float32 (samples,)."""
        level = float(np.sqrt(np.mean(np.square(frame, dtype=np.float64))))
        self._noise = min(self._noise * self._rise, level, _LOUD / _ABOVE)
        return level > max(_QUIET, _ABOVE * self._noise)


class Everything:
    """Takes all audio for speech: words alone end a window.

    Args:
        rate_hz: Of the stream.
    """

    def __init__(self, rate_hz: int) -> None:
        self.frame = rate_hz * 30 // 1000

    def __call__(self, frame: np.ndarray) -> bool:
        """Look at the next frame."""
        return True


class SileroDetector:
    """Silero's network, which tells speech from other sounds: `pip install 'transformers-fastpipe[live]'`.

    Args:
        rate_hz: Of the stream: 16,000 or 8,000.

    Raises:
        MissingBackendError: silero-vad is not installed.
        OptionError: It does not know the rate.
    """

    threshold = 0.5

    def __init__(self, rate_hz: int) -> None:
        if rate_hz not in (16000, 8000):
            raise OptionError(f"vad='silero' has no model for {rate_hz} Hz", remedy="Use vad='energy'.")
        import torch

        threads = torch.get_num_threads()
        try:
            silero: Any = importlib.import_module("silero_vad")
        except ImportError as error:
            remedy = "pip install 'transformers-fastpipe[live]'"
            raise MissingBackendError("vad='silero' needs silero-vad, which is not installed", remedy=remedy) from error
        finally:
            torch.set_num_threads(threads)  # its import sets one thread for the whole process
        self._model = silero.load_silero_vad()
        self._rate_hz = rate_hz
        self.frame = 512 * rate_hz // 16000

    def __call__(self, frame: np.ndarray) -> bool:
        """Look at the next frame, float32 (samples,)."""
        import torch

        with torch.inference_mode():
            return float(self._model(torch.from_numpy(frame), self._rate_hz)) > self.threshold


DETECTORS: dict[str | None, Callable[[int], SpeechDetector]] = {
    "energy": EnergyDetector,
    "silero": SileroDetector,
    None: Everything,
}


def detector(vad: str | SpeechDetector | None, rate_hz: int) -> SpeechDetector:
    """Give the detector of that name; one that is given as an object stays what it is.

    Raises:
        OptionError: There is no such detector.
        MissingBackendError: Its library is not installed.
    """
    if vad is None or isinstance(vad, str):
        if vad not in DETECTORS:
            names = ", ".join(repr(name) for name in DETECTORS)
            raise OptionError(f"vad={vad!r} is no detector of speech", remedy=f"There are {names}.")
        return DETECTORS[vad](rate_hz)
    if not callable(vad) or not isinstance(getattr(vad, "frame", None), int) or vad.frame < 1:
        raise OptionError(
            f"vad is a {type(vad).__name__}, which is no detector of speech",
            remedy="One is called with a frame of samples, gives true or false, and has `frame`, their number.",
        )
    return vad
