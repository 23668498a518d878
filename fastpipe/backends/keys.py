"""Make attention in an OpenVINO graph give the same bits whatever a row is padded to.

OpenVINO's softmax sums sixteen terms at a time and what is left over one by one, so that a row's sum comes out in
another order when padding carries its last tokens over a multiple of sixteen. Floats hide the difference of some 1e-6.
Where activations are rounded to integers it grows to 1e-2: a text's answer then depends on the texts beside it. With
keys and values of a multiple of sixteen, the graph's own padding among them, nothing is ever left over.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_LANES = 16
_NODE = "ScaledDotProductAttention"


def pad_keys(model: Any) -> Any:
    """Pad keys, values and masks of attention to a multiple of sixteen tokens.

    Args:
        model: An `openvino.Model` with an input "input_ids" of shape (rows, tokens); it is changed in place.

    Returns:
        The model. Attention without a mask over keys, or written out in other operators, is left as it is.
    """
    from openvino import Type
    from openvino import opset13 as op

    ids = next((port for port in model.inputs if "input_ids" in port.get_names()), None)
    found = [node for node in model.get_ordered_ops() if node.get_type_name() == _NODE and _is_masked(node)]
    if ids is None or not found:
        return model

    def whole(*values: int) -> Any:
        return op.constant(np.array(values, np.int64))

    tokens = op.gather(op.shape_of(ids, "i64"), whole(1), op.constant(np.int64(0)))
    lanes = whole(_LANES)
    more = op.mod(op.subtract(lanes, op.mod(tokens, lanes)), lanes)
    none, start = whole(0), whole(0, 0, 0, 0)
    masks: dict[tuple[str, int], Any] = {}

    def padded(port: Any, axis: int, value: Any) -> Any:
        end = op.concat([more if axis == place else none for place in range(4)], 0)
        return op.pad(port, start, end, "constant", op.constant(value)).output(0)

    for node in found:
        for port in (node.input(1), node.input(2)):  # before their transpose, which the engine fuses with what follows
            transpose = port.get_source_output().get_node()
            behind = transpose.get_type_name() == "Transpose" and len(transpose.output(0).get_target_inputs()) == 1
            target = transpose.input(0) if behind else port
            axis = int(transpose.input_value(1).get_node().get_data()[2]) if behind else 2
            target.replace_source_output(padded(target.get_source_output(), axis, np.float32(0)))
        mask = node.input_value(3)
        name = (mask.get_node().get_friendly_name(), mask.get_index())
        if name not in masks:
            off = False if mask.get_element_type() == Type.boolean else np.float32(-np.inf)
            masks[name] = padded(mask, 3, off)
        node.input(3).replace_source_output(masks[name])
    model.validate_nodes_and_infer_types()
    return model


def _is_masked(node: Any) -> bool:
    """Tell whether there is a mask with a column for each key."""
    if node.get_input_size() < 4:
        return False
    shape = node.input_value(3).get_partial_shape()
    return bool(shape.rank.is_static and len(shape) == 4 and shape[3].is_dynamic)
