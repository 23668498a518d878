"""`verify()`: the pipeline beside its own fp32 reference on the user's data, with labels where there are some."""

from __future__ import annotations

import html
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fastpipe.errors import MissingBackendError, OptionError
from fastpipe.factory import pipeline
from fastpipe.pipelines.generators.model import GeneratorModel
from fastpipe.pipelines.model import EngineModel

_LISTED = 10
Metric = Callable[[Sequence[Any], Sequence[Any]], float]


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """One sample that the two answer differently, or with other scores."""

    index: int
    sample: Any
    reference: Any
    candidate: Any
    agreement: float
    drift: float


@dataclass(frozen=True, kw_only=True)
class Verification:
    """A pipeline beside its fp32 reference.

    Attributes:
        task: transformers' name of the task.
        candidate: The recipe that the pipeline runs.
        samples: How many inputs were compared.
        agreement: The mean over the samples: 1 for the same answer and 0 for another one; for entities the F1 score
            between the two sets; for embeddings the cosine of mean token vectors.
        worst: The smallest of any sample.
        drift: The largest change of a score that both give.
        speedup: The reference's time over the candidate's, from one pass each.
        metric: Name of the metric on the user's labels; empty without labels.
        scores: By "reference" and "candidate", the metric's values; empty without labels.
        disagreements: The worst first, at most ten.
    """

    task: str
    candidate: str
    samples: int
    agreement: float
    worst: float
    drift: float
    speedup: float
    metric: str
    scores: Mapping[str, float]
    disagreements: tuple[Disagreement, ...]

    def to_dict(self) -> dict[str, Any]:
        """Give the record as plain values."""
        return asdict(self)

    def _lines(self) -> list[str]:
        lines = [
            f"{self.task}: {self.candidate} beside fp32 on {self.samples} samples",
            f"agreement {self.agreement:.4f}, worst {self.worst:.4f}, drift {self.drift:.4f}, {self.speedup:.2f}x fp32",
        ]
        if self.scores:
            reference, candidate = self.scores["reference"], self.scores["candidate"]
            lines.append(f"{self.metric}: fp32 {reference:.4f}, {self.candidate} {candidate:.4f}")
        return lines

    def __str__(self) -> str:
        listed = [
            f"  {d.index}: {_short(d.reference)} -> {_short(d.candidate)} (drift {d.drift:.4f})  {_short(d.sample, 60)}"
            for d in self.disagreements
        ]
        return "\n".join([*self._lines(), *(["worst disagreements:", *listed] if listed else [])])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in ("index", "sample", "fp32", self.candidate, "drift"))
        rows = "".join(
            "<tr>"
            + "".join(
                f"<td style='text-align:left'>{html.escape(cell)}</td>"
                for cell in (
                    str(d.index), _short(d.sample, 80), _short(d.reference), _short(d.candidate), f"{d.drift:.4f}"
                )
            )
            + "</tr>"
            for d in self.disagreements
        )  # fmt: skip
        notes = "".join(f"<p>{html.escape(line)}</p>" for line in self._lines())
        return f"{notes}<table><tr>{head}</tr>{rows}</table>"


