"""How each library is loaded, inside its worker. Each function gives a `Loaded`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import data

# What an answer is, where libraries differ in it.
_ANSWERS = {"feature-extraction": "; token vectors"}
# Parameters of a call; pipelines for tokens take no `truncation`, and truncate all the same.
_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "text-classification": {"truncation": True},
    "token-classification": {},
    "feature-extraction": {"truncation": True},
}
# How the names of Optimum's classes end.
_OPTIMUM = {
    "text-classification": "ForSequenceClassification",
    "token-classification": "ForTokenClassification",
    "feature-extraction": "ForFeatureExtraction",
}


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A contender that is ready to run.

    Attributes:
        pipe: The pipeline.
        config: The model's config.
        task: What the pipeline is made for.
        detail: What the precision is in detail, as far as the engine tells.
    """

    pipe: Any
    config: Any
    task: str
    detail: str = ""

    def facts(self) -> dict[str, Any]:
        """Give what the parent may know."""
        return {"detail": self.detail}

    def __call__(self, texts: Any, setting: Mapping[str, Any] | None = None) -> Any:
        """Run texts, a list or one, as a user would write it: with a setting that the probe chose, and parameters."""
        given = dict(setting or {})
        if "threads" in given:
            import torch

            torch.set_num_threads(given.pop("threads"))
        return self.pipe(texts, **_PARAMETERS[self.task], **given)


def fastpipe(workspace: str, model: str, *, backend: str, precision: str) -> Loaded:
    """Load a fastpipe pipeline; the first to do so builds its artifact."""
    folder = data.save_model(workspace, model)
    import fastpipe as library

    task = data.MODELS[model].task
    said: dict[str, Any] = {} if precision == "auto" else {"precision": precision, "accuracy": None}
    pipe = library.pipeline(task, model=folder, backend=backend, **said)
    runs = pipe.plan.precision
    if pipe.plan.backend != backend or (said and runs != precision):
        raise RuntimeError(f"{backend} at {precision} was asked for, and something else runs:\n{pipe.plan}")
    from fastpipe.hardware import detect_hardware
    from fastpipe.precision.recipes import ladder

    recipe = next(recipe for recipe in ladder(backend, detect_hardware()) if recipe.name == runs)
    weights = "fp32" if recipe.weights.method == "plain" else f"int{recipe.weights.bits}, {recipe.weights.method}"
    detail = f"{runs}: weights {weights}; the rest {recipe.compute}"
    if recipe.activation_group:
        grouped = "per token" if recipe.activation_group < 0 else f"in groups of {recipe.activation_group}"
        detail += f"; activations int8 {grouped}"
    return Loaded(pipe=pipe, config=pipe.model.config, task=task, detail=detail + _ANSWERS.get(task, ""))


def transformers(workspace: str, model: str) -> Loaded:
    """Load the installed transformers' pipeline."""
    folder = data.save_model(workspace, model)
    import torch
    import transformers as library

    task = data.MODELS[model].task
    pipe = library.pipeline(task, model=folder, device="cpu", dtype=torch.float32)
    detail = "weights and activations fp32, torch eager" + _ANSWERS.get(task, "")
    return Loaded(pipe=pipe, config=pipe.model.config, task=task, detail=detail)


def optimum_onnxruntime(workspace: str, model: str, *, quantized: bool) -> Loaded:
    """Load Optimum's ONNX Runtime model; int8 is its dynamic quantization for AVX512-VNNI."""
    folder = Path(data.save_model(workspace, model))
    from optimum import onnxruntime as library
    from optimum.onnxruntime.configuration import AutoQuantizationConfig

    engine_class = getattr(library, f"ORTModel{_OPTIMUM[data.MODELS[model].task]}")
    exported = Path(workspace) / "optimum" / f"{model}-onnx"
    if not (exported / "model.onnx").is_file():
        engine_class.from_pretrained(folder, export=True).save_pretrained(exported)
    name = "model_quantized.onnx" if quantized else "model.onnx"
    if not (exported / name).is_file():
        config = AutoQuantizationConfig.avx512_vnni(is_static=False)
        library.ORTQuantizer.from_pretrained(exported, file_name="model.onnx").quantize(
            save_dir=exported, quantization_config=config
        )
    engine = engine_class.from_pretrained(exported, file_name=name)
    detail = "weights int8 per channel, activations int8 per tensor" if quantized else "weights and activations fp32"
    return _around(engine, folder, model, detail)


def optimum_openvino(workspace: str, model: str, *, quantized: bool) -> Loaded:
    """Load Optimum's OpenVINO model; int8 is its 8-bit weights with the engine's own choice for activations."""
    folder = Path(data.save_model(workspace, model))
    from optimum import intel as library

    engine_class = getattr(library, f"OVModel{_OPTIMUM[data.MODELS[model].task]}")
    exported = Path(workspace) / "optimum" / f"{model}-openvino-{'int8' if quantized else 'fp32'}"
    if not (exported / "openvino_model.xml").is_file():
        config = library.OVWeightQuantizationConfig(bits=8) if quantized else None
        made = engine_class.from_pretrained(
            folder, export=True, compile=False, quantization_config=config, load_in_8bit=quantized
        )
        made.save_pretrained(exported)
    # The engine's default would run fp32 weights in bf16 where the CPU has it, which is another precision.
    hints = {} if quantized else {"INFERENCE_PRECISION_HINT": "f32"}
    engine = engine_class.from_pretrained(exported, ov_config=hints)
    engine.compile()
    compiled = getattr(engine, "compiled_model", None) or engine.request
    compute = compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    group = compiled.get_property("DYNAMIC_QUANTIZATION_GROUP_SIZE")
    detail = f"weights {'int8' if quantized else 'fp32'}, the rest {compute}"
    return _around(engine, folder, model, f"{detail}, activations in groups of {group}" if quantized else detail)


def _around(engine: Any, folder: Path, model: str, detail: str) -> Loaded:
    """Put transformers' own pipeline around a model of Optimum's, as its documentation does."""
    from transformers import AutoTokenizer, pipeline

    task = data.MODELS[model].task
    pipe = pipeline(task, model=engine, tokenizer=AutoTokenizer.from_pretrained(folder), device="cpu")
    return Loaded(pipe=pipe, config=engine.config, task=task, detail=detail + _ANSWERS.get(task, ""))
