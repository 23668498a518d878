"""Ways around the work that transformers does item by item, for tasks whose steps are simple.

Texts are tokenized together, with the pipeline's own tokenizer, and a whole batch becomes results at once. The results
are those of the task's own `preprocess`, `_forward` and `postprocess`, which are used wherever one of them was
replaced, or anything unusual is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers

from fastpipe.backends.base import TEXT_INPUTS
from fastpipe.batching.collate import Feed

Decode = Callable[[Any, Sequence[Feed], Mapping[str, Any]], list[Any]]

_STEPS = ("preprocess", "_forward", "postprocess")
# What may be said to the tokenizer and leaves each text's row what it would be alone.
_SAFE = frozenset({"truncation", "max_length", "add_special_tokens"})


@dataclass(frozen=True, kw_only=True)
class Shortcut:
    """The way around for one task.

    Attributes:
        decode: Makes results of outputs: the pipeline, each row's outputs of axis 0 of length 1, and the parameters of
            `postprocess`. Gives one result for each row, none of which shares anything with another.
        encodes: Whether texts can be tokenized together.
    """

    decode: Decode
    encodes: bool

    def encode(self, pipe: Any, texts: Sequence[str], parameters: Mapping[str, Any]) -> list[Feed] | None:
        """Tokenize texts together.

        Args:
            pipe: The pipeline.
            texts: One or more.
            parameters: Of its `preprocess`.

        Returns:
            Arrays int64 of shape (1, tokens) for each text; `None` where the tokenizer gives what we do not know.
        """
        encoded = pipe.tokenizer(list(texts), **parameters)
        if not set(encoded) <= set(TEXT_INPUTS) or len(encoded["input_ids"]) != len(texts):
            return None
        columns = {name: [np.array([row], dtype=np.int64) for row in rows] for name, rows in encoded.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def find(pipe: Any, preprocess: Mapping[str, Any]) -> Shortcut | None:
    """Give the way around for a pipeline, if it is one whose steps are known, and still transformers' own.

    Args:
        pipe: The pipeline.
        preprocess: Parameters of its `preprocess` in this call.
    """
    fast = isinstance(pipe.tokenizer, transformers.PreTrainedTokenizerFast)
    for base, decode in _DECODERS.items():
        if isinstance(pipe, base) and all(_is_own(pipe, base, step) for step in _STEPS):
            return Shortcut(decode=decode, encodes=fast and preprocess.keys() <= _SAFE)
    return None


def _is_own(pipe: Any, base: type, step: str) -> bool:
    return getattr(type(pipe), step) is getattr(base, step) and step not in vars(pipe)


def _labels(pipe: Any, rows: Sequence[Feed], parameters: Mapping[str, Any]) -> list[Any]:
    """Make of logits (1, labels) what text-classification gives."""
    scores = _FUNCTIONS[_function(pipe.model.config, parameters.get("function_to_apply"))](
        _rounded(np.concatenate([row["logits"] for row in rows]), pipe.model.dtype).float().numpy()
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


def _softmax(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    exponentials = np.exp(logits - logits.max(axis=-1, keepdims=True))
    normalized: np.ndarray[Any, Any] = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return normalized


_FUNCTIONS: dict[str, Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]] = {
    "none": lambda logits: logits,
    "sigmoid": lambda logits: 1.0 / (1.0 + np.exp(-logits)),
    "softmax": _softmax,
}


def _features(pipe: Any, rows: Sequence[Feed], parameters: Mapping[str, Any]) -> list[Any]:
    """Give the first output of each row (1, tokens, width), as a tensor or as lists."""
    tensors = [_rounded(next(iter(row.values())), pipe.model.dtype) for row in rows]
    return tensors if parameters.get("return_tensors") else [tensor.tolist() for tensor in tensors]


def _rounded(array: np.ndarray[Any, Any], dtype: torch.dtype) -> torch.Tensor:
    """Give an output in the dtype that the model answers with."""
    return torch.from_numpy(array).to(dtype)


_DECODERS: dict[type, Decode] = {
    transformers.TextClassificationPipeline: _labels,
    transformers.FeatureExtractionPipeline: _features,
}
