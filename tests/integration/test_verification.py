"""`fastpipe.verify`: a pipeline beside its fp32 reference on data of the user's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastpipe
from fastpipe.errors import OptionError

Make = Callable[..., Any]

TEXTS = ["good", "a very long day", "nobody came", "42", "the mill by the river still turns", "never again"]
INT8 = {"precision": "int8", "accuracy": None}


@pytest.mark.parametrize(
    ("task", "model", "options"),
    [
        ("text-classification", "seqcls", {}),
        ("text-classification", "seqcls", {"top_k": None}),
        ("zero-shot-classification", "nli", {"candidate_labels": ["food", "sports"]}),
        ("token-classification", "ner", {}),
        ("token-classification", "ner", {"aggregation_strategy": "simple"}),
        ("fill-mask", "mlm", {}),
        ("feature-extraction", "feat", {}),
        ("feature-extraction", "feat", {"return_tensors": True}),
    ],
)
def test_every_task_is_compared(fp: Make, task: str, model: str, options: dict[str, Any]) -> None:
    texts = [f"{text} [MASK]" for text in TEXTS]
    pipe = fp(task, model, "onnxruntime", **INT8)
    found = fastpipe.verify(pipe, texts, **options)
    assert (found.task, found.candidate, found.samples) == (task, "int8", len(texts))
    assert 0 <= found.worst <= found.agreement <= 1.0000001
    assert found.agreement < 1 or found.drift > 0, "int8 is not fp32"
    assert found.speedup > 0
    assert (found.metric, found.scores) == ("", {})
    assert "int8" in str(found)
    assert "<table>" in found._repr_html_()
    json.dumps(found.to_dict(), default=str)


def test_answers_are_compared(fp: Make) -> None:
    samples = [{"question": "Where is it?", "context": f"It is in {town}."} for town in ("Oslo", "Paris", "Lima")]
    found = fastpipe.verify(fp("question-answering", "qa", "onnxruntime", **INT8), samples, ["Oslo", "Paris", "Lima"])
    assert set(found.scores) == {"reference", "candidate"}
    assert all(0 <= score <= 1 for score in found.scores.values())


def test_a_model_that_int8_breaks_shows_in_labels_and_in_the_list(fp: Make) -> None:
    texts = [f"{text} {number}" for text in TEXTS for number in range(8)]
    pipe = fp("text-classification", "outliers", "onnxruntime", **INT8)
    right = [result["label"] for result in fp("text-classification", "outliers", "onnxruntime")(texts)]
    found = fastpipe.verify(pipe, texts, right)
    assert found.scores["reference"] == 1.0
    assert found.scores["candidate"] == found.agreement < 0.95
    first = found.disagreements[0]
    assert len(found.disagreements) == 10
    assert (texts[first.index], right[first.index]) == (first.sample, first.reference)
    assert first.candidate == pipe(first.sample)[0]["label"] != first.reference
    assert first.drift == max(d.drift for d in found.disagreements if d.agreement == 0)
    assert f"{first.reference} -> {first.candidate}" in str(found)


def test_fp32_agrees_with_itself(fp: Make) -> None:
    found = fastpipe.verify(fp("text-classification", "seqcls", "onnxruntime"), TEXTS)
    assert (found.agreement, found.drift, found.disagreements) == (1.0, 0.0, ())


def test_metrics_come_from_functions_and_from_libraries(fp: Make) -> None:
    pipe = fp("text-classification", "seqcls", "onnxruntime", **INT8)
    labels = [result["label"] for result in pipe(TEXTS)]

    def first_right(predictions: Any, labels: Any) -> float:
        return float(predictions[0] == labels[0])

    found = fastpipe.verify(pipe, TEXTS, labels, first_right)
    assert (found.metric, found.scores["candidate"]) == ("first_right", 1.0)
    pytest.importorskip("sklearn")
    for name in ("accuracy", "f1", "balanced_accuracy_score"):
        found = fastpipe.verify(pipe, TEXTS, labels, name)
        assert (found.metric, found.scores["candidate"]) == (name, 1.0)


def test_vectors_are_scored_by_a_function(fp: Make) -> None:
    pipe = fp("feature-extraction", "feat", "onnxruntime", **INT8)

    def length(vectors: Any, labels: Any) -> float:
        assert all(isinstance(vector, np.ndarray) and vector.shape == (64,) for vector in vectors)
        return float(np.mean([np.linalg.norm(vector) for vector in vectors]))

    assert fastpipe.verify(pipe, TEXTS, [0] * len(TEXTS), length).scores["candidate"] > 0


def test_what_cannot_be_compared_is_named(fp: Make) -> None:
    pipe = fp("text-classification", "seqcls", "onnxruntime")
    with pytest.raises(OptionError, match="empty"):
        fastpipe.verify(pipe, [])
    with pytest.raises(OptionError, match="6 samples and 1 labels"):
        fastpipe.verify(pipe, TEXTS, ["neg"])
    with pytest.raises(OptionError, match="torch"):
        fastpipe.verify(fp("text-classification", "seqcls", "torch"), TEXTS)
    assert fastpipe.verify(pipe, TEXTS[:1]).samples == 1
