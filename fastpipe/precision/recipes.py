"""The recipes: every way in which an engine runs a model on this hardware, as data, fastest first.

The constants come from measurements: see docs/precision.md.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from fastpipe.hardware import Hardware

# Layers after the encoder: they cost next to nothing and decide everything, so that no recipe quantizes them.
HEADS = r"(pooler|pre_classifier|classifier|classification_head|score|qa_outputs)"

# One scale for all that belongs together: for an activation group, a token; for a weight group, an output channel.
WHOLE = -1


@dataclass(frozen=True, kw_only=True)
class Weights:
    """What an artifact stores of the dense layers. All of it changes the artifact's bytes.

    Attributes:
        method: "plain" is fp32. "compressed" is integers that the engine turns back into floats, or multiplies by
            integer activations where it can. "per-token" has the quantization of activations written into the graph.
            "static" has it too, with scales that come from calibration data. "ready" was quantized by others.
        bits: Of one weight.
        group: Neighbouring weights of one output channel that share a scale, or `WHOLE`.
        largest: The integer that the largest weight of a group becomes. 63 where the CPU sums pairs of products of
            uint8 by int8 in 16 bits: 2 * 255 * 63 fits there, 2 * 255 * 127 does not, and is cut off in silence.
        symmetric: Whether the integers lie around zero; else a group has a zero point.
        ratio: Share of the layers that get fewer than 8 bits, the most sensitive ones excluded.
        origin: Where a graph is from that is not made here: repository, commit and file.
    """

    method: str = "plain"
    bits: int = 8
    group: int = WHOLE
    largest: int = 127
    symmetric: bool = True
    ratio: float = 1.0
    origin: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give the record as plain values that JSON can hold."""
        values = asdict(self)
        return values if self.origin else {name: value for name, value in values.items() if name != "origin"}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One way to run a model.

    Attributes:
        name: What users choose it by.
        weights: What is stored.
        compute: What the layers that are not quantized compute in: "f32", "bf16" or "f16".
        activation_group: Neighbouring activations of one token that share a scale when the engine quantizes them as it
            runs, or `WHOLE`; 0 for engines and recipes that do not. A scale never spans two tokens.
        calibrated: Whether it takes calibration data to build.
        automatic: Whether `precision="auto"` considers it. One that saves memory and no time is there for the asking.
    """

    name: str
    weights: Weights = field(default_factory=Weights)
    compute: str = "f32"
    activation_group: int = 0
    encoder: str = ""
    calibrated: bool = False
    automatic: bool = True


FP32 = Recipe(name="fp32")

_INT8 = Weights(method="compressed")
_INT4 = Weights(method="compressed", bits=4, group=128)


def _openvino(hardware: Hardware) -> tuple[Recipe, ...]:
    """OpenVINO stores int8 once, and is told at load time how to quantize activations, if at all."""
    beside = "bf16" if hardware.has_bf16 else "f32"
    # Where there are tiles for bf16 it computes everything in them and ignores groups, unless tiles are forbidden. That
    # is slower than bf16 in every list measured, and by name only.
    tiles = hardware.has("amx_bf16")
    dynamic: dict[str, Any] = {"weights": _INT8, "compute": "f32" if tiles else beside, "automatic": not tiles}
    found = [
        Recipe(name="int4", weights=_INT4, compute=beside, automatic=False),
        Recipe(name="int8-static", weights=Weights(method="static"), compute=beside, calibrated=True),
        Recipe(name="int8-token", activation_group=WHOLE, **dynamic),
        Recipe(name="int8-g128", activation_group=128, **dynamic),
        Recipe(name="int8", activation_group=32, **dynamic),
        # Products are of floats: never faster than the same floats stored as they are.
        Recipe(name="int8-weights", weights=_INT8, compute=beside, automatic=False),
    ]
    if hardware.has_bf16:
        found.append(Recipe(name="bf16", compute="bf16"))
    if hardware.has_fp16:
        found.append(Recipe(name="fp16", compute="f16"))
    return (*found, FP32)


def _onnxruntime(hardware: Hardware) -> tuple[Recipe, ...]:
    """ONNX Runtime's own dynamic quantization takes one scale per tensor, and is not among these for that reason."""
    # Only x86 without VNNI sums in 16 bits; ARM's instructions sum in 32.
    largest = 63 if hardware.architecture == "x86_64" and not hardware.has_int8 else 127
    return (
        Recipe(name="int4", weights=_INT4, automatic=False),
        Recipe(name="int8-static", weights=Weights(method="static", largest=largest), calibrated=True),
        Recipe(name="int8", weights=Weights(method="per-token", largest=largest)),
        Recipe(name="int8-weights", weights=Weights(method="compressed", group=128), automatic=False),
        FP32,
    )