def verify(
    pipe: Any,
    samples: Sequence[Any],
    labels: Sequence[Any] | None = None,
    metric: str | Metric | None = None,
    **parameters: Any,
) -> Verification:
    """Compare a pipeline with the fp32 model on the same engine, on the user's own data.

    Args:
        pipe: A pipeline that `fastpipe.pipeline` made, on an engine.
        samples: Its inputs.
        labels: The right answer to each: a label, a text; whatever `metric` takes.
        metric: A function of (predictions, labels), or a name in `sklearn.metrics` or `evaluate` ("accuracy", "f1").
            Predictions are labels, answers, filled tokens or lists of entities; for feature-extraction they are mean
            token vectors, float32 (hidden,). Default: the share of predictions that equal their label.
        parameters: Arguments of both calls, as in `pipe(samples, truncation=True)`.

    Raises:
        OptionError: There is nothing to compare: no samples, no engine, or as many labels as samples are missing.
        MissingBackendError: The metric's library is not installed.
    """
    samples = list(samples)
    model = getattr(pipe, "model", None)
    if not isinstance(model, EngineModel):
        if isinstance(model, GeneratorModel):
            raise OptionError("verify() compares no models that generate", remedy="pipe.report has their figures.")
        raise OptionError("this pipeline runs the torch model as it is", remedy="There is nothing to verify.")
    if not samples:
        raise OptionError("samples= is empty", remedy="Give inputs like those the pipeline will see.")
    if labels is not None and len(labels) != len(samples):
        raise OptionError(f"{len(samples)} samples and {len(labels)} labels", remedy="Give one label for each sample.")
    score = _metric(metric)
    reference = pipeline(
        **model.request.arguments, backend=pipe.plan.backend, precision="fp32", cache_dir=model.cache_dir
    )
    answers, seconds = {}, {}
    for name, one in (("reference", reference), ("candidate", pipe)):
        started = time.perf_counter()
        answers[name] = [_Answer(pipe.task, result) for result in _call(one, samples, parameters)]
        seconds[name] = time.perf_counter() - started
    pairs = list(zip(answers["reference"], answers["candidate"], strict=True))
    agreement = [r.agreement(c) for r, c in pairs]
    drift = [r.drift(c) for r, c in pairs]
    order = sorted(range(len(samples)), key=lambda i: (agreement[i], -drift[i]))
    predictions = {name: [answer.prediction for answer in found] for name, found in answers.items()}
    return Verification(
        task=pipe.task,
        candidate=pipe.plan.precision,
        samples=len(samples),
        agreement=float(np.mean(agreement)),
        worst=float(np.min(agreement)),
        drift=float(np.max(drift)),
        speedup=seconds["reference"] / seconds["candidate"],
        metric=(metric if isinstance(metric, str) else getattr(metric, "__name__", "accuracy"))
        if labels is not None
        else "",
        scores={name: float(score(found, labels)) for name, found in predictions.items()} if labels is not None else {},
        disagreements=tuple(
            Disagreement(
                index=i,
                sample=samples[i],
                reference=pairs[i][0].shown,
                candidate=pairs[i][1].shown,
                agreement=float(agreement[i]),
                drift=float(drift[i]),
            )
            for i in order[:_LISTED]
            if agreement[i] < 1 or drift[i] > 0
        ),
    )


class _Answer:
    """A pipeline's result for one sample, as something to compare."""

    def __init__(self, task: str, result: Any) -> None:
        self.prediction, self.scores = _READERS[task](result)
        is_vector = isinstance(self.prediction, np.ndarray)
        self.shown = "a vector" if is_vector else self.prediction

    def agreement(self, other: _Answer) -> float:
        mine, theirs = self.prediction, other.prediction
        if isinstance(mine, np.ndarray):
            return float(mine @ theirs / (np.linalg.norm(mine) * np.linalg.norm(theirs) or 1.0))
        if isinstance(mine, list):
            both = len(set(mine) & set(theirs))
            return 2 * both / (len(set(mine)) + len(set(theirs))) if mine or theirs else 1.0
        return float(mine == theirs)

    def drift(self, other: _Answer) -> float:
        common = self.scores.keys() & other.scores.keys()
        return max((abs(self.scores[name] - other.scores[name]) for name in common), default=0.0)


def _labels(result: Any) -> tuple[Any, dict[Any, float]]:
    found = result if isinstance(result, list) else [result]
    scores = {one["label"]: one["score"] for one in found}
    return max(scores, key=scores.__getitem__), scores


def _candidates(result: Any) -> tuple[Any, dict[Any, float]]:
    return result["labels"][0], dict(zip(result["labels"], result["scores"], strict=True))


