"""Find the least value that an activation function in a graph can give, by sampling it."""

from __future__ import annotations

from typing import Any

import numpy as np

# What activation functions are made of, in whichever pieces an exporter leaves them.
_ELEMENTWISE = {
    *("Add", "Sub", "Mul", "Div", "Neg", "Pow", "Sqrt", "Exp", "Max", "Min", "Clip", "Cast"),
    *("Erf", "Tanh", "Sigmoid", "Relu", "LeakyRelu", "Elu", "Selu", "Gelu", "HardSwish", "HardSigmoid", "Mish"),
}
_MOST_NODES = 16
# GELU is least at -0.752 (-0.17), SiLU at -1.278 (-0.278); beyond this nothing but straight lines is left of either.
_INPUTS = np.linspace(-40.0, 40.0, 16001, dtype=np.float32)
# A range that reaches further down is better halved evenly, as tanh is.
_LOWEST = -0.5


def least_value(model: Any, name: str) -> float | None:
    """Give the least value of a tensor that is an elementwise function of another, with numbers as all its constants.

    Args:
        model: An `onnx.ModelProto`.
        name: A tensor of its graph.

    Returns:
        The least value, or `None` for a tensor that is no such function, or a function without a bound near zero.
    """
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    graph = model.graph
    made_by = {output: node for node in graph.node for output in node.output}
    numbers = {tensor.name: tensor for tensor in graph.initializer if not tensor.dims}
    others = {tensor.name for tensor in graph.initializer} - set(numbers)
    inside: dict[str, Any] = {}
    sources: set[str] = set()
    waiting = [name]
    while waiting and len(inside) <= _MOST_NODES:
        reached = waiting.pop()
        node = made_by.get(reached)
        if reached in numbers or reached in inside or not reached:
            continue
        if node is not None and node.op_type == "Constant":
            inside[reached] = node
        elif node is not None and node.op_type in _ELEMENTWISE and not others & set(node.input):
            inside[reached] = node
            waiting += node.input
        else:
            sources.add(reached)
    if len(sources) != 1 or waiting or not any(node.op_type != "Constant" for node in inside.values()):
        return None
    (source,) = sources
    nodes = [node for node in graph.node if any(output in inside for output in node.output)]
    used = [numbers[i] for i in dict.fromkeys(i for node in nodes for i in node.input) if i in numbers]
    ports = [helper.make_tensor_value_info(port, 1, [None]) for port in (source, name)]
    alone = helper.make_model(
        helper.make_graph(nodes, "function", ports[:1], ports[1:], used), opset_imports=model.opset_import
    )
    try:
        with np.errstate(all="ignore"):
            values = ReferenceEvaluator(alone).run(None, {source: _INPUTS})[0]
    except Exception:  # an operator that only the engine knows: nothing is known then
        return None
    if values.shape != _INPUTS.shape or not np.isfinite(values).all() or values.min() < _LOWEST:
        return None
    return float(values.min())
