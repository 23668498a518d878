"""Audio at another sampling rate, chunk by chunk: the same samples however the stream is cut."""

from __future__ import annotations

import math

import numpy as np

_CROSSINGS = 16  # zero crossings of the filter on each side: more of them make it steeper, and later
_BLOCK = 4096  # outputs at once, which bounds the memory for a chunk of hours


class Resampler:
    """A windowed-sinc filter between two rates, with the samples that the next chunk still needs.

    Source: Smith, "Digital Audio Resampling", section "Windowed Sinc Interpolation"; the window is Hann's.

    Args:
        source_hz: Rate of what is given.
        target_hz: Rate of what is wanted.
    """

    def __init__(self, source_hz: int, target_hz: int) -> None:
        shared = math.gcd(source_hz, target_hz)
        self._up, self._down = target_hz // shared, source_hz // shared
        cutoff = min(1.0, self._up / self._down)
        self._half = math.ceil(_CROSSINGS / cutoff)
        distance = np.arange(1 - self._half, self._half + 1) - np.arange(self._up)[:, None] / self._up
        table = np.sinc(cutoff * distance) * (1 + np.cos(np.pi * np.clip(distance / self._half, -1, 1)))
        # One row for each place that an output can have between two inputs; a constant stays what it is.
        self._table = (table / table.sum(1, keepdims=True)).astype(np.float32)
        self._held: np.ndarray = np.zeros(self._half - 1, np.float32)
        self._first = 1 - self._half  # position of the first sample held, in inputs
        self._made = 0  # outputs so far

    def __call__(self, samples: np.ndarray, *, last: bool = False) -> np.ndarray:
        """Give the outputs that these inputs complete, float32 (outputs,).

        Args:
            samples: float32 (samples,).
            last: Whether the stream ends with them.
        """
        tail: np.ndarray = np.zeros(self._half if last else 0, np.float32)
        self._held = np.concatenate((self._held, samples, tail))
        # An output is complete when the half of the filter that lies after it is there.
        ready = self._first + len(self._held) - self._half
        stop = max(self._made, -(-ready * self._up // self._down))
        views = np.lib.stride_tricks.sliding_window_view(self._held, 2 * self._half) if stop > self._made else None
        parts: list[np.ndarray] = [np.zeros(0, np.float32)]
        for start in range(self._made, stop, _BLOCK):
            whole, between = np.divmod(np.arange(start, min(stop, start + _BLOCK)) * self._down, self._up)
            assert views is not None
            taps = views[whole + 1 - self._half - self._first]
            parts.append(np.einsum("nt,nt->n", taps, self._table[between]))
        self._made = stop
        spare = stop * self._down // self._up + 1 - self._half - self._first
        self._held = self._held[max(0, spare) :].copy()
        self._first += max(0, spare)
        outputs: np.ndarray = np.concatenate(parts)
        return outputs
