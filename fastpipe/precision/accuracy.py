"""How far a candidate is from the fp32 reference, by the task's own measure, tail first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias

import numpy as np

from fastpipe.options import Accuracy

Array: TypeAlias = "np.ndarray[Any, Any]"
Rows = Mapping[str, Array]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """How rows of a task are compared.

    Attributes:
        agreement: What agreement counts, in words; it is from 0 to 1 for each row.
        drift: What drift counts, in words; it is 0 or more for each row.
        headline: The figure of `Figures` to name first.
        reduce: Keeps of one row's outputs what is compared: outputs of shape (1, ...) in the order the task reads them,
            the row's token ids (1, tokens), the tokenizer's mask id.
        compare: Gives agreement and drift, each of shape (rows,), of candidates beside references.
    """

    agreement: str
    drift: str
    headline: str
    reduce: Callable[[Sequence[Array], Any, int | None], Array]
    compare: Callable[[Sequence[Array], Sequence[Array]], tuple[Array, Array]]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was measured of one candidate.

    Attributes:
        agreement: The mean over all rows.
        worst: The smallest of any row.
        drift: The largest of any row.
        instability: The largest drift between a row alone and the same row in a batch; `None` where another figure
            had decided already.
    """

    agreement: float
    worst: float
    drift: float
    instability: float | None = None

    def to_dict(self) -> dict[str, float | None]:
        """Give the figures as plain values."""
        return asdict(self)


def figures(measure: Measure, reference: Sequence[Array], candidate: Sequence[Array]) -> Figures:
    """Compare a candidate's reduced rows with those of fp32."""
    agreement, drift = measure.compare(reference, candidate)
    return Figures(agreement=float(np.mean(agreement)), worst=float(np.min(agreement)), drift=float(np.max(drift)))


def instability(measure: Measure, together: Sequence[Array], alone: Mapping[int, Array]) -> float:
    """Compare some of a candidate's reduced rows, run alone, with the same rows from batches."""
    if not alone:
        return 0.0
    _, moved = measure.compare(list(alone.values()), [together[position] for position in alone])
    return float(np.max(moved, initial=0.0))


def shortfalls(found: Figures, wanted: Accuracy) -> list[str]:
    """Say which thresholds are missed, with the figure; nothing when all are met. A figure that is no number misses."""
    if any(value != value for value in asdict(found).values()):
        return ["some results are no numbers"]
    missed = []
    for field in fields(Accuracy):
        limit, value = getattr(wanted, field.name), getattr(found, field.name)
        least = field.name in ("agreement", "worst")
        if limit is not None and value is not None and not (value >= limit if least else value <= limit):
            words = "worst agreement" if field.name == "worst" else field.name
            missed.append(f"{words} {value:.4g}, {'at least' if least else 'at most'} {limit:g} is wanted")
    return missed


# Of two answers whose probabilities differ by less than a fiftieth, neither is the right one.
_TIE = 0.98


def _softmax(logits: Array) -> Array:
    exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities: Array = exponents / exponents.sum(axis=-1, keepdims=True)
    return probabilities


def _sigmoid(logits: Array) -> Array:
    probabilities: Array = 0.5 * (1 + np.tanh(logits / 2))
    return probabilities


def _each(one: Callable[[Array, Array], tuple[float, float]]) -> Any:
    """Compare row by row."""

    def compare(reference: Sequence[Array], candidate: Sequence[Array]) -> tuple[Array, Array]:
        pairs = [one(r, c) for r, c in zip(reference, candidate, strict=True)]
        return np.array([agreement for agreement, _ in pairs]), np.array([drift for _, drift in pairs])

    return compare


def _top(reference: Array, candidate: Array) -> tuple[float, float]:
    """Compare the most probable of the last axis."""
    same, drift = _top_each(reference, candidate)
    return float(np.mean(same)), drift


def _top_each(reference: Array, candidate: Array) -> tuple[Array, float]:
    """Compare the most probable of the last axis; the reference's own tie has no right side."""
    taken = np.take_along_axis(reference, candidate.argmax(axis=-1)[..., None], axis=-1)[..., 0]
    same: Array = taken >= _TIE * reference.max(axis=-1)
    return same, float(np.abs(reference - candidate).max())


def _probabilities_of_pixels(outputs: Sequence[Array]) -> Array:
    """Give (height, width, labels) from logits of every pixel, or from masks of queries and their labels."""
    if len(outputs) == 1:
        return _softmax(np.moveaxis(outputs[0][0], 0, -1))
    # The last label of a query is "none of them"; a query counts for a pixel as far as its mask covers it.
    labels, masks = _softmax(outputs[0][0])[:, :-1], _sigmoid(outputs[-1][0])
    found = np.einsum("ql,qhw->hwl", labels, masks)
    probabilities: Array = found / np.maximum(found.sum(axis=-1, keepdims=True), 1e-12)
    return probabilities


# How far a box may move, as a share of the picture, to be where it was.
_NEAR = 0.02


def _boxes(reference: Array, candidate: Array) -> tuple[float, float]:
    """Compare queries, (queries, 4 + labels): the most probable label, and where the box is."""
    labels, drift = _top_each(reference[:, 4:], candidate[:, 4:])
    near = np.abs(reference[:, :4] - candidate[:, :4]).max(axis=-1) <= _NEAR
    return float(np.mean(labels & near)), drift


def _depths(reference: Array, candidate: Array) -> tuple[float, float]:
    """Compare depths as shares of the range that the reference has in the picture."""
    errors = np.abs(reference - candidate) / max(float(np.ptp(reference)), 1e-12)
    return max(0.0, 1.0 - float(errors.mean())) if np.isfinite(errors).all() else float("nan"), float(errors.max())


