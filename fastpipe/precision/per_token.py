"""Rewrite an ONNX graph so that its dense layers multiply int8 by int8, with one activation scale per token.

ONNX Runtime's own dynamic quantization takes one scale for a whole tensor, so that a text's result depends on the texts
beside it. Here every row of every dense layer's input is scaled by its own largest value; integer sums are exact, so a
row's result is the same to the last bit in any batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from fastpipe.precision.activation import least_value
from fastpipe.precision.smooth import smooth_behind_layer_norms

Array: TypeAlias = "np.ndarray[Any, Any]"

_CONTRIB = "com.microsoft"
_SMALLEST_SCALE = 1e-12  # a row of zeros has no largest value to divide by
_BYTE = 255


@dataclass(frozen=True, kw_only=True)
class _Range:
    """How the values of one row become bytes.

    Attributes:
        name: Prefix of its constants in the graph.
        zero_point: The byte that stands for zero.
        least: The smallest value that occurs, where one is known; it must get a byte too.
    """

    name: str
    zero_point: int
    least: float = 0.0

    @property
    def levels(self) -> int:
        """Bytes above the zero point."""
        return _BYTE - self.zero_point

    def constants(self) -> dict[str, Array]:
        """Give what its nodes read."""
        # Where the row's largest value is small, the step stays wide enough for `least`.
        smallest = max(_SMALLEST_SCALE, -self.least * self.levels / self.zero_point if self.least else 0.0)
        return {
            f"{self.name}_zero_point": np.array(self.zero_point, np.uint8),
            f"{self.name}_levels": np.array(self.levels, np.float32),
            f"{self.name}_step": np.array(1 / self.levels, np.float32),
            f"{self.name}_smallest": np.array(smallest, np.float32),
        }


# uint8 activations by int8 weights is the pair that VNNI and AMX instructions multiply.
_EVEN = _Range(name="pt", zero_point=128)
# Activation functions end a little below zero, and would leave half of the bytes unused. A tenth of them for what is
# negative: all-MiniLM-L6-v2 comes out alike with a twentieth and with a sixth.
_BELOW = 26


def quantize_dense_layers(model: Any, *, keep: str, largest: int = 127) -> Any:
    """Quantize every `MatMul` by constant weights.

    With X: (..., K) float and W: (K, N) constant, `MatMul(X, W)` becomes

        s = max(|X|) / 127 along K         one scale per token
        Xq = round(X / s) + 128            uint8
        (Xq - 128) @ Wq * w * s            `MatMulIntegerToFloat`, with w = max(|W|) / largest along K, then `Mul`

    Behind an activation function that ends at a little below zero, most of the 255 steps go to what is positive.

    Args:
        model: An `onnx.ModelProto` in fp32; it is changed in place.
        keep: A pattern; dense layers whose name, scope or weight matches it stay as they are.
        largest: The integer that a channel's largest weight becomes: see `fastpipe.precision.recipes.Weights`.

    Returns:
        The model. Channels behind layer norms are evened out first: see `fastpipe.precision.smooth`.
    """
    from onnx import helper, numpy_helper

    graph = model.graph
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    smooth_behind_layer_norms(model, quantizable=_quantizable(graph, keep))
    is_quantizable = _quantizable(graph, keep)
    weights = {tensor.name: tensor for tensor in graph.initializer}
    constants: dict[str, Array] = {
        "pt_weight_zero_point": np.array(0, np.int8),
        "pt_one": np.array(1, np.float32),
        "pt_last_axis": np.array([-1], np.int64),
    }
    quantized: set[str] = set()
    ranges: dict[str, _Range] = {}
    nodes: list[Any] = []
    for node in graph.node:
        if not is_quantizable(node):
            nodes.append(node)
            continue
        x, name = node.input
        if x not in ranges:  # query, key and value read the same input: it is quantized once
            ranges[x] = _range_of(model, x)
            constants |= ranges[x].constants()
            nodes += _to_bytes(x, ranges[x], opset)
        if name not in quantized:
            quantized.add(name)
            values = numpy_helper.to_array(weights[name]).astype(np.float32)
            scale = np.maximum(np.abs(values).max(axis=0), _SMALLEST_SCALE) / largest
            constants[f"{name}_q"] = np.round(values / scale).astype(np.int8)
            constants[f"{name}_scale"] = scale.astype(np.float32)
        y, zero_point = node.output[0], f"{ranges[x].name}_zero_point"
        operands = [f"{x}_q", f"{name}_q", "pt_one", f"{name}_scale", zero_point, "pt_weight_zero_point"]
        nodes += [
            helper.make_node("MatMulIntegerToFloat", operands, [f"{y}_int"], node.name, domain=_CONTRIB),
            helper.make_node("Mul", [f"{y}_int", f"{x}_scale"], [y]),
        ]
    del graph.node[:]
    graph.node.extend(nodes)
    used = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name not in quantized - used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    graph.initializer.extend(
        numpy_helper.from_array(values, name) for name, values in constants.items() if name in used
    )
    if _CONTRIB not in {opset.domain for opset in model.opset_import}:
        model.opset_import.append(helper.make_opsetid(_CONTRIB, 1))
    return model


def _range_of(model: Any, x: str) -> _Range:
    least = least_value(model, x)
    if least is None:
        return _EVEN
    if least >= 0:
        return _Range(name="pt_positive", zero_point=0)
    return _Range(name=f"pt_above_{-least:.3f}", zero_point=_BELOW, least=least)


def _to_bytes(x: str, to: _Range, opset: int) -> list[Any]:
    """Scale each row by its largest value, and round. It costs passes over memory: each node that reads all of `x`."""
    from onnx import helper

    signed = to is _EVEN
    size = f"{x}_abs" if signed else x
    return [
        *([helper.make_node("Abs", [x], [size])] if signed else []),
        _largest(size, f"{x}_max", opset),
        helper.make_node("Max", [f"{x}_max", f"{to.name}_smallest"], [f"{x}_top"]),
        helper.make_node("Mul", [f"{x}_top", f"{to.name}_step"], [f"{x}_scale"]),
        helper.make_node("Div", [f"{to.name}_levels", f"{x}_top"], [f"{x}_inverse"]),
        helper.make_node("Mul", [x, f"{x}_inverse"], [f"{x}_steps"]),
        helper.make_node("QuantizeLinear", [f"{x}_steps", "pt_one", f"{to.name}_zero_point"], [f"{x}_q"]),
    ]


def _quantizable(graph: Any, keep: str) -> Callable[[Any], bool]:
    """Tell dense layers, whose weights are constant, from products of activations and from layers to keep."""
    matrices = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 2}
    return lambda node: (
        node.op_type == "MatMul" and node.input[1] in matrices and not re.search(keep, description(node))
    )


def _largest(x: str, y: str, opset: int) -> Any:
    """Take the maximum along the last axis, which operator set 18 made an input."""
    from onnx import helper

    if opset < 18:
        return helper.make_node("ReduceMax", [x], [y], axes=[-1], keepdims=1)
    return helper.make_node("ReduceMax", [x, "pt_last_axis"], [y], keepdims=1)


def description(node: Any) -> str:
    """Everything that may name the layer: Optimum puts the module path into names, torch's exporter into metadata."""
    return " ".join([node.name, *node.input[1:2], *(entry.value for entry in node.metadata_props)])
