"""Recordings of people with what they say, out of packages whose code is never imported; and how to count wrong words.

two_cities, beckett     pip install moonshine-voice            read aloud: Dickens, in 10 pieces, and Beckett
cards, librivox         apt install pocketsphinx-testdata      10 recordings: cards that are called out, and Austen
"""

from __future__ import annotations

import os
import re
import wave
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from fastpipe.live.resample import Resampler

RATE = 16000
# Where Debian has it, or a folder of the same layout: the tests' data of pocketsphinx's source.
POCKETSPHINX = Path(os.environ.get("POCKETSPHINX_TESTDATA", "/usr/share/pocketsphinx/test/data"))
INSTALL = "pip install moonshine-voice, or apt install pocketsphinx-testdata"
_BREAK_S = 0.4  # of silence between recordings that are joined

# The pieces of two_cities.wav: seconds from and to, both in pauses, and the words between.
_TWO_CITIES: Sequence[tuple[float, float, str]] = (
    (0.8, 4.6, "it was the best of times it was the worst of times"),
    (4.6, 8.3, "it was the age of wisdom it was the age of foolishness"),
    (8.3, 13.1, "it was the epoch of belief it was the epoch of incredulity"),
    (13.1, 16.9, "it was the season of light it was the season of darkness"),
    (16.9, 20.8, "it was the spring of hope it was the winter of despair"),
    (20.8, 24.2, "we had everything before us we had nothing before us"),
    (24.2, 28.6, "we were all going direct to heaven we were all going direct the other way"),
    (28.6, 32.5, "in short the period was so far like the present period"),
    (32.5, 36.7, "that some of its noisiest authorities insisted on its being received"),
    (36.7, 42.5, "for good or for evil in the superlative degree of comparison only"),
)
_BECKETT = "ever tried ever failed no matter try again fail again fail better"
# Written in two ways, so that neither is an error.
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_WRITTEN = {"mister": "mr", **{str(number): word for number, word in enumerate(_NUMBERS)}}


@dataclass(frozen=True, kw_only=True, eq=False)
class Clip:
    """A recording.

    Attributes:
        name: What the tables call it.
        samples: float32 (samples,), at 16 kHz.
        words: What is said.
    """

    name: str
    samples: np.ndarray
    words: str

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.samples) / RATE


def installed() -> bool:
    """Say whether there is a recording."""
    return find_spec("moonshine_voice") is not None or POCKETSPHINX.is_dir()


def clips() -> list[Clip]:
    """Give the recordings that are installed.

    Raises:
        ModuleNotFoundError: None is.
    """
    found = [*_moonshine(), *_pocketsphinx()]
    if not found:
        raise ModuleNotFoundError(f"no recordings here: {INSTALL}")
    return found


def joined(clips: Sequence[Clip], seconds: float) -> Clip:
    """Join recordings, again and again, to one of at least so many seconds."""
    pause = np.zeros(round(_BREAK_S * RATE), np.float32)
    parts: list[np.ndarray] = []
    words: list[str] = []
    while sum(map(len, parts)) < seconds * RATE:
        clip = clips[len(words) % len(clips)]
        parts += [clip.samples, pause]
        words.append(clip.words)
    return Clip(name=f"{len(words)} joined", samples=np.concatenate(parts), words=" ".join(words))


def errors(said: str, heard: str) -> tuple[int, int]:
    """Count the words that have to be changed, added or taken away, and those that were said.

    The ratio of the two is the word error rate: Levenshtein's distance over words, by the number of words.
    """
    old, new = _plain(said), _plain(heard)
    row = list(range(len(new) + 1))
    for count, word in enumerate(old, 1):
        above, row = row, [count]
        for place, other in enumerate(new):
            row.append(min(above[place] + (word != other), above[place + 1] + 1, row[place] + 1))
    return row[-1], len(old)


def _plain(text: str) -> list[str]:
    words = re.sub(r"[^\w\s]", "", text.replace("-", " ")).casefold().split()
    return [_WRITTEN.get(word, word) for word in words]


def _moonshine() -> Iterator[Clip]:
    spec = find_spec("moonshine_voice")
    if spec is None or spec.origin is None:
        return
    folder = Path(spec.origin).parent / "assets"
    dickens = read(folder / "two_cities.wav")
    for number, (start_s, end_s, words) in enumerate(_TWO_CITIES, 1):
        yield Clip(name=f"dickens {number}", samples=dickens[round(start_s * RATE) : round(end_s * RATE)], words=words)
    yield Clip(name="beckett", samples=read(folder / "beckett.wav"), words=_BECKETT)


def _pocketsphinx() -> Iterator[Clip]:
    for folder, file in (("librivox", "transcription"), ("cards", "cards.transcription")):
        if not (POCKETSPHINX / folder / file).is_file():
            continue
        for line in (POCKETSPHINX / folder / file).read_text("utf-8").splitlines():
            said = re.fullmatch(r"<s> (.*?)\s*</s> \((.*)\)", line.strip())
            if said:
                words, name = said.groups()
                yield Clip(
                    name=f"{folder} {name[-4:]}", samples=read(POCKETSPHINX / folder / f"{name}.wav"), words=words
                )


def read(path: Path) -> np.ndarray:
    """Read a mono recording of 16-bit samples, float32 (samples,), at 16 kHz."""
    with wave.open(str(path)) as file:
        rate = file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    return samples if rate == RATE else Resampler(rate, RATE)(samples, last=True)
