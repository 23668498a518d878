"""A decoder's logits for its last tokens only: an input of the graph says for how many.

A prompt is read for the one token after it. To multiply all its tokens by the vocabulary costs a fifth of the reading
of a small model, and rows x tokens x vocabulary floats, which are gigabytes for a batch of long prompts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

KEEP = "logits_to_keep"  # transformers' own name of it
_ALL = np.array([2**31], np.int64)  # more tokens than any text has
ONE = np.array([1], np.int64)

# What may stand between the vocabulary's layer and the logits, and works number by number: a bias, a cap, a cast. What
# it works with is the same for every token.
_BEHIND = {"Add", "Multiply", "Divide", "Tanh", "Convert"}


def add_choice(model: Any) -> bool:
    """Add the input to a graph, which is changed in place.

    Args:
        model: An `openvino.Model` of a decoder alone: "logits" has the shape (rows, tokens, vocabulary).

    Returns:
        Whether it was added; not where the vocabulary's layer isn't found, and such a graph stays as it is.
    """
    from openvino import opset13

    node = model.output("logits").get_node().input_value(0).get_node()
    while node.get_type_name() in _BEHIND:
        if any(other.get_partial_shape().is_dynamic for other in node.input_values()[1:]):
            return False
        node = node.input_value(0).get_node()
    if node.get_type_name() != "MatMul" or node.get_attributes()["transpose_a"]:
        return False
    hidden, weights = node.input_value(0), node.input_value(1)
    rank = hidden.get_partial_shape().rank
    if rank.is_dynamic or rank.get_length() != 3 or weights.get_partial_shape().is_dynamic:
        return False
    keep = opset13.parameter([1], np.int64, name=KEEP)
    keep.output(0).set_names({KEEP})
    end, step, axis = (opset13.constant(np.array([number], np.int64)) for number in (2**62, 1, 1))
    node.input(0).replace_source_output(opset13.slice(hidden, opset13.negative(keep), end, step, axis).output(0))
    model.add_parameters([keep])
    model.validate_nodes_and_infer_types()
    return True


def ask_for_all(request: Any) -> None:
    """Let the next steps of an infer request tell the logits of all their tokens."""
    import openvino

    request.set_tensor(KEEP, openvino.Tensor(_ALL))
