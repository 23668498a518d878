"""Look at one input before a tokenizer or a processor does: their own errors name neither item nor cause."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

from fastpipe.errors import InputError, InputTooLongError

_KINDS = {
    "image": ("an image", "Missing values stand for no picture: drop them."),
    "audio": ("sound", "Missing values stand for no sound: drop them."),
}


def check(item: Any, index: int | None, modality: str = "text") -> None:
    """Raise where an input cannot be meant: missing values and numbers, as they come out of a CSV, and broken text.

    What is neither text nor made of text is left to the task's own argument handling.

    Args:
        item: One input of a call: a text, or a list, tuple, mapping or question-and-context of texts.
        index: Its position in the call; `None` for a single input.
        modality: What it should be: "text", "image" or "audio". Of the latter two only what cannot be meant is refused.

    Raises:
        InputError: It is, or holds, something that is not text, or text that is not Unicode.
    """
    if modality != "text":
        if item is None or isinstance(item, numbers.Number):
            kind, remedy = _KINDS[modality]
            raise InputError(f"{item!r} ({type(item).__name__}) is not {kind}", index=index, remedy=remedy)
        return
    if isinstance(item, str):
        if not item.isascii():
            _check_surrogates(item, index)
    elif item is None or isinstance(item, numbers.Number):
        raise InputError(
            f"{item!r} ({type(item).__name__}) is not text",
            index=index,
            remedy="Missing values are not turned into text: drop them or put '' in their place.",
        )
    elif isinstance(item, bytes):
        raise InputError("bytes are not text", index=index, remedy="Decode them first, as in item.decode('utf-8').")
    elif isinstance(item, Mapping):
        for name, part in item.items():
            if part is not None or name != "text_pair":  # a pair may lack its second text
                check(part, index)
    elif isinstance(item, (list, tuple)):
        for part in item:
            check(part, index)
    elif hasattr(item, "question_text"):  # transformers' SquadExample
        check(item.question_text, index)
        check(item.context_text, index)


def check_length(tokens: int, limit: int | None, index: int | None) -> None:
    """Raise where an input has more tokens than the model has positions; torch's own error is about an index.

    Args:
        tokens: How many the input has, special ones included.
        limit: How many the model takes; `None` for no limit.
        index: The input's position in the call; `None` for a single input.

    Raises:
        InputTooLongError: There are too many.
    """
    if limit is not None and tokens > limit:
        raise InputTooLongError(
            f"{tokens} tokens, and the model takes at most {limit} ({tokens} > {limit})",
            index=index,
            remedy="Pass truncation=True where the task takes it, or shorten the text.",
        )


def check_stride(
    tokenizer: Any, example: Any, *, max_seq_len: int | None = None, doc_stride: int | None = None, **others: Any
) -> None:
    """Raise where windows of a context would overlap by all they hold; the tokenizer's own error is a panic.

    Args:
        tokenizer: The pipeline's.
        example: A question and a context, as a mapping or as an example of transformers.
        max_seq_len: Tokens of question and window; as for the pipeline.
        doc_stride: Tokens that two windows share; as for the pipeline.
        others: Other parameters, which do not matter here.

    Raises:
        InputError: The context does not fit into one window, and a window has no room for more than `doc_stride`.
    """
    if not getattr(tokenizer, "is_fast", False):
        return
    length = min(tokenizer.model_max_length, 384) if max_seq_len is None else max_seq_len
    stride = min(length // 2, 128) if doc_stride is None else doc_stride
    if isinstance(example, Mapping):
        question, context = example["question"], example["context"]
    else:
        question, context = example.question_text, example.context_text
    room = length - tokenizer.num_special_tokens_to_add(pair=True) - _tokens(tokenizer, question)
    if 0 < room <= stride <= length and _tokens(tokenizer, context) > room:
        raise InputError(
            f"doc_stride={stride} leaves nothing new for the next window of the context: with max_seq_len={length}, "
            f"a window has room for {room} tokens beside this question",
            remedy="Use a smaller doc_stride, or a larger max_seq_len if the model takes it.",
        )


def _tokens(tokenizer: Any, text: str) -> int:
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


def _check_surrogates(text: str, index: int | None) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"character {error.start} is a lone surrogate (U+{ord(text[error.start]):04X}), which no encoding has",
            index=index,
            remedy="Repair it with text.encode('utf-8', 'replace').decode('utf-8').",
        ) from error
