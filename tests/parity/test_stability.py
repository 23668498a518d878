"""int8 answers do not depend on what else is in a call: 1,000 mixed texts, real weights and a real model's size."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

import fastpipe
from fastpipe.batching.collate import pad_values, run_batch
from fastpipe.precision.sample import TEXTS
from tests.conftest import ENGINES, V5
from tests.models import wordpiece

pytestmark = pytest.mark.once

COUNT = 1000
Make = Callable[..., Any]


def _documents() -> Iterator[str]:
    for module in (np, torch, inspect, random, torch.nn.functional, np.linalg):
        for name in sorted(vars(module)):
            text = inspect.getdoc(vars(module)[name]) if callable(vars(module)[name]) else None
            if text:
                yield text


def mixed_texts() -> list[str]:
    """The built-in sample, and beginnings of real documentation: from one word to hundreds."""
    lengths = random.Random(0)
    starts = (" ".join(text.split()[: lengths.choice([2, 4, 6, 9, 13, 20])]) for text in _documents())
    texts = list(dict.fromkeys([*TEXTS, *starts]))[:COUNT]
    assert len(texts) == COUNT
    return texts


def run_three_ways(pipe: Any, texts: list[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Give each text's numbers: alone, in the sorted batches of a list, and in shuffled batches of 32."""

    def numbers(results: list[Any]) -> np.ndarray[Any, Any]:
        if pipe.task == "feature-extraction":
            return np.stack([tokens[0].mean(dim=0).numpy() for tokens in results])
        return np.array([[one["score"] for one in sorted(r, key=lambda o: o["label"])] for r in results])

    options: dict[str, Any] = {"truncation": True}
    options |= {"return_tensors": True} if pipe.task == "feature-extraction" else {"top_k": None}
    found = {
        "alone": numbers([pipe([text], **options)[0] for text in texts]),
        "sorted": numbers(pipe(texts, **options)),
    }

    # Rows in the order of a shuffle, padded to the longest of each 32: what fastpipe itself never does.
    order = list(range(len(texts)))
    random.Random(1).shuffle(order)
    per_token = pipe.task == "feature-extraction"
    shuffled: dict[int, np.ndarray[Any, Any]] = {}
    for start in range(0, len(order), 32):
        members = order[start : start + 32]
        encoded = [pipe.tokenizer(texts[i], truncation=True, return_tensors="np") for i in members]
        rows = [{name: values.astype(np.int64) for name, values in one.items()} for one in encoded]
        outputs = run_batch(pipe.model.run, rows, pad_values(pipe.tokenizer), per_token=per_token)
        for i, output in zip(members, outputs, strict=True):
            values = next(iter(output.values()))[0]
            shuffled[i] = values.mean(axis=0) if per_token else np.exp(values) / np.exp(values).sum()
    found["shuffled"] = np.stack([shuffled[i] for i in range(len(texts))])
    return found


@pytest.mark.parametrize("backend", ENGINES)
def test_no_embedding_of_a_thousand_moves(fp: Make, backend: str) -> None:
    pipe = fp("feature-extraction", "minilm", backend, precision="int8", accuracy=None)
    assert pipe.plan.precision == "int8"
    found = run_three_ways(pipe, mixed_texts())
    unit = {way: values / np.linalg.norm(values, axis=1, keepdims=True) for way, values in found.items()}
    for way in ("sorted", "shuffled"):
        assert (unit["alone"] * unit[way]).sum(axis=1).min() >= 0.99999, way


@pytest.mark.skipif(V5, reason="the same engines next to transformers 4 have shown it")
@pytest.mark.parametrize("backend", ENGINES)
def test_no_label_of_a_thousand_changes(backend: str) -> None:
    torch.manual_seed(0)
    config = DistilBertConfig(vocab_size=30522, num_labels=3, initializer_range=0.05)  # 6 layers, 768 wide
    model = DistilBertForSequenceClassification(config).eval()
    tokenizer = wordpiece(64)
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    pipe = fastpipe.pipeline(
        "text-classification", model=model, tokenizer=tokenizer, backend=backend, precision="int8", accuracy=None
    )
    assert pipe.plan.precision == "int8"
    found = run_three_ways(pipe, mixed_texts())
    alone = found["alone"]
    assert len(set(alone.argmax(axis=1))) > 1, "a model with one answer shows nothing"
    for way in ("sorted", "shuffled"):
        assert not (alone.argmax(axis=1) != found[way].argmax(axis=1)).any(), way
        assert np.abs(alone - found[way]).max() <= 1e-6, way  # the same bits, but for the test's own softmax
