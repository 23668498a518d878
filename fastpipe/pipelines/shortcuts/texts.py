"""Text-classification and feature-extraction: one row for each text, and one result for each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import transformers

from fastpipe.backends.base import TEXT_INPUTS
from fastpipe.pipelines.rows import Row
from fastpipe.pipelines.shortcuts.base import Answered, Array, Shortcut, rounded, softmax

# What may be said to the tokenizer and leaves each text's row what it would be alone.
_SAFE = frozenset({"truncation", "max_length", "add_special_tokens"})


def _encode(pipe: Any, texts: Sequence[str], parameters: Mapping[str, Any]) -> list[Row] | None:
    encoded = pipe.tokenizer(list(texts), **parameters)
    if not set(encoded) <= set(TEXT_INPUTS) or len(encoded["input_ids"]) != len(texts):
        return None
    columns = {name: [np.array([row], dtype=np.int64) for row in rows] for name, rows in encoded.items()}
    rows = zip(*columns.values(), strict=True)
    return [Row(owner=owner, feed=dict(zip(columns, row, strict=True))) for owner, row in enumerate(rows)]


def _labels(pipe: Any, answered: Sequence[Answered], parameters: Mapping[str, Any]) -> list[Any]:
    """Make of logits (1, labels) what text-classification gives."""
    logits = np.concatenate([answer["logits"] for ((_, answer),) in answered])
    scores = _FUNCTIONS[_function(pipe.model.config, parameters.get("function_to_apply"))](
        rounded(logits, pipe.model.dtype).float().numpy()
    )
    names, top_k, legacy = pipe.model.config.id2label, parameters.get("top_k", 1), parameters.get("_legacy", True)
    if legacy and top_k == 1:
        best = scores.argmax(axis=1).tolist()
        return [{"label": names[i], "score": s} for i, s in zip(best, scores.max(axis=1).tolist(), strict=True)]
    ordered = np.tile(np.arange(scores.shape[1]), (len(scores), 1))
    if not legacy:
        ordered = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
    ranked = np.take_along_axis(scores, ordered, axis=1)
    return [
        [{"label": names[i], "score": score} for i, score in zip(order, values, strict=True)]
        for order, values in zip(ordered.tolist(), ranked.tolist(), strict=True)
    ]


def _function(config: Any, asked: Any) -> str:
    """Name the function that makes scores of logits: the one asked for, else what the config implies."""
    if asked is not None:
        return str(asked.value)
    if config.problem_type == "regression":
        return "none"
    if config.problem_type == "multi_label_classification" or config.num_labels == 1:
        return "sigmoid"
    if config.problem_type == "single_label_classification" or config.num_labels > 1:
        return "softmax"
    raise LookupError("the task's own code knows")


_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "none": lambda logits: logits,
    "sigmoid": lambda logits: 1.0 / (1.0 + np.exp(-logits)),
    "softmax": softmax,
}


def _features(pipe: Any, answered: Sequence[Answered], parameters: Mapping[str, Any]) -> list[Any]:
    """Give the first output of each row (1, tokens, width), as a tensor or as lists."""
    tensors = [rounded(next(iter(answer.values())), pipe.model.dtype) for ((_, answer),) in answered]
    return tensors if parameters.get("return_tensors") else [tensor.tolist() for tensor in tensors]


LABELS = Shortcut(task=transformers.TextClassificationPipeline, encode=_encode, decode=_labels, parameters=_SAFE)
FEATURES = Shortcut(task=transformers.FeatureExtractionPipeline, encode=_encode, decode=_features, parameters=_SAFE)