def _entities(result: Any) -> tuple[Any, dict[Any, float]]:
    scores = {
        (one.get("entity_group") or one.get("entity"), one.get("start"), one.get("end"), one.get("word")): one["score"]
        for one in result
    }
    return list(scores), {name: float(score) for name, score in scores.items()}


def _filled(result: Any) -> tuple[Any, dict[Any, float]]:
    masks = result if result and isinstance(result[0], list) else [result]
    scores = {(n, one["token_str"]): one["score"] for n, mask in enumerate(masks) for one in mask}
    return " ".join(mask[0]["token_str"] for mask in masks), scores


def _spans(result: Any) -> tuple[Any, dict[Any, float]]:
    found = result if isinstance(result, list) else [result]
    return found[0]["answer"], {(one["start"], one["end"]): one["score"] for one in found}


def _transcript(result: Any) -> tuple[Any, dict[Any, float]]:
    return result["text"], {}


def _things(result: Any) -> tuple[Any, dict[Any, float]]:
    """Number the things of one label, the surest first, as boxes have no names."""
    seen: Counter[str] = Counter()
    scores: dict[Any, float] = {}
    for one in sorted(result, key=lambda one: -(one["score"] or 0)):
        scores[(one["label"], seen[one["label"]])] = float(one["score"] or 0)
        seen[one["label"]] += 1
    return list(scores), scores


def _depths(result: Any) -> tuple[Any, dict[Any, float]]:
    return np.asarray(result["predicted_depth"], np.float32).ravel(), {}


def _vectors(result: Any) -> tuple[Any, dict[Any, float]]:
    return np.asarray(result, np.float32).reshape(-1, np.shape(result)[-1]).mean(axis=0), {}


_READERS: dict[str, Callable[[Any], tuple[Any, dict[Any, float]]]] = {
    "text-classification": _labels,
    "zero-shot-classification": _candidates,
    "token-classification": _entities,
    "fill-mask": _filled,
    "question-answering": _spans,
    "feature-extraction": _vectors,
    "image-classification": _labels,
    "zero-shot-image-classification": _labels,
    "audio-classification": _labels,
    "image-feature-extraction": _vectors,
    "automatic-speech-recognition": _transcript,
    "object-detection": _things,
    "image-segmentation": _things,
    "depth-estimation": _depths,
}


def _call(pipe: Any, samples: list[Any], parameters: Mapping[str, Any]) -> list[Any]:
    if pipe.task == "question-answering":
        asked = {name: [sample[name] for sample in samples] for name in ("question", "context")}
        results = pipe(**asked, **parameters)
    else:
        results = pipe(samples, **parameters)
    return list(results) if len(samples) > 1 or isinstance(results, list) else [results]


def _short(value: Any, width: int = 40) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= width else text[: width - 1] + "…"


def _metric(metric: str | Metric | None) -> Metric:
    """Find a metric: the user's function, or one by name."""
    if metric is None:
        return lambda predictions, labels: float(np.mean([p == label for p, label in zip(predictions, labels)]))  # noqa: B905
    if callable(metric):
        return metric
    try:
        from sklearn import metrics
    except ImportError:
        return _from_evaluate(metric)
    found = getattr(metrics, metric, None) or getattr(metrics, f"{metric}_score", None)
    if found is None:
        return _from_evaluate(metric)
    how = {"average": "macro"} if metric.split("_")[0] in ("f1", "precision", "recall", "jaccard", "fbeta") else {}
    return lambda predictions, labels: float(found(labels, predictions, **how))


def _from_evaluate(name: str) -> Metric:
    try:
        import evaluate
    except ImportError as error:
        raise MissingBackendError(
            f"metric={name!r} is in no library that is installed",
            remedy="pip install scikit-learn, or give a function of (predictions, labels).",
        ) from error
    loaded = evaluate.load(name)
    return lambda predictions, labels: float(
        next(iter(loaded.compute(predictions=predictions, references=labels).values()))
    )
