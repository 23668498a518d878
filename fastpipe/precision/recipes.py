"""The recipes: how each engine runs each precision, as data.

The constants of the int8 recipes come from measurements on a CPU with AVX512-VNNI: see docs/architecture.md.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

# Layers after the encoder: they cost next to nothing and decide everything, so that no recipe quantizes them.
HEADS = r"(pooler|pre_classifier|classifier|classification_head|score|qa_outputs)"

# One scale for all activations of a token. ONNX Runtime gives the same bits for it in any batch. OpenVINO's kernels
# differ in the last bits from shape to shape, and the coarser its groups, the further that carries.
PER_TOKEN = -1


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One way to run a model.

    Attributes:
        backend: The engine it is for.
        precision: The name users choose it by.
        weights: What the weights are stored in: "fp32", or "int8" with one scale per output channel.
        compute: What the layers that are not quantized compute in, best first; the first that the CPU has is taken.
        activation_group: Neighbouring activations of one token that share a scale, or `PER_TOKEN`; 0 leaves activations
            unquantized. A scale never spans two tokens.
    """

    backend: str
    precision: str
    weights: str = "fp32"
    compute: tuple[str, ...] = ("f32",)
    activation_group: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Give the recipe as plain values that JSON can hold."""
        return asdict(self)


_RECIPES = (
    Recipe(backend="openvino", precision="fp32"),
    Recipe(backend="openvino", precision="bf16", compute=("bf16",)),
    Recipe(backend="openvino", precision="int8", weights="int8", compute=("bf16", "f32"), activation_group=32),
    Recipe(backend="onnxruntime", precision="fp32"),
    Recipe(backend="onnxruntime", precision="int8", weights="int8", activation_group=PER_TOKEN),
)
RECIPES = {(recipe.backend, recipe.precision): recipe for recipe in _RECIPES}


def compute_type(recipe: Recipe, *, has_bf16: bool) -> str | None:
    """Choose what unquantized layers compute in.

    Returns:
        "bf16" or "f32"; `None` where this CPU has none of the recipe's types.
    """
    return next((kind for kind in recipe.compute if kind != "bf16" or has_bf16), None)
