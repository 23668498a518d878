"""What a live transcription gives: words, updates, and the figures of the whole stream."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_BIN_S = 0.01  # delays are counted in bins, so that an endless stream takes no more memory than a short one


@dataclass(frozen=True, kw_only=True)
class Word:
    """One word of a transcript.

    Attributes:
        text: With the space before it, where there is one.
        start_s: Where it begins, in seconds from the start of the stream.
        end_s: Where it ends.
    """

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class TranscriptSummary:
    """The figures of a stream that has ended.

    Attributes:
        audio_s: Seconds of audio.
        processing_s: Seconds spent on it, without waiting for chunks.
        transcriptions: Calls of the pipeline.
        words: How many became final.
        delay_mean_s: From the end of a word until it was final, in seconds of audio; 0 without words.
        delay_p95_s: 95 % of the words were final sooner.
        delay_max_s: The longest delay.
    """

    audio_s: float
    processing_s: float
    transcriptions: int
    words: int
    delay_mean_s: float
    delay_p95_s: float
    delay_max_s: float

    @property
    def real_time_factor(self) -> float:
        """Seconds of processing for a second of audio: above 1, the stream is faster than the pipeline."""
        return self.processing_s / self.audio_s if self.audio_s else 0.0


@dataclass(frozen=True, kw_only=True)
class TranscriptUpdate:
    """What changed: text that is final from now on, and what may follow it.

    Attributes:
        text: Newly final text, which never changes again. All of them, joined by nothing, are the transcript.
        partial: What has been heard after it so far; the next update replaces it.
        words: The words of `text`, with their times.
        start_s: Where `text` begins, in seconds from the start of the stream; where `partial` begins without text.
        end_s: Where `text` ends; where `partial` ends without text.
        delay_s: From the end of the oldest word of `text` until now, in seconds of audio; 0 without text.
        summary: The figures of the whole stream, in its last update.
    """

    text: str
    partial: str
    words: tuple[Word, ...]
    start_s: float
    end_s: float
    delay_s: float
    summary: TranscriptSummary | None = None


class Delays:
    """Counts delays, in a memory that does not grow with the stream."""

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()
        self._sum_s = 0.0
        self._max_s = 0.0

    def add(self, words: Sequence[Word], now_s: float) -> float:
        """Count words that have just become final, and give the longest of their delays in seconds."""
        late = [max(0.0, now_s - word.end_s) for word in words]
        self._bins.update(round(delay_s / _BIN_S) for delay_s in late)
        self._sum_s += sum(late)
        longest = max(late, default=0.0)
        self._max_s = max(self._max_s, longest)
        return longest

    def summary(self, *, audio_s: float, processing_s: float, transcriptions: int) -> TranscriptSummary:
        """Give the figures of the stream."""
        words = self._bins.total()
        return TranscriptSummary(
            audio_s=audio_s,
            processing_s=processing_s,
            transcriptions=transcriptions,
            words=words,
            delay_mean_s=self._sum_s / words if words else 0.0,
            delay_p95_s=min(self._nearest_s(math.ceil(0.95 * words)), self._max_s),
            delay_max_s=self._max_s,
        )

    def _nearest_s(self, rank: int) -> float:
        """Give the delay of that rank, the shortest being the first."""
        seen = 0
        for place, count in sorted(self._bins.items()):
            seen += count
            if seen >= rank:
                return place * _BIN_S
        return 0.0
