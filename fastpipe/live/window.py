"""The part of a stream that is still open: a bounded piece of audio, cut where it is quiet."""

from __future__ import annotations

import numpy as np

_LOOK_S = 0.02  # how finely quiet is looked for
_AROUND = 5  # so many of these together: the stop in a "t" is no pause


class Window:
    """Samples from a position of the stream on.

    Args:
        rate_hz: Of the stream.
        seconds: The most that it holds.
    """

    def __init__(self, rate_hz: int, seconds: float) -> None:
        self._rate_hz = rate_hz
        self._room: np.ndarray = np.zeros(round(rate_hz * seconds), np.float32)
        self._held = 0
        self._first = 0  # position of the first sample in the stream

    @property
    def start_s(self) -> float:
        """Where it begins, in seconds from the start of the stream."""
        return self._first / self._rate_hz

    @property
    def end_s(self) -> float:
        """Where it ends."""
        return (self._first + self._held) / self._rate_hz

    def until(self, end_s: float) -> np.ndarray:
        """Give a copy of the audio up to a place, float32 (samples,)."""
        count = min(round(end_s * self._rate_hz) - self._first, self._held)
        samples: np.ndarray = self._room[:count].copy()
        return samples

    def has_room(self, count: int) -> bool:
        """Say whether so many samples can be added."""
        return self._held + count <= len(self._room)

    def add(self, samples: np.ndarray) -> None:
        """Add samples at the end; what there is no room for pushes out the oldest."""
        over = self._held + len(samples) - len(self._room)
        if over > 0:
            self._drop(over)
        self._room[self._held : self._held + len(samples)] = samples
        self._held += len(samples)

    def cut(self, at_s: float) -> None:
        """Let go of what lies before."""
        self._drop(round(at_s * self._rate_hz) - self._first)

    def quietest_s(self, from_s: float, to_s: float) -> float:
        """Find the middle of the quietest moment between two places."""
        step = round(_LOOK_S * self._rate_hz)
        begin = min(max(round(from_s * self._rate_hz) - self._first, 0), self._held)
        count = (min(round(to_s * self._rate_hz) - self._first, self._held) - begin) // step
        if count < 1:
            return (self._first + begin) / self._rate_hz
        levels = np.square(self._room[begin : begin + count * step]).reshape(count, step).sum(1)
        width = min(_AROUND, count)
        quiet = int(np.convolve(levels, np.ones(width), "valid").argmin())
        return (self._first + begin + (quiet + width / 2) * step) / self._rate_hz

    def _drop(self, count: int) -> None:
        count = min(max(count, 0), self._held)
        self._room[: self._held - count] = self._room[count : self._held].copy()
        self._held -= count
        self._first += count
