"""One stream: when its window is transcribed, which words become final, and where the window is cut.

A session does no input or output: chunks go in, updates come out, and both `for` and `async for` are around it. All
that it decides depends on positions in the stream, so that it does not matter how the stream is cut into chunks.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastpipe.live.chunks import Reader
from fastpipe.live.detectors import SpeechDetector
from fastpipe.live.hearing import Hearing
from fastpipe.live.records import Delays, TranscriptUpdate, Word
from fastpipe.live.transcripts import Transcript, agreed, known
from fastpipe.live.window import Window

_LEAD_S = 0.3  # kept before speech: its first sound is softer than what detectors wait for
_LEAST_SPEECH_S = 0.1  # shorter than any word
_FASTEST = 12  # words in a second of speech that nobody speaks: Whisper repeats itself, or talks into silence
_SNAP_S = 0.1  # how far a word's time may be off


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How often, how long, and how late, in seconds of audio.

    Attributes:
        interval_s: Between two transcriptions of what is being said.
        window_s: The longest window.
        max_delay_s: When a word becomes final at the latest.
        silence_s: Silence that ends an utterance.
        keep_up: Whether a transcription that takes longer than `interval_s` puts off the next one as long.
    """

    interval_s: float
    window_s: float
    max_delay_s: float
    silence_s: float
    keep_up: bool


