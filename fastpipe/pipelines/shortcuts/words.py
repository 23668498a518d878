"""The tokens of several texts, which of them make words, and what label a word has."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastpipe.pipelines.shortcuts.base import Array

# Said by transformers too, for each token.
_NO_WORDS = "Tokenizer does not support real words, using fallback heuristic"


@dataclass(kw_only=True)
class Tokens:
    """The tokens of several texts, one after another, without special ones.

    Attributes:
        tokenizer: What made them.
        texts: The texts.
        text: Which of them each token is of.
        index: Each one's place in its row.
        ids: Its id.
        start: Of the characters it stands for, in its text.
        end: Of the characters it stands for.
        scores: Of shape (tokens, labels).
    """

    tokenizer: Any
    texts: list[str]
    text: Array
    index: Array
    ids: Array
    start: Array
    end: Array
    scores: Array

    def first(self) -> Array:
        """Tell which tokens are the first of their text."""
        first: Array = np.diff(self.text, prepend=-1) > 0
        return first

    def spell(self, some: Iterable[int]) -> list[str]:
        """Spell some of the tokens as the vocabulary does, and as the text does where they are not in it."""
        chosen = list(some)
        ids, unknown = self.ids[chosen].tolist(), self.tokenizer.unk_token_id
        spelled = self.tokenizer.convert_ids_to_tokens(ids)
        return [
            self.texts[self.text[token]][self.start[token] : self.end[token]] if number == unknown else word
            for token, number, word in zip(chosen, ids, spelled, strict=True)
        ]

    def words(self) -> Array:
        """Give the first token of each word."""
        return np.flatnonzero(self.first() | ~self._continue())

    def _continue(self) -> Array:
        """Tell which tokens go on with the word before them."""
        continues: Array
        if getattr(self.tokenizer.backend_tokenizer.model, "continuing_subword_prefix", None):
            ids, where = np.unique(self.ids, return_inverse=True)
            spelled = self.tokenizer.convert_ids_to_tokens(ids.tolist())
            lengths = np.array([len(word) for word in spelled], dtype=np.int64)
            continues = lengths[where] != self.end - self.start
        else:
            warnings.warn(_NO_WORDS, UserWarning, stacklevel=2)
            # Behind each text comes what is no space, so that what is read past its end is none either.
            joined = "".join(f"{text}." for text in self.texts)
            spaces = np.frombuffer(joined.encode("utf-32-le"), np.uint32) == ord(" ")
            begins = np.cumsum([0, *(len(text) + 1 for text in self.texts[:-1])])[self.text] + self.start
            continues = (self.start > 0) & ~spaces[begins - 1] & ~spaces[begins]
        unknown = self.tokenizer.unk_token_id
        return continues if unknown is None else continues & (self.ids != unknown)


def best(scores: Array) -> tuple[Array, Array]:
    """Give the best label of each row, and its score."""
    labels = scores.argmax(axis=1)
    return labels, scores[np.arange(len(scores)), labels]


def _by_first(scores: Array, words: Array) -> tuple[Array, Array]:
    return best(scores[words])


def _by_most_certain(scores: Array, words: Array) -> tuple[Array, Array]:
    """Let the token with the highest score of all speak for its word; the first, where several have it."""
    tops = scores.max(axis=1)
    word: Array = np.repeat(np.arange(len(words)), _lengths(scores, words))
    highest = np.flatnonzero(tops == np.maximum.reduceat(tops, words)[word])
    return best(scores[highest[np.unique(word[highest], return_index=True)[1]]])


def _by_mean(scores: Array, words: Array) -> tuple[Array, Array]:
    """Let the mean of its tokens speak for a word; added up one after another, as numpy does along axis 0."""
    lengths = _lengths(scores, words)
    means = scores[words]
    for place in range(1, lengths.max(initial=0)):
        longer = np.flatnonzero(lengths > place)
        means[longer] += scores[words[longer] + place]
    return best((means / lengths[:, None]).astype(scores.dtype))


def _lengths(scores: Array, words: Array) -> Array:
    lengths: Array = np.diff(words, append=len(scores))
    return lengths


# By strategy: makes labels and scores of words of the tokens' scores and each word's first token.
OF_WORDS: dict[str, Callable[[Array, Array], tuple[Array, Array]]] = {
    "first": _by_first,
    "max": _by_most_certain,
    "average": _by_mean,
}
