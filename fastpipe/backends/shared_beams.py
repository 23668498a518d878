"""Beams that go on with one recording share what was heard of it.

transformers gives each beam a copy of the encoder's states, and so a decoder keeps the keys and values of its cross
attention once for each: with whisper-tiny 18 MB, which are read at every step. Here beams become further queries over
the keys and values of their recording.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def share_among_beams(model: Any) -> bool:
    """Let a decoder take encoder states of fewer rows than it has beams: those of a recording follow one another.

    Args:
        model: An `openvino.Model` of a decoder that keeps its state, of what was heard too; it is changed in place. It
            still takes states with a row for each.

    Returns:
        Whether it does; not where attention to what was heard isn't found, or has a mask.
    """
    crossing = [node for node in model.get_ordered_ops() if _is_crossing(node)]
    if not crossing or not all(_is_open(node) for node in crossing):
        return False
    for node in crossing:
        _fold(node)
    model.validate_nodes_and_infer_types()
    return True


def _is_crossing(node: Any) -> bool:
    """Tell whether a node attends to keys that stay as they are; those of the text so far grow instead."""
    kept = node.get_type_name() == "ScaledDotProductAttention"
    return kept and all(node.input_value(port).get_node().get_type_name() == "ReadValue" for port in (1, 2))


def _is_open(node: Any) -> bool:
    """Tell whether every query may attend to every key."""
    if node.get_attributes()["causal"]:
        return False
    mask = node.input_value(3).get_node() if node.get_input_size() > 3 else None
    return mask is None or (mask.get_type_name() == "Constant" and mask.data.size == 1 and not mask.data.any())


def _fold(node: Any) -> None:
    from openvino import opset13 as op

    def whole(*values: int) -> Any:
        return op.constant(np.array(values, np.int64))

    def size(port: Any, axis: int) -> Any:
        return op.gather(op.shape_of(port, "i64"), whole(axis), op.constant(np.int64(0)))

    targets = node.output(0).get_target_inputs()
    queries, keys = node.input_value(0), node.input_value(1)  # (rows, heads, tokens, width), (recordings, ...)
    recordings, heads, tokens, width = size(keys, 0), size(queries, 1), size(queries, 2), size(queries, 3)
    order = whole(0, 2, 1, 3, 4)  # beams and heads change places
    apart = op.reshape(queries, op.concat([recordings, whole(-1), heads, tokens, width], 0), False)
    folded = op.reshape(op.transpose(apart, order), op.concat([recordings, heads, whole(-1), width], 0), False)
    node.input(0).replace_source_output(folded.output(0))
    found = op.reshape(node, op.concat([recordings, heads, whole(-1), tokens, width], 0), False)
    rows = op.reshape(op.transpose(found, order), op.concat([whole(-1), heads, tokens, width], 0), False)
    for target in targets:
        target.replace_source_output(rows.output(0))
