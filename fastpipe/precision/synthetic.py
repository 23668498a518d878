"""Pictures and sounds made by rule: what a quantized model is compared with fp32 on where the user gives none.

They are no photographs and no speech, and need not be: the question is whether two models answer alike. So they are
varied: flat and busy, smooth and sharp, dark and bright, small and large, in every format; silence, tones, clicks,
noise, and voices of a kind. Whoever has data of their own gives it as `calibration_data=`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"

# Counts as content of the sample: change it with anything below, as reports are remembered.
VERSION = 1
_SEED = 2024
_SIZES = ((224, 224), (320, 240), (240, 320), (96, 96), (256, 384), (400, 160))  # height, width
_SECONDS = (1.0, 0.5, 1.5, 0.25, 2.0, 1.0)


def pictures(count: int | None = None) -> list[Array]:
    """Draw pictures.

    Args:
        count: How many; all by default. The first ones are the same whatever it is.

    Returns:
        uint8 arrays of shape (height, width, 3), in several sizes; the same on every call.
    """
    random = np.random.default_rng(_SEED)
    kinds = (_gradient, _noise, _circles, _stripes, _blocks, _clouds)
    return [kinds[n % len(kinds)](random, *_SIZES[(n + n // len(kinds)) % len(_SIZES)]) for n in range(count or 24)]


def sounds(count: int | None = None, *, rate: int = 16_000) -> list[Array]:
    """Make sounds.

    Args:
        count: How many; all by default. The first ones are the same whatever it is.
        rate: Samples a second.

    Returns:
        float32 waveforms of shape (samples,) within -1 and 1, of several lengths; the same on every call.
    """
    random = np.random.default_rng(_SEED)
    kinds = (_tone, _hiss, _chirp, _voice, _clicks, _hush)
    return [
        kinds[n % len(kinds)](random, np.arange(int(rate * _SECONDS[(n + n // len(kinds)) % len(_SECONDS)])) / rate)
        for n in range(count or 18)
    ]


def _grid(height: int, width: int) -> tuple[Array, Array]:
    y, x = np.mgrid[0:height, 0:width]
    return y / height, x / width


def _bytes(picture: Array) -> Array:
    values: Array = np.clip(picture * 255, 0, 255).astype(np.uint8)
    return values


def _gradient(random: Any, height: int, width: int) -> Array:
    y, x = _grid(height, width)
    corners = random.random((4, 3))
    weights = np.stack([(1 - y) * (1 - x), (1 - y) * x, y * (1 - x), y * x], axis=-1)
    return _bytes(weights @ corners)


def _noise(random: Any, height: int, width: int) -> Array:
    return _bytes(random.random(3) + 0.25 * random.standard_normal((height, width, 3)))


def _circles(random: Any, height: int, width: int) -> Array:
    y, x = _grid(height, width)
    picture = np.ones((height, width, 3)) * random.random(3)
    for _ in range(8):
        center, radius = random.random(2), random.uniform(0.05, 0.3)
        picture[(y - center[0]) ** 2 + (x - center[1]) ** 2 < radius**2] = random.random(3)
    return _bytes(picture)


def _stripes(random: Any, height: int, width: int) -> Array:
    y, x = _grid(height, width)
    angle, often = random.uniform(0, np.pi), random.uniform(3, 40)
    waves = 0.5 + 0.5 * np.sin(2 * np.pi * often * (np.cos(angle) * x + np.sin(angle) * y))
    return _bytes(waves[..., None] * random.random(3) + (1 - waves[..., None]) * random.random(3))


def _blocks(random: Any, height: int, width: int) -> Array:
    picture = np.ones((height, width, 3)) * random.random(3)
    for _ in range(12):
        top, left = random.integers(0, height), random.integers(0, width)
        picture[top : top + random.integers(4, height // 2), left : left + random.integers(4, width // 2)] = (
            random.random(3)
        )
    return _bytes(picture + 0.02 * random.standard_normal((height, width, 1)))


def _clouds(random: Any, height: int, width: int) -> Array:
    """Add up waves of every scale, the long ones the strongest: what most photographs have in common."""
    spectrum = random.standard_normal((height, width, 3)) + 1j * random.standard_normal((height, width, 3))
    frequencies = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None])
    frequencies[0, 0] = 1
    waves = np.fft.ifft2(spectrum / frequencies[..., None], axes=(0, 1)).real
    return _bytes(0.5 + 0.2 * waves / waves.std())


def _loud(wave: Array, level: float = 0.5) -> Array:
    values: Array = (level * wave / max(float(np.abs(wave).max()), 1e-9)).astype(np.float32)
    return values


def _tone(random: Any, seconds: Array) -> Array:
    return _loud(sum(np.sin(2 * np.pi * f * seconds) / (n + 1) for n, f in enumerate(random.uniform(80, 2000, 3))))


def _hiss(random: Any, seconds: Array) -> Array:
    return _loud(random.standard_normal(len(seconds)), 0.3)


def _chirp(random: Any, seconds: Array) -> Array:
    start, end = random.uniform(100, 500), random.uniform(1000, 6000)
    return _loud(np.sin(2 * np.pi * (start + (end - start) * seconds / (2 * seconds[-1])) * seconds))


def _voice(random: Any, seconds: Array) -> Array:
    """Shape a pulse train by a few resonances that come and go, as a mouth does."""
    pitch = random.uniform(90, 240) * (1 + 0.1 * np.sin(2 * np.pi * 3 * seconds))
    phase = 2 * np.pi * np.cumsum(pitch) * (seconds[1] - seconds[0])
    harmonics = [
        np.sin(n * phase) / n * (0.2 + np.sin(2 * np.pi * random.uniform(1, 6) * seconds + random.uniform(0, 6)) ** 2)
        for n in range(1, 20)
    ]
    return _loud(np.sum(harmonics, axis=0) * (np.sin(2 * np.pi * 2.5 * seconds) > -0.6))


def _clicks(random: Any, seconds: Array) -> Array:
    wave = 0.01 * random.standard_normal(len(seconds))
    for at in random.integers(0, max(1, len(seconds) - 200), 12):
        wave[at : at + 200] += random.uniform(-1, 1) * np.exp(-np.arange(200) / 30)[: len(wave) - at]
    return _loud(wave)


def _hush(random: Any, seconds: Array) -> Array:
    return _loud(random.standard_normal(len(seconds)), 0.002)
