"""Zero-shot-classification: a row for each pair of a text and a candidate label's hypothesis."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from transformers import ZeroShotClassificationPipeline

from fastpipe.pipelines.rows import Row
from fastpipe.pipelines.shortcuts.base import STEPS, Answered, Shortcut, rounded

_TEMPLATE = inspect.signature(ZeroShotClassificationPipeline.preprocess).parameters["hypothesis_template"].default
# What tokenizers calls the model's inputs.
_ATTRIBUTES = {"input_ids": "ids", "token_type_ids": "type_ids", "attention_mask": "attention_mask"}


def _encode(pipe: Any, texts: Sequence[str], parameters: Mapping[str, Any]) -> list[Row] | None:
    """Tokenize each text and each hypothesis once, and put their tokens together in pairs."""
    tokenizer, labels = pipe.tokenizer, parameters["candidate_labels"]
    template = parameters.get("hypothesis_template", _TEMPLATE)
    if tokenizer.pad_token is None:  # the task gives it one, once
        return None
    rows: list[Row] = []
    pairs: list[tuple[str, str]] = []
    for owner, text in enumerate(texts):
        found, sequences = pipe._args_parser(text, labels, template)
        for number, (label, (premise, hypothesis)) in enumerate(zip(labels, found, strict=True)):
            beside = {"candidate_label": label, "sequence": sequences[0], "is_last": number == len(labels) - 1}
            rows.append(Row(owner=owner, feed={}, beside=beside))
            pairs.append((premise, hypothesis))

    parts = list(dict.fromkeys(part for pair in pairs for part in pair))
    alone = tokenizer(parts, add_special_tokens=False, verbose=False).encodings
    tokens = dict(zip(parts, alone, strict=True))
    # The tokenizer's own pair sets the truncation, and shows whether pairs can be put together by its last step alone.
    sample = max(pairs, key=lambda pair: len(pair[0]))
    own = tokenizer([list(sample)], truncation="only_first")
    together = tokenizer.backend_tokenizer.post_process
    made = together(*(tokens[part] for part in sample))
    if own.keys() != set(tokenizer.model_input_names) or any(
        [getattr(made, _ATTRIBUTES[name])] != own[name] for name in own
    ):
        return None
    for row, (premise, hypothesis) in zip(rows, pairs, strict=True):
        encoding = together(tokens[premise], tokens[hypothesis])  # fails where the text is too short for truncation
        row.feed = {name: np.array([getattr(encoding, _ATTRIBUTES[name])], dtype=np.int64) for name in own}
    return rows


def _candidates(pipe: Any, answered: Sequence[Answered], parameters: Mapping[str, Any]) -> list[Any]:
    """Make of logits (1, classes), one for each label, what zero-shot-classification gives."""
    labels = [[row.beside["candidate_label"] for row, _ in parts] for parts in answered]
    logits = np.stack([np.concatenate([answer["logits"] for _, answer in parts]) for parts in answered])
    values = rounded(logits, pipe.model.dtype).float().numpy()
    entailed = pipe.entailment_id
    if parameters.get("multi_label", False) or len(labels[0]) == 1:
        against = 0 if entailed != 0 else -1
        odds = np.exp(values[..., [against, entailed]])
        scores = (odds / odds.sum(-1, keepdims=True))[..., 1]
    else:
        odds = np.exp(values[..., entailed])
        scores = odds / odds.sum(-1, keepdims=True)
    order = scores.argsort(axis=-1)[:, ::-1]
    ranked = np.take_along_axis(scores, order, axis=-1)
    return [
        {"sequence": parts[0][0].beside["sequence"], "labels": [names[i] for i in best], "scores": sorted_scores}
        for parts, names, best, sorted_scores in zip(answered, labels, order.tolist(), ranked.tolist(), strict=True)
    ]


CANDIDATES = Shortcut(
    task=ZeroShotClassificationPipeline,
    encode=_encode,
    decode=_candidates,
    parameters=frozenset({"candidate_labels", "hypothesis_template"}),
    steps=(*STEPS, "_parse_and_tokenize", "entailment_id"),
)
