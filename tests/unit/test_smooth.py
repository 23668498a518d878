"""Evening out channels behind layer norms changes nothing in floats, and much in int8."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fastpipe.hardware import detect_hardware
from fastpipe.precision.per_token import quantize_dense_layers
from fastpipe.precision.recipes import HEADS, ladder
from fastpipe.precision.smooth import smooth_behind_layer_norms

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

WIDTH, OUT = 32, 24
CHANCE = np.random.default_rng(0)
# Three channels that stand out, as in trained encoders, and that are met by small weights.
GAIN = np.where(np.arange(WIDTH) % 11 == 5, 20.0, 1.0).astype(np.float32)
BIAS = CHANCE.normal(size=WIDTH).astype(np.float32)
FIRST, SECOND = (CHANCE.normal(size=(WIDTH, OUT)).astype(np.float32) / GAIN[:, None] for _ in range(2))


def graph(fused: bool, *, shared: bool = False) -> Any:
    """A layer norm, as one operator or as several, before two dense layers and a sum with its own output."""
    weights = {"gain": GAIN, "bias": BIAS, "first": FIRST, "second": SECOND, "tiny": np.array(1e-12, np.float32)}
    if fused:
        norm = [helper.make_node("LayerNormalization", ["x", "gain", "bias"], ["n"], axis=-1)]
    else:
        norm = [
            helper.make_node("ReduceMean", ["x"], ["mean"], axes=[-1], keepdims=1),
            helper.make_node("Sub", ["x", "mean"], ["centred"]),
            helper.make_node("Mul", ["centred", "centred"], ["squared"]),
            helper.make_node("ReduceMean", ["squared"], ["variance"], axes=[-1], keepdims=1),
            helper.make_node("Add", ["variance", "tiny"], ["safe"]),
            helper.make_node("Sqrt", ["safe"], ["deviation"]),
            helper.make_node("Div", ["centred", "deviation"], ["z"]),
            helper.make_node("Mul", ["z", "gain"], ["scaled"]),
            helper.make_node("Add", ["scaled", "bias"], ["n"]),
        ]
    second = "first" if shared else "second"
    nodes = [
        *norm,
        helper.make_node("MatMul", ["n", "first"], ["y"], "dense"),
        helper.make_node("MatMul", ["n", second], ["w"], "other"),
        helper.make_node("MatMul", ["n", "second"], ["h"], "classifier"),
        helper.make_node("Identity", ["n"], ["same"]),
    ]
    ports = {"x": WIDTH, "y": OUT, "w": OUT, "h": OUT, "same": WIDTH}
    infos = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size]) for name, size in ports.items()
    }
    initializers = [numpy_helper.from_array(values, name) for name, values in weights.items()]
    made = helper.make_graph(nodes, "g", [infos.pop("x")], list(infos.values()), initializers)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(model: Any, x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    onnx.checker.check_model(model)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"x": x}
    )


X = CHANCE.normal(size=(7, WIDTH)).astype(np.float32)


def quantizable(node: Any) -> bool:
    return node.op_type == "MatMul" and node.name != "classifier"


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("fused", [True, False])
def test_floats_stay_what_they_were(fused, shared):
    model = smooth_behind_layer_norms(graph(fused, shared=shared), quantizable=quantizable)
    for before, after in zip(run(graph(fused, shared=shared), X), run(model, X), strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-4)
    assert sum(node.name == "" and node.op_type == "Mul" for node in model.graph.node) == (1 if fused else 3), (
        "one for both layers"
    )
    names = [tensor.name for tensor in model.graph.initializer]
    assert len(names) == len(set(names))
    assert "first" not in names, "weights that were replaced are left out"
    assert "second" in names, "and those that another layer reads are not"


def test_dense_layers_behind_anything_else_are_left_alone():
    model = graph(True)
    del model.graph.node[0]
    model.graph.node.insert(0, helper.make_node("Relu", ["x"], ["n"]))
    before = model.SerializeToString()
    assert smooth_behind_layer_norms(model, quantizable=quantizable).SerializeToString() == before


def test_int8_is_nearer_to_floats_with_it(monkeypatch):
    largest = next(r.weights.largest for r in ladder("onnxruntime", detect_hardware()) if r.name == "int8")

    def error() -> float:
        found = run(quantize_dense_layers(graph(True), keep=HEADS, largest=largest), X)[0]
        return float(np.abs(found - run(graph(True), X)[0]).mean())

    smoothed = error()
    monkeypatch.setattr("fastpipe.precision.per_token.smooth_behind_layer_norms", lambda model, **_: model)
    assert smoothed < 0.6 * error()