class Session:
    """The state of one stream.

    Args:
        hear: Transcribes a window.
        reader: Reads the chunks.
        detector: Finds speech.
        rate_hz: Of the pipeline.
        pace: How often, how long, how late.
    """

    def __init__(self, hear: Hearing, reader: Reader, detector: SpeechDetector, rate_hz: int, pace: Pace) -> None:
        self._hear = hear
        self._reader = reader
        self._detector = detector
        self._pace = pace
        self._frame_s = detector.frame / rate_hz
        self._window = Window(rate_hz, pace.window_s + self._frame_s)
        self._rest: np.ndarray = np.zeros(0, np.float32)  # less than a frame
        self._speaking = False
        self._speech_s = 0.0  # of the utterance
        self._silence_s = 0.0  # at its end
        self._due_s = 0.0
        self._final: list[Word] = []  # those that lie in the window
        self._pending: Sequence[Word] = ()
        self._final_s = 0.0  # where the last final word ends
        self._began = False  # whether there is a final word
        self._partial = ""
        self._delays = Delays()
        self._transcriptions = 0
        self._processing_s = 0.0

    def read(self, chunk: Any) -> np.ndarray:
        """Give the samples of the next chunk, float32 (samples,).

        Raises:
            InputError: The chunk is no audio.
        """
        return self._reader.read(chunk)

    def listen(self, samples: np.ndarray) -> Iterator[TranscriptUpdate]:
        """Take samples.

        Yields:
            Updates, as soon as each is known.
        """
        size = self._detector.frame
        self._rest = np.concatenate((self._rest, samples))
        whole = len(self._rest) // size * size
        frames, self._rest = self._rest[:whole].reshape(-1, size), self._rest[whole:].copy()
        for frame in frames:
            update = self._step(frame)
            if update:
                yield update

    def finish(self) -> Iterator[TranscriptUpdate]:
        """End the stream: everything becomes final, and the last update has the figures."""
        yield from self.listen(self._reader.end())
        self._window.add(self._rest)
        last = self._turn(over=True) if self._speaking else None
        summary = self._delays.summary(
            audio_s=self._window.end_s, processing_s=self._processing_s, transcriptions=self._transcriptions
        )
        yield replace(last or self._update((), ()), summary=summary)

    def _step(self, frame: np.ndarray) -> TranscriptUpdate | None:
        """Look at one frame: speech begins, goes on, or is over."""
        started = time.perf_counter()
        speech = self._detector(frame)
        self._processing_s += time.perf_counter() - started
        self._window.add(frame)
        now_s = self._window.end_s
        if not self._speaking:
            if not speech:
                self._window.cut(now_s - _LEAD_S)
                return None
            self._speaking, self._speech_s = True, 0.0
            self._due_s = now_s + self._pace.interval_s
        self._speech_s += self._frame_s * speech
        self._silence_s = 0.0 if speech else self._silence_s + self._frame_s
        if self._silence_s >= self._pace.silence_s:
            return self._turn(over=True)
        if now_s >= self._due_s or not self._window.has_room(len(frame)):
            return self._turn(over=False)
        return None

    def _turn(self, *, over: bool) -> TranscriptUpdate | None:
        """Transcribe the window, and make final what can be; all of it when the utterance is over."""
        now_s = self._window.end_s
        alone = () if over else self._split()
        heard, step_s = self._transcribe(now_s)
        sound = self._sound(heard, now_s)
        place = known(self._final, heard.words, timed=heard.timed)
        new = heard.words[place:] if sound else self._pending
        if over:
            count = len(new)
        else:
            late_s = now_s + step_s - self._pace.max_delay_s  # by the next time it would be too late for these
            count = max(agreed(self._pending, new) * sound, sum(word.end_s <= late_s for word in new))
        placed = self._placed([*alone, *new], heard.spaced)
        count += len(alone)
        final, self._pending = placed[:count], placed[count:]
        self._final += final[len(alone) :]
        update = self._update(final, self._pending)
        if over:
            self._speaking, self._silence_s, self._final = False, 0.0, []
            self._window.cut(now_s - _LEAD_S)
        else:
            self._due_s = now_s + step_s
            if sound:
                self._cut(heard, place + count - len(alone))
        before, self._partial = self._partial, update.partial
        return update if final or update.partial != before else None

    def _transcribe(self, end_s: float) -> tuple[Transcript, float]:
        """Transcribe the window up to a place, and say how many seconds until the next time."""
        if self._speech_s < _LEAST_SPEECH_S:
            return Transcript(), self._pace.interval_s
        started = time.perf_counter()
        heard = self._hear(self._window.until(end_s), self._window.start_s, end_s)
        took_s = time.perf_counter() - started
        self._processing_s += took_s
        self._transcriptions += 1
        return heard, max(self._pace.interval_s, min(took_s, self._pace.window_s / 4) if self._pace.keep_up else 0.0)

    def _sound(self, heard: Transcript, end_s: float) -> bool:
        """Say whether somebody can have spoken all these words."""
        return len(heard.words) <= 1 + _FASTEST * min(self._speech_s, end_s - self._window.start_s)

    def _split(self) -> Sequence[Word]:
        """Cut a window that is nearly full, because no final word in it has a time of the pipeline's own.

        Only a transcription of the part before a quiet moment tells which words lie there. These are final.

        Returns:
            Those that were not so before.
        """
        now_s, quarter_s = self._window.end_s, self._pace.window_s / 4
        if self._window.start_s > now_s - 3 * quarter_s:
            return ()
        at_s = self._window.quietest_s(now_s - 2 * quarter_s, now_s - quarter_s)
        part, _ = self._transcribe(at_s)
        before, pending, self._pending = self._final, self._pending, ()
        longer = len(part.words) >= len(before)
        self._final = [] if longer else before[known(part.words, before, timed=False) :]
        sound = self._sound(part, at_s)
        self._window.cut(at_s)
        if not sound:
            return [word for word in pending if word.end_s <= at_s]
        return part.words[known(before, part.words, timed=False) :] if longer else ()

    def _placed(self, words: Sequence[Word], spaced: bool) -> list[Word]:
        """Put words behind those that are final: never earlier, and with a space where one is missing."""
        placed: list[Word] = []
        at_s, begun = self._final_s, self._began
        for word in words:
            gap = begun and spaced and not placed and not word.text[:1].isspace()
            start_s = max(at_s, word.start_s)
            at_s = max(start_s, word.end_s)
            placed.append(Word(text=" " * gap + word.text, start_s=start_s, end_s=at_s))
        return placed

    def _update(self, final: Sequence[Word], partial: Sequence[Word]) -> TranscriptUpdate:
        """Count final words, and give what changed."""
        now_s = self._window.end_s
        if final:
            self._final_s, self._began = final[-1].end_s, True
        about = final or partial
        return TranscriptUpdate(
            text="".join(word.text for word in final),
            partial="".join(word.text for word in partial),
            words=tuple(final),
            start_s=about[0].start_s if about else now_s,
            end_s=about[-1].end_s if about else now_s,
            delay_s=self._delays.add(final, now_s),
        )

    def _cut(self, heard: Transcript, final: int) -> None:
        """Cut a long window behind a final word, in the longest pause of its second half.

        Args:
            heard: The transcript of the window.
            final: How many of its words are final.
        """
        now_s = self._window.end_s
        half_s = now_s - self._pace.window_s / 2
        if self._window.start_s >= half_s:
            return
        ends = [word.end_s for word in heard.words]
        starts = [*(word.start_s for word in heard.words[1:]), now_s]
        pauses = [
            (starts[count - 1] - ends[count - 1], count)
            for count in heard.breaks
            if count <= final and ends[count - 1] >= half_s
        ]
        if pauses:
            _, count = max(pauses)
            at_s = self._window.quietest_s(ends[count - 1] - _SNAP_S, starts[count - 1] + _SNAP_S)
            self._window.cut(at_s)
            self._final = self._final[max(0, len(self._final) - final + count) :]  # those behind the cut
