"""Generators on ONNX Runtime: Optimum's model classes, with transformers' own loop."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from fastpipe.backends.generators import EXPORTS
from fastpipe.backends.onnxruntime import quantized, save, session_options
from fastpipe.hardware import Hardware
from fastpipe.precision.recipes import CAUSAL, SEQ2SEQ, SPEECH, Recipe, Weights, generator_ladder

_CLASSES = {CAUSAL: "ORTModelForCausalLM", SEQ2SEQ: "ORTModelForSeq2SeqLM", SPEECH: "ORTModelForSpeechSeq2Seq"}
# One graph with both of the other decoders in it, which no quantizer looks into.
_MERGED = "decoder_model_merged.onnx"


class ONNXRuntimeGenerators:
    """Generators on ONNX Runtime, by way of optimum-onnx."""

    name = "onnxruntime"
    libraries = ("onnxruntime", "onnxruntime-gpu")
    exporter = "optimum-onnx"

    def recipes(self, hardware: Hardware, kind: str) -> tuple[Recipe, ...]:
        """See `Generators`."""
        return generator_ladder(self.name, hardware, kind)

    def export(self, model: Any, folder: Path, kind: str) -> None:
        """See `Generators`."""
        from optimum.exporters.onnx import onnx_export_from_model

        onnx_export_from_model(model, folder, task=EXPORTS[kind], do_validation=False)
        for path in folder.glob(f"{_MERGED}*"):
            path.unlink()

    def quantize(self, source: Path, folder: Path, weights: Weights) -> None:
        """See `Generators`."""
        import onnx

        for graph in sorted(source.glob("*.onnx")):
            save(quantized(onnx.load(graph), weights), folder / graph.name)

    def load(self, folder: Path, kind: str, recipe: Recipe, threads: int, config: Any, generation_config: Any) -> Any:
        """See `Generators`."""
        import optimum.onnxruntime

        how = {} if kind == CAUSAL else {"use_merged": False}
        model = getattr(optimum.onnxruntime, _CLASSES[kind])._from_pretrained(
            folder,
            copy.deepcopy(config),  # Optimum moves entries out of it
            generation_config=copy.deepcopy(generation_config),
            session_options=session_options(threads),
            **how,
        )
        model.lengths = None  # its loop does not count: see `fastpipe.backends.lean`
        return model

    def twin(self, model: Any) -> Any:
        """See `Generators`. A session keeps nothing between steps."""
        return copy.copy(model)
