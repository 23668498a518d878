"""The recipes: how each engine runs each precision, as data.

The constants of the int8 recipes come from measurements on a CPU with AVX512-VNNI: see docs/architecture.md.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

# Layers after the encoder: they cost next to nothing and decide everything, so that no recipe quantizes them.
HEADS = r"(pooler|pre_classifier|classifier|classification_head|score|qa_outputs)"

# An activation group as long as any layer is wide: one scale for each token.
PER_TOKEN = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One way to run a model.

    Attributes:
        backend: The engine it is for.
        precision: The name users choose it by.
        weights: What the weights are stored in: "fp32", or "int8" with one scale per output channel.
        compute: What the layers that are not quantized compute in, best first; the first that the CPU has is taken.
        activation_group: Neighbouring activations of one token that share a scale, or `PER_TOKEN`; 0 leaves activations
            unquantized.
            A scale never spans two tokens, so that batch-mates cannot change a result.
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
    Recipe(backend="openvino", precision="int8", weights="int8", compute=("bf16", "f32"), activation_group=128),
    Recipe(backend="onnxruntime", precision="fp32"),
    Recipe(backend="onnxruntime", precision="int8", weights="int8", activation_group=PER_TOKEN),
)
RECIPES = {(recipe.backend, recipe.precision): recipe for recipe in _RECIPES}


def activation_group(recipe: Recipe, hidden_size: int | None) -> int:
    """Give the number of activations that share a scale.

    OpenVINO leaves a layer unquantized whose rows are shorter than a group, so that no group is wider than the model.

    Args:
        recipe: The recipe.
        hidden_size: The model's width; `None` where its config does not say.
    """
    return min(recipe.activation_group, hidden_size or recipe.activation_group)


def compute_type(recipe: Recipe, *, has_bf16: bool) -> str | None:
    """Choose what unquantized layers compute in.

    Returns:
        "bf16" or "f32"; `None` where this CPU has none of the recipe's types.
    """
    return next((kind for kind in recipe.compute if kind != "bf16" or has_bf16), None)
