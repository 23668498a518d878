"""Layers that read the same tensor are merged, and compute what they computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastpipe.backends.siblings import merge_siblings

openvino = pytest.importorskip("openvino")
WIDTH = 8


def graph(*, transposed: bool = True) -> Any:
    """Three layers of different sizes over one tensor, one of them with a bias, and one over another tensor."""
    from openvino import opset13

    chance = np.random.default_rng(0)
    x = opset13.parameter([-1, -1, WIDTH], np.float32, name="x")
    y = opset13.relu(x)

    def dense(port: Any, size: int) -> Any:
        shape = (size, WIDTH) if transposed else (WIDTH, size)
        return opset13.matmul(port, opset13.constant(chance.standard_normal(shape, np.float32)), False, transposed)

    query, key, value, other = dense(x, 8), dense(x, 4), dense(x, 4), dense(y, 6)
    key = opset13.add(key, opset13.constant(np.arange(4, dtype=np.float32)))
    return openvino.Model([query, key, value, other], [x], "layers")


def products(model: Any) -> int:
    return sum(node.get_type_name() == "MatMul" for node in model.get_ordered_ops())


def answers(model: Any) -> list[Any]:
    x = np.random.default_rng(1).standard_normal((2, 3, WIDTH), np.float32)
    found = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([x])
    return [found[port].copy() for port in range(len(model.outputs))]


def test_siblings_become_one_product_with_the_same_results() -> None:
    model = graph()
    before = answers(model)
    assert merge_siblings(model) == 1
    assert products(model) == 2
    for one, other in zip(before, answers(model), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
    assert merge_siblings(model) == 0


def test_weights_that_lie_the_other_way_stay_as_they_are() -> None:
    model = graph(transposed=False)
    assert merge_siblings(model) == 0
    assert products(model) == 4