def _distributions(reference: Array, candidate: Array) -> tuple[float, float]:
    """Compare what comes next, of shape (tokens, vocabulary): the likeliest token, and the divergence, in nats."""
    same, _ = _top(reference, candidate)
    tiny = np.float32(1e-12)
    divergence = (reference * (np.log(reference + tiny) - np.log(candidate + tiny))).sum(axis=-1)
    return same, max(float(divergence.mean()), 0.0)


def _sides(reference: Array, candidate: Array) -> tuple[float, float]:
    """Compare on which side of one half each score is."""
    return float(np.mean((reference > 0.5) == (candidate > 0.5))), float(np.abs(reference - candidate).max())


def _cosine(reference: Array, candidate: Array) -> tuple[float, float]:
    r: Array = reference.astype(np.float64)
    c: Array = candidate.astype(np.float64)
    lengths = np.sqrt((r @ r) * (c @ c))
    cosine = min(float(r @ c / lengths), 1.0) if lengths else float(not (r - c).any())
    return max(cosine, 0.0) if cosine == cosine else cosine, 1 - cosine


def _order(reference: Sequence[Array], candidate: Sequence[Array]) -> tuple[Array, Array]:
    """Compare how texts rank: each one's share of the others that stand on the same side of it.

    The mean share m gives Kendall's tau as 2m - 1. Texts that the reference holds equal agree with any order.
    """
    r, c = np.array(reference, float).ravel(), np.array(candidate, float).ravel()
    spread = float(r.std()) or 1.0
    before, after = np.subtract.outer(r, r), np.subtract.outer(c, c)
    same = (np.sign(before) == np.sign(after)) | (np.abs(before) <= 1e-6 * spread)
    others = max(len(r) - 1, 1)
    return (same.sum(axis=1) - 1) / others if len(r) > 1 else np.ones(1), np.abs(r - c) / spread


MEASURES = {
    "labels": Measure(
        agreement="share of inputs with the same label, or one as probable to 2 %",
        drift="largest change of a label's probability",
        headline="agreement",
        reduce=lambda outputs, ids, mask: _softmax(outputs[0][0]),
        compare=_each(_top),
    ),
    "label-sets": Measure(
        agreement="share of labels that are on, or off, in both",
        drift="largest change of a label's probability",
        headline="agreement",
        reduce=lambda outputs, ids, mask: _sigmoid(outputs[0][0]),
        compare=_each(_sides),
    ),
    "order": Measure(
        agreement="share of pairs of texts in the same order (Kendall's tau = 2 x share - 1)",
        drift="largest change of a score, in standard deviations of all scores",
        headline="agreement",
        reduce=lambda outputs, ids, mask: outputs[0][0].copy(),
        compare=_order,
    ),
    "token-labels": Measure(
        agreement="share of tokens with the same label, or one as probable to 2 %",
        drift="largest change of a label's probability",
        headline="agreement",
        reduce=lambda outputs, ids, mask: _softmax(outputs[0][0]),
        compare=_each(_top),
    ),
    "masked-tokens": Measure(
        agreement="share of masks filled with the same token, or one as probable to 2 %",
        drift="largest change of a token's probability",
        headline="agreement",
        reduce=lambda outputs, ids, mask: _softmax(outputs[0][0][ids[0] == mask]),
        compare=_each(_top),
    ),
    "next-tokens": Measure(
        agreement="share of next tokens that are the same, or as probable to 2 %",
        drift="largest mean divergence of a text's next-token distributions (Kullback-Leibler, nats)",
        headline="agreement",
        reduce=lambda outputs, ids, mask: _softmax(outputs[0][0]),
        compare=_each(_distributions),
    ),
    "answers": Measure(
        agreement="share of answers' ends at the same token, or one as probable to 2 %",
        drift="largest change of an end's probability",
        headline="agreement",
        reduce=lambda outputs, ids, mask: np.stack([_softmax(outputs[0][0]), _softmax(outputs[1][0])]),
        compare=_each(_top),
    ),
    "embeddings": Measure(
        agreement="cosine of texts' mean token vectors",
        drift="1 - cosine",
        headline="worst",
        reduce=lambda outputs, ids, mask: outputs[0][0].mean(axis=0),
        compare=_each(_cosine),
    ),
    "features": Measure(
        agreement="cosine of all features of a picture",
        drift="1 - cosine",
        headline="worst",
        reduce=lambda outputs, ids, mask: outputs[0].ravel(),
        compare=_each(_cosine),
    ),
    "boxes": Measure(
        agreement="share of queries with the same label, or one as probable to 2 %, and a box moved by 2 % at most",
        drift="largest change of a label's probability",
        headline="agreement",
        reduce=lambda outputs, ids, mask: np.concatenate([outputs[1][0], _softmax(outputs[0][0])], axis=-1),
        compare=_each(_boxes),
    ),
    "pixel-labels": Measure(
        agreement="share of pixels with the same label, or one as probable to 2 %",
        drift="largest change of a label's probability",
        headline="agreement",
        reduce=lambda outputs, ids, mask: _probabilities_of_pixels(outputs),
        compare=_each(_top),
    ),
    "depths": Measure(
        agreement="1 - mean change of depth, as a share of the range of depths in the picture",
        drift="largest change of depth, as a share of that range",
        headline="agreement",
        reduce=lambda outputs, ids, mask: outputs[0][0].copy(),
        compare=_each(_depths),
    ),
    "frames": Measure(
        agreement="share of frames of sound with the same symbol, or one as probable to 2 %",
        drift="largest change of a symbol's probability",
        headline="agreement",
        reduce=lambda outputs, ids, mask: _softmax(outputs[0][0]),
        compare=_each(_top),
    ),
}
