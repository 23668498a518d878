"""The way around per-item work gives exactly what the task's own steps give, and is left where it would not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import fastpipe
from fastpipe.errors import InputError
from fastpipe.pipelines import shortcuts
from fastpipe.precision.sample import TEXTS
from tests.conftest import BACKENDS, ENGINES
from tests.models import Models

Make = Callable[..., Any]
every_backend = pytest.mark.parametrize("backend", BACKENDS)
# The same text twice, an empty one, and one that is cut off.
MIXED = [*TEXTS[::4], "", "twice", "twice", "many words " * 100]

LABELS: list[dict[str, Any]] = [
    {},
    {"top_k": None},
    {"top_k": 2},
    {"top_k": 0},
    {"top_k": 1},
    {"function_to_apply": "sigmoid", "top_k": None},
    {"function_to_apply": "none", "top_k": None},
    {"function_to_apply": "softmax"},
    {"max_length": 12},
    {"add_special_tokens": True},
    {"padding": True},
    {"padding": "max_length", "max_length": 20},
]


def same(one: Any, other: Any) -> bool:
    """Equal to the last bit, and of the same types."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def both_ways(run: Callable[[], Any]) -> tuple[Any, Any]:
    """Run with the shortcut and without; the first must have been taken."""
    taken: list[int] = []
    counting = {base: _counting(decode, taken) for base, decode in shortcuts._DECODERS.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shortcuts, "_DECODERS", counting)
        short = run()
        assert taken, "no shortcut was taken"
        patch.setattr(shortcuts, "_DECODERS", {})
        return short, run()


def _counting(decode: Any, taken: list[int]) -> Any:
    def counted(pipe: Any, rows: Any, parameters: Any) -> Any:
        taken.append(len(rows))
        return decode(pipe, rows, parameters)

    return counted


@pytest.mark.parametrize("options", LABELS, ids=str)
@pytest.mark.parametrize("model", ["seqcls", "roberta", "multilabel", "regr"])
@every_backend
def test_labels(fp: Make, backend: str, model: str, options: dict[str, Any]) -> None:
    pipe = fp("text-classification", model, backend)
    texts = MIXED if model != "roberta" else [text for text in MIXED if text]
    for items in (texts, texts[3]):
        assert same(*both_ways(lambda: pipe(items, **{"truncation": True, **options})))  # noqa: B023


@pytest.mark.parametrize("options", [{}, {"return_tensors": True}, {"tokenize_kwargs": {"max_length": 9}}], ids=str)
@every_backend
def test_features(fp: Make, backend: str, options: dict[str, Any]) -> None:
    pipe = fp("feature-extraction", "feat", backend)

    def again() -> dict[str, Any]:  # transformers writes into the mapping it is given
        return {"truncation": True, **{k: dict(v) if isinstance(v, dict) else v for k, v in options.items()}}

    for items in (MIXED, MIXED[0]):
        assert same(*both_ways(lambda: pipe(items, **again())))  # noqa: B023


def test_a_caller_may_change_what_it_got(fp: Make) -> None:
    """The same text twice in a list: no result shares memory with another."""
    pipe = fp("feature-extraction", "feat", "onnxruntime")
    first, second = pipe(["twice", "twice"], return_tensors=True)
    first.zero_()
    assert second.abs().sum() > 0
    labels = fp("text-classification", "seqcls", "onnxruntime")(["twice", "twice"], top_k=None)
    labels[0].clear()
    assert labels[1]


@pytest.mark.parametrize("step", ["preprocess", "_forward", "postprocess"])
def test_a_step_that_was_replaced_is_used(models: Models, step: str) -> None:
    pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], backend="onnxruntime")
    calls = []
    own = getattr(pipe, step)

    def replaced(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return own(*args, **kwargs)

    setattr(pipe, step, replaced)
    assert len(pipe(["one", "two"])) == len(calls) == 2


def test_a_subclass_keeps_its_own_steps(models: Models) -> None:
    pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], backend="onnxruntime")

    class Shouting(type(pipe)):  # type: ignore[misc]
        def postprocess(self, *args: Any, **kwargs: Any) -> Any:
            result = super().postprocess(*args, **kwargs)
            return {**result, "label": result["label"].upper() + "!"}

    pipe.__class__ = Shouting
    assert all(result["label"].endswith("!") for result in pipe(["one", "two"]))


@pytest.mark.parametrize("backend", ENGINES)
def test_the_item_at_fault_is_named(fp: Make, backend: str) -> None:
    pipe = fp("text-classification", "seqcls", backend)
    with pytest.raises(InputError, match="item 2"):
        pipe(["fine", "fine too", "broken \ud800"])
    with pytest.raises(InputError, match="item 1"):
        pipe(["fine", None])
    with pytest.raises(InputError, match="item 1"):
        pipe(["fine", "too long " * 500])
    assert len(pipe(["fine", "still"])) == 2


def test_a_label_without_a_name_is_transformers_error(models: Models) -> None:
    pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], backend="onnxruntime")
    pipe.model.config.id2label = {}
    with pytest.raises(KeyError):
        pipe(["one", "two"])


def test_softmax_of_large_logits() -> None:
    logits = np.array([[1e4, 0, -1e4], [-1e4, -1e4, -1e4]], np.float32)
    assert np.allclose(shortcuts._softmax(logits), [[1, 0, 0], [1 / 3] * 3])


def test_texts_are_tokenized_together(fp: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = fp("text-classification", "seqcls", "onnxruntime")
    together: list[int] = []
    encode = shortcuts.Shortcut.encode

    def counted(self: Any, pipe: Any, texts: Any, parameters: Any) -> Any:
        together.append(len(texts))
        return encode(self, pipe, texts, parameters)

    monkeypatch.setattr(shortcuts.Shortcut, "encode", counted)
    pipe(MIXED, truncation=True)
    pipe("alone")
    list(pipe(text for text in MIXED[:10]))
    assert together == [len(MIXED), 1, 8, 2]
    pipe(["padded", "to the longest"], padding=True)
    pipe([{"text": "a", "text_pair": "b"}, "c"])
    assert together == [len(MIXED), 1, 8, 2], "what is unusual goes through `preprocess`"
