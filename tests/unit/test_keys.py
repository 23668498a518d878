"""Keys of a multiple of sixteen: attention gives what it gave, and the same bits whatever a row is padded to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastpipe.backends.keys import pad_keys

openvino = pytest.importorskip("openvino")
from openvino import opset13 as op  # noqa: E402

WIDTH, HEADS = 32, 2
WEIGHTS = np.random.default_rng(0).normal(size=(3, WIDTH, WIDTH)).astype(np.float32)
TABLE = np.random.default_rng(1).normal(size=(50, WIDTH)).astype(np.float32)


def graph(*, mask: str = "float", transposed: bool = True) -> Any:
    """One layer of attention over embedded tokens, with a mask of zeros and minus infinity, of booleans, or none."""
    ids = op.parameter([-1, -1], np.int64, name="input_ids")
    ids.output(0).set_names({"input_ids"})
    there = op.parameter([-1, -1], np.int64, name="attention_mask")
    there.output(0).set_names({"attention_mask"})
    hidden = op.gather(op.constant(TABLE), ids, op.constant(np.int64(0)))
    parts = []
    for weights in WEIGHTS:
        projected = op.matmul(hidden, op.constant(weights), False, False)
        heads = op.reshape(projected, op.constant(np.array([0, 0, HEADS, WIDTH // HEADS], np.int64)), True)
        turned = op.transpose(heads, op.constant(np.array([0, 2, 1, 3], np.int64)))
        parts.append(turned if transposed else op.add(turned, op.constant(np.float32(0.5))))
    columns = op.unsqueeze(there, op.constant(np.array([1, 2], np.int64)))
    if mask == "bool":
        parts.append(op.convert(columns, "boolean"))
    elif mask == "float":
        parts.append(op.log(op.convert(columns, "f32")))  # 0 where there is a token, else minus infinity
    answer = op.scaled_dot_product_attention(*parts)
    return openvino.Model([op.result(answer)], [ids, there], "attention")


def run(model: Any, tokens: int, width: int) -> np.ndarray[Any, Any]:
    """Run one row of so many tokens, padded to a width."""
    ids = np.zeros((1, width), np.int64)
    ids[0, :tokens] = np.arange(tokens) * 7 % 50
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    given = {"input_ids": ids, "attention_mask": (np.arange(width) < tokens).astype(np.int64)[None]}
    return compiled({name: given[name] for port in compiled.inputs for name in port.get_names() & set(given)})[0][
        :, :, :tokens
    ]


@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("mask", ["float", "bool"])
def test_the_same_answers_and_the_same_bits(mask, transposed):
    padded = pad_keys(graph(mask=mask, transposed=transposed))
    assert sum(node.get_type_name() == "Pad" for node in padded.get_ops()) == 3
    for tokens in (1, 5, 15, 16, 17, 40):
        alone = run(padded, tokens, tokens)
        np.testing.assert_allclose(alone, run(graph(mask=mask, transposed=transposed), tokens, tokens), atol=1e-5)
        for width in (tokens + 1, tokens + 3, tokens + 16, tokens + 30):
            np.testing.assert_array_equal(run(padded, tokens, width), alone)


def test_attention_without_a_mask_is_left_alone():
    model = pad_keys(graph(mask="none"))
    assert not any(node.get_type_name() == "Pad" for node in model.get_ops())


def test_a_graph_without_text_is_left_alone():
    pixels = op.parameter([-1, 3], np.float32, name="pixel_values")
    pixels.output(0).set_names({"pixel_values"})
    model = openvino.Model([op.result(op.relu(pixels))], [pixels], "g")
    assert pad_keys(model) is model
