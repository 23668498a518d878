"""Windows of a context for a tokenizer that cannot say where in a text its tokens are: answers consist of words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch

# What stands between two words.
_WORD = re.compile("[^ \t\r\n\u202f]+")


def windows(
    tokenizer: Any, question: str, context: str, *, length: int, step: int, question_length: int
) -> Iterator[dict[str, Any]]:
    """Cut a context into windows, each behind the question, or before it where the tokenizer pads on the left.

    Args:
        tokenizer: A slow one.
        question: The question.
        context: The context.
        length: Tokens of a row; shorter ones are padded.
        step: Tokens from the start of a window to that of the next.
        question_length: Tokens that are left of the question.

    Yields:
        The model's inputs, int64 (1, tokens) by name; `p_mask`, booleans (1, tokens) that are true where no answer can
        start or end; and `words`, the number of the word that each token of the context is part of.
    """
    pieces = [(number, piece) for number, word in enumerate(split(context)) for piece in tokenizer.tokenize(word[0])]
    ids = tokenizer.convert_tokens_to_ids([piece for _, piece in pieces])
    asked = tokenizer.encode(question, add_special_tokens=False, truncation=True, max_length=question_length)
    room = length - len(asked) - tokenizer.num_special_tokens_to_add(pair=True)
    special_ids = set(tokenizer.all_special_ids)  # a word may be one: nothing that is unknown is an answer
    question_first = tokenizer.padding_side == "right"
    for begin in range(0, len(ids), step):
        window = ids[begin : begin + room]
        encoded = tokenizer.prepare_for_model(
            *((asked, window) if question_first else (window, asked)),
            padding="max_length",
            max_length=length,
            return_token_type_ids=True,
            return_attention_mask=True,
            return_special_tokens_mask=True,
        )
        ordinary = [place for place, special in enumerate(encoded.pop("special_tokens_mask")) if not special]
        places = ordinary[len(asked) :] if question_first else ordinary[: len(window)]
        row = encoded["input_ids"]
        open_to = {place for place in places if row[place] not in special_ids} | {row.index(tokenizer.cls_token_id)}
        numbers = (number for number, _ in pieces[begin:])
        yield {
            **{name: torch.tensor([values]) for name, values in encoded.items()},
            "p_mask": torch.tensor([[place not in open_to for place in range(len(row))]]),
            "words": dict(zip(places, numbers, strict=False)),
        }
        if begin + room >= len(ids):
            return


def split(context: str) -> list[tuple[str, int, int]]:
    """Split a context into words.

    Returns:
        Each word, its first character, and the last one before the next word: where answers have always ended.
    """
    found = [(match.group(), match.start()) for match in _WORD.finditer(context)]
    ends = [start - 1 for _, start in found[1:]] + [len(context) - 1]
    return [(word, start, end) for (word, start), end in zip(found, ends, strict=False)]
