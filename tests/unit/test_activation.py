"""The least value of an activation function is found in whatever pieces a graph has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastpipe.precision.activation import least_value
from fastpipe.precision.per_token import quantize_dense_layers
from fastpipe.precision.recipes import HEADS

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

make = helper.make_node

GELU = [
    make("Div", ["h", "root"], ["a"]),
    make("Erf", ["a"], ["b"]),
    make("Add", ["b", "one"], ["c"]),
    make("Mul", ["h", "c"], ["d"]),
    make("Mul", ["d", "half"], ["y"]),
]
SILU = [make("Sigmoid", ["h"], ["a"]), make("Mul", ["h", "a"], ["y"])]
FUNCTIONS: dict[str, tuple[list[Any], float | None]] = {
    "gelu in pieces": (GELU, -0.16997),
    "gelu": ([make("Gelu", ["h"], ["y"])], -0.16997),
    "silu": (SILU, -0.27846),
    "relu": ([make("Relu", ["h"], ["y"])], 0.0),
    "sigmoid": ([make("Sigmoid", ["h"], ["y"])], 0.0),
    "tanh reaches too far down": ([make("Tanh", ["h"], ["y"])], None),
    "twice has no least value": ([make("Add", ["h", "h"], ["y"])], None),
    "a sum of two tensors": ([make("Add", ["h", "x"], ["y"])], None),
    "a vector is no number": ([make("Relu", ["h"], ["a"]), make("Mul", ["a", "vector"], ["y"])], None),
    "nothing elementwise": ([make("Softmax", ["h"], ["y"])], None),
    "unknown to the reference": ([make("Relu", ["h"], ["a"]), make("Max", ["a", "text"], ["y"])], None),
}


def graph(nodes: list[Any]) -> Any:
    """x times weights, a bias, the function, and a dense layer behind it."""
    chance = np.random.default_rng(0)
    weights = {
        "first": chance.normal(size=(16, 32)).astype(np.float32),
        "vector": np.linspace(-1, 1, 32).astype(np.float32),
        # Whole numbers, the largest 63: nothing is lost when they become int8.
        "last": np.vstack([np.full((1, 8), 63), chance.integers(-63, 63, size=(31, 8))]).astype(np.float32),
        "root": np.array(2**0.5, np.float32),
        "half": np.array(0.5, np.float32),
        "text": np.array("no number"),
    }
    constant = make("Constant", [], ["one"], value=numpy_helper.from_array(np.array(1, np.float32)))
    dense = [make("MatMul", ["x", "first"], ["z"]), make("Add", ["z", "vector"], ["h"]), constant]
    every = [*dense, *nodes, make("MatMul", ["y", "last"], ["logits"])]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", w]) for n, w in (("x", 16), ("logits", 8))]
    made = helper.make_graph(
        every, "g", ports[:1], ports[1:], [numpy_helper.from_array(v, k) for k, v in weights.items()]
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_least_value(name):
    nodes, expected = FUNCTIONS[name]
    found = least_value(graph(nodes), "y")
    assert found == (expected if expected is None else pytest.approx(expected, abs=1e-5))


def test_an_input_of_the_graph_is_no_function():
    assert least_value(graph(GELU), "x") is None


@pytest.mark.parametrize("name", ["gelu", "gelu in pieces", "silu", "relu"])
def test_bytes_go_where_the_values_are(name):
    """Nearer to floats than with as many bytes below zero as above, for rows with large values and with small ones."""
    onnxruntime = pytest.importorskip("onnxruntime")
    nodes, _ = FUNCTIONS[name]

    def run(model: Any) -> np.ndarray[Any, Any]:
        onnx.checker.check_model(model)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        rows = np.random.default_rng(1).normal(size=(64, 16)) * np.logspace(-2, 1, 64)[:, None]
        return session.run(None, {"x": rows.astype(np.float32)})[0]

    def usable(nodes: list[Any]) -> Any:
        model = graph(nodes)
        for tensor in [t for t in model.graph.initializer if t.data_type == TensorProto.STRING]:
            model.graph.initializer.remove(tensor)
        return model

    exact = run(usable(nodes))
    uneven = run(quantize_dense_layers(usable(nodes), keep=rf"first|{HEADS}", largest=63))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastpipe.precision.per_token.least_value", lambda *_: None)
        even = run(quantize_dense_layers(usable(nodes), keep=rf"first|{HEADS}", largest=63))
    assert np.abs(uneven - exact).max() < 0.05 * np.abs(exact).max()
    assert np.abs(uneven - exact).mean() < 0.8 * np.abs(even - exact).mean()
