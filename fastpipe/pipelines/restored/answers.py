"""Extractive question answering: the span of a context that answers a question."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Hashable, Iterator
from typing import Any

import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES
from transformers.pipelines.base import ChunkPipeline

from fastpipe.pipelines.restored import spans, words
from fastpipe.pipelines.restored.base import RestoredPipeline, Steps, said
from fastpipe.pipelines.restored.examples import QuestionAnsweringArgumentHandler, SquadExample, make_example


class QuestionAnsweringPipeline(RestoredPipeline, ChunkPipeline):
    """Answers questions with spans of their contexts.

    A result is `{"score": float, "start": int, "end": int, "answer": str}`, where `context[start:end] == answer`, and a
    list of them where `top_k` asks for more than one and there are more. `pipe(question=..., context=...)` takes texts
    or lists of texts, `pipe(...)` also dicts of both.

    A context that is too long for the model is read through windows that overlap by `doc_stride` tokens.
    """

    default_input_names = "question,context"
    handle_impossible_answer = False
    _load_tokenizer = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._args_parser = QuestionAnsweringArgumentHandler()
        self.check_model_type(MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES)

    @staticmethod
    def create_sample(question: Any, context: Any) -> Any:
        """Make an example, or a list of them from lists."""
        return make_example(question, context)

    def _sanitize_parameters(
        self,
        padding: Any = None,
        topk: int | None = None,
        top_k: int | None = None,
        doc_stride: int | None = None,
        max_answer_len: int | None = None,
        max_seq_len: int | None = None,
        max_question_len: int | None = None,
        handle_impossible_answer: bool | None = None,
        align_to_words: bool | None = None,
        **others: Any,
    ) -> Steps:
        if topk is not None and top_k is None:
            warnings.warn("topk= is deprecated, use top_k=", UserWarning)
            top_k = topk
        for name, value in (("top_k", top_k), ("max_answer_len", max_answer_len)):
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} is less than 1")
        before = said(
            padding=padding, doc_stride=doc_stride, max_question_len=max_question_len, max_seq_len=max_seq_len
        )
        after = said(
            top_k=top_k,
            max_answer_len=max_answer_len,
            handle_impossible_answer=handle_impossible_answer,
            align_to_words=align_to_words,
        )
        return before, {}, after

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Answer questions.

        Args:
            args: A dict with a question and a context, an example, or a list, generator or Dataset of such.
            kwargs: `question` and `context`, and these:
                top_k: Answers to give, at most; 1 by default.
                doc_stride: Tokens that two windows of a context share; 128 by default, or half of `max_seq_len`.
                max_answer_len: Tokens of the longest answer; 15 by default.
                max_seq_len: Tokens of question and window together; 384 by default, or as many as the model takes.
                max_question_len: Tokens that are left of a question; 64 by default; for slow tokenizers only.
                handle_impossible_answer: Whether "" may be the answer.
                align_to_words: Whether answers begin and end with words; they do by default.
        """
        examples = self._args_parser(*args, **kwargs)
        only = isinstance(examples, list) and len(examples) == 1
        return super().__call__(examples[0] if only else examples, **kwargs)

    def preprocess(
        self,
        example: Any,
        padding: Any = "do_not_pad",
        doc_stride: int | None = None,
        max_question_len: int = 64,
        max_seq_len: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Give the windows of a context.

        Raises:
            ValueError: `doc_stride` is more than `max_seq_len`.
        """
        if isinstance(example, dict):
            example = SquadExample(example["question"], example["context"])
        length = min(self.tokenizer.model_max_length, 384) if max_seq_len is None else max_seq_len
        stride = min(length // 2, 128) if doc_stride is None else doc_stride
        if stride > length:
            raise ValueError(f"doc_stride={stride} is more than max_seq_len={length}")
        if self.tokenizer.is_fast:
            windows = list(self._windows(example, padding, length, stride))
        else:
            limits = {"length": length, "step": stride, "question_length": max_question_len}
            windows = list(words.windows(self.tokenizer, example.question_text, example.context_text, **limits))
        for index, window in enumerate(windows):
            yield {"example": example, "is_last": index == len(windows) - 1, **window}

    def _windows(self, example: Any, padding: Any, length: int, stride: int) -> Iterator[dict[str, Any]]:
        question_first = self.tokenizer.padding_side == "right"
        both = (example.question_text, example.context_text)
        encoded = self.tokenizer(
            *(both if question_first else both[::-1]),
            padding=padding,
            truncation="only_second" if question_first else "only_first",
            max_length=length,
            stride=stride,
            return_token_type_ids=True,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_special_tokens_mask=True,
        )
        for index, ids in enumerate(encoded["input_ids"]):
            # What is padded on the left was never masked, and its answers stay as they were.
            outside = [question_first and part != 1 for part in encoded.sequence_ids(index)]
            # Some models point at their first token where there is no answer.
            masked = [out and token != self.tokenizer.cls_token_id for out, token in zip(outside, ids, strict=True)]
            names = [name for name in (*self.tokenizer.model_input_names, "token_type_ids") if name in encoded]
            tensors = {name: torch.tensor([encoded[name][index]]) for name in names}
            yield {**tensors, "p_mask": torch.tensor([masked]), "encoding": encoded[index]}

    def _forward(self, inputs: Any) -> dict[str, Any]:
        asked = {name: inputs[name] for name in self.tokenizer.model_input_names}
        if "use_cache" in inspect.signature(self.model.forward).parameters:
            asked["use_cache"] = False
        output = self.model(**asked)
        named = isinstance(output, dict)
        start, end = (output["start_logits"], output["end_logits"]) if named else output[:2]
        return {**inputs, "start": start, "end": end}

    def postprocess(
        self,
        model_outputs: Any,
        top_k: int = 1,
        handle_impossible_answer: bool = False,
        max_answer_len: int = 15,
        align_to_words: bool = True,
    ) -> Any:
        """Make the answers out of all windows of one context."""
        # Candidates of the same text become one answer, so that more are needed than answers are asked for.
        count = top_k * 2 + 10 if align_to_words else top_k
        answers: dict[Hashable, dict[str, Any]] = {}
        impossible = 1e6
        for window in model_outputs:
            allowed = ~window["p_mask"][0].numpy().astype(bool)
            if window.get("attention_mask") is not None:
                allowed &= window["attention_mask"][0].numpy().astype(bool)
            starts, ends = (spans.probabilities(_array(window[side]), allowed) for side in ("start", "end"))
            impossible = min(impossible, (starts[0] * ends[0]).item())
            starts[0] = ends[0] = 0
            for first, last, score in spans.best(starts, ends, allowed, count=count, longest=max_answer_len):
                context = window["example"].context_text
                if self.tokenizer.is_fast:
                    start, end = self._characters(window, first, last, align_to_words)
                    key, text = context[start:end].lower(), context[start:end]
                elif {first, last} <= window["words"].keys():
                    found = words.split(context)[window["words"][first] : window["words"][last] + 1]
                    start, end, text = found[0][1], found[-1][2], " ".join(word for word, *_ in found)
                    key = len(answers)  # these were never joined
                else:
                    continue
                answer = answers.setdefault(key, {"score": 0.0, "start": start, "end": end, "answer": text})
                answer["score"] += score
        ranked = list(answers.values())
        if handle_impossible_answer:
            ranked.append({"score": impossible, "start": 0, "end": 0, "answer": ""})
        ranked = sorted(ranked, key=lambda answer: -answer["score"])[:top_k]
        return ranked[0] if len(ranked) == 1 else ranked

    def _characters(self, window: Any, first: int, last: int, align_to_words: bool) -> tuple[int, int]:
        """Find where a span of tokens starts and ends in the context."""
        if self.tokenizer.padding_side == "left":  # the encoding is not padded, the tokens may be
            padded = (window["input_ids"] == self.tokenizer.pad_token_id).sum().item()
            first, last = first - padded, last - padded
        context = 1 if self.tokenizer.padding_side == "right" else 0
        return self.get_indices(window["encoding"], first, last, context, align_to_words)

    def get_indices(self, enc: Any, s: int, e: int, sequence_index: int, align_to_words: bool) -> tuple[int, int]:
        """Find the characters of a span of tokens.

        Args:
            enc: The window's encoding.
            s: Its first token.
            e: Its last token.
            sequence_index: Which of the two sequences of the encoding is the context.
            align_to_words: Whether the words are wanted that these tokens are part of.

        Returns:
            The first character, and the one after the last.
        """
        if align_to_words:
            try:
                first, last = (enc.word_to_chars(enc.token_to_word(token), sequence_index) for token in (s, e))
                return first[0], last[1]
            except Exception:
                pass  # the tokenizer knows no words, or not here
        return enc.offsets[s][0], enc.offsets[e][1]


def _array(logits: torch.Tensor) -> spans.Array:
    """Give one row's logits to numpy, which knows no bfloat16."""
    array: spans.Array = (logits.float() if logits.dtype == torch.bfloat16 else logits)[0].numpy()
    return array