def ready(backend: str, hardware: Hardware, origin: str) -> Recipe:
    """Give the recipe of an int8 graph that others have published: how it is quantized, the check will tell."""
    beside = "bf16" if backend == "openvino" and hardware.has_bf16 else "f32"
    return Recipe(name="int8-ready", weights=Weights(method="ready", origin=origin), compute=beside)


# Kinds of models that generate: a decoder alone, one behind an encoder of texts, one behind an encoder of speech.
CAUSAL, SEQ2SEQ, SPEECH = "causal", "seq2seq", "speech"


def _openvino_generators(hardware: Hardware, kind: str) -> tuple[Recipe, ...]:
    """Decoding reads all weights for each token: what counts is how small they are, not what is multiplied.

    With floats as factors a prompt gets the same tokens in a batch as alone; integers and bf16 may give others, and so
    they wait to be named. Speech has an encoder with most of the work, which hears one recording at a time; its decoder
    is tried before it takes several.
    """
    if kind == SPEECH:
        fast = "bf16" if hardware.has_bf16 else ""
        found = [
            Recipe(name="int8", weights=_INT8, activation_group=32, encoder=fast),
            Recipe(name="int8-weights", weights=_INT8, encoder=fast),
        ]
    else:
        found = [
            Recipe(name="int4", weights=_INT4, automatic=False),
            Recipe(name="int8-g128", weights=_INT8, activation_group=128, automatic=False),
            Recipe(name="int8", weights=_INT8),
        ]
    # Behind an encoder, a decoder that keeps its state goes wrong in bf16 from its second answer on.
    for name, has, kind_of in (("bf16", hardware.has_bf16, "bf16"), ("fp16", hardware.has_fp16, "f16")):
        if has and kind == CAUSAL:
            found.append(Recipe(name=name, compute=kind_of, automatic=False))
        elif has:
            found.append(Recipe(name=name, encoder=kind_of, automatic=kind == SPEECH))
    return (*found, FP32)


def _onnxruntime_generators(hardware: Hardware, kind: str) -> tuple[Recipe, ...]:
    largest = 63 if hardware.architecture == "x86_64" and not hardware.has_int8 else 127
    return (
        Recipe(name="int4", weights=_INT4, automatic=False),
        Recipe(name="int8", weights=Weights(method="per-token", largest=largest)),
        # Slower than fp32 at every step: its kernel for 8 bits times floats is a plain one.
        Recipe(name="int8-weights", weights=Weights(method="compressed", group=128), automatic=False),
        FP32,
    )


_GENERATORS = {"openvino": _openvino_generators, "onnxruntime": _onnxruntime_generators}


def generator_ladder(backend: str, hardware: Hardware, kind: str) -> tuple[Recipe, ...]:
    """Give how an engine of ours generates on this hardware: as a rule fastest first, with fp32 last."""
    return _GENERATORS[backend](hardware, kind)


_LADDERS = {"openvino": _openvino, "onnxruntime": _onnxruntime}
NAMES = ("int4", "int8-static", "int8-token", "int8-g128", "int8", "int8-weights", "bf16", "fp16", "fp32")


def ladder(backend: str, hardware: Hardware) -> tuple[Recipe, ...]:
    """Give what an engine of ours runs on this hardware: as a rule fastest first and ever safer, with fp32 last."""
    return _LADDERS[backend](hardware)
