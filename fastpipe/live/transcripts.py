"""What a pipeline says about a window, as words with times; how much of it is known already, and how much agrees."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastpipe.live.records import Word

_WORDS = re.compile(r"\s*\S+")
_MARKS = re.compile(r"[^\w]+")
_ESTIMATE = 0.05


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """The words of a window.

    Attributes:
        words: In their order, with times from the start of the stream.
        breaks: After how many of the words the time is the pipeline's own, and not an estimate.
        spaced: Whether words are set apart by spaces.
    """

    words: tuple[Word, ...] = ()
    breaks: frozenset[int] = frozenset()
    spaced: bool = True

    @property
    def timed(self) -> bool:
        """Whether there are times of the pipeline's own; those of words in between are near enough."""
        return bool(self.breaks)


def transcript(result: Mapping[str, Any], start_s: float, end_s: float) -> Transcript:
    """Read a result of an automatic-speech-recognition pipeline.

    Args:
        result: With "text", and with "chunks" where it was asked for timestamps.
        start_s: Where the window begins, in seconds from the start of the stream.
        end_s: Where it ends.
    """
    text = str(result["text"])
    chunks = result.get("chunks") or [{"text": text, "timestamp": (0.0, end_s - start_s)}]
    # CTC gives bare words, Whisper gives pieces that joined are the text.
    bare = len(chunks) > 1 and "".join(str(chunk["text"]) for chunk in chunks).split() != text.split()
    words: list[Word] = []
    breaks = set()
    at_s = start_s
    for chunk in chunks:
        first_s, last_s = (None if second is None else start_s + float(second) for second in chunk["timestamp"])
        first_s = min(max(at_s, at_s if first_s is None else first_s), end_s)
        last_s = min(max(first_s, end_s if last_s is None else last_s), end_s)
        pieces = [found.group() for found in _WORDS.finditer(str(chunk["text"]))]
        if bare and words and pieces:
            pieces[0] = " " + pieces[0].lstrip()
        words += _spread(pieces, first_s, last_s)
        if pieces and "chunks" in result:
            breaks.add(len(words))
        at_s = words[-1].end_s if words else at_s
    spaced = bare or len(words) < 2 or any(word.text[:1].isspace() for word in words[1:])
    return Transcript(words=tuple(words), breaks=frozenset(breaks), spaced=spaced)


def _spread(pieces: Sequence[str], start_s: float, end_s: float) -> list[Word]:
    """Give words of one segment the share of its time that they have of its letters."""
    total = sum(map(len, pieces))
    words, done = [], 0
    for piece in pieces:
        begin, done = done, done + len(piece)
        word_s = [start_s + (end_s - start_s) * share / total for share in (begin, done)]
        words.append(Word(text=piece, start_s=word_s[0], end_s=word_s[1]))
    return words


def plain(word: Word) -> str:
    """Give a word as it is compared: without case and punctuation, unless it is nothing else."""
    return _MARKS.sub("", word.text).casefold() or word.text.strip()


def known(final: Sequence[Word], words: Sequence[Word], *, timed: bool = True) -> int:
    """Find how many of a window's words are those that are final already.

    The final words of the window are compared with every beginning of the transcript, by how many words differ
    (Levenshtein's distance) and by how far apart in time, in seconds, the two end.

    Args:
        final: The final words that lie in the window.
        words: Its transcript.
        timed: Whether times are the pipeline's own. Estimates only decide between equals.
    """
    if not final:
        return 0
    old, new = [plain(word) for word in final], [plain(word) for word in words]
    row = list(range(len(old) + 1))  # distances of the first words of `old` to the beginning of `new`
    best, least = 0, float("inf")
    for count in range(len(new) + 1):
        if count:
            above, row = row, [count]
            for place, word in enumerate(old):
                changed = above[place] + (word != new[count - 1])
                row.append(min(changed, above[place + 1] + 1, row[place] + 1))
        end_s = words[count - 1].end_s if count else words[0].start_s if words else final[0].start_s
        cost = row[-1] + abs(end_s - final[-1].end_s) * (1 if timed else _ESTIMATE)
        if cost < least:
            best, least = count, cost
    return best


def agreed(previous: Sequence[Word], words: Sequence[Word]) -> int:
    """Count the first words that two transcripts have in common."""
    count = 0
    for old, new in zip(previous, words, strict=False):
        if plain(old) != plain(new):
            break
        count += 1
    return count
