"""Generators on ONNX Runtime: Optimum's model classes, with transformers' own loop."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers.modeling_outputs import BaseModelOutput

from fastpipe.backends.generators import EXPORTS
from fastpipe.backends.onnxruntime import quantized, save, session_options
from fastpipe.backends.torch_threads import one_thread
from fastpipe.backends.word_times import WordTimes
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
        how = {} if kind == CAUSAL else {"use_merged": False}
        model = _class_of(kind, config.model_type)._from_pretrained(
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


class _OneThread:
    """Stands before a model class of Optimum: torch, which chooses the tokens, stays out of the engine's way."""

    @one_thread()
    def _sample(self, *args: Any, **kwargs: Any) -> Any:
        return super()._sample(*args, **kwargs)  # type: ignore[misc]

    @one_thread()
    def _beam_search(self, *args: Any, **kwargs: Any) -> Any:
        return super()._beam_search(*args, **kwargs)  # type: ignore[misc]


class _ByRows:
    """Stands before Optimum's encoder for Whisper, which then takes a batch row by row: see the one for OpenVINO."""

    def forward(self, input_features: torch.Tensor, attention_mask: Any = None, **kwargs: Any) -> BaseModelOutput:
        """Hear recordings. Of each it hears 30 s, so that there is no mask among the graph's inputs."""
        alone = super().forward  # type: ignore[misc]
        heard = [alone(row, attention_mask=None).last_hidden_state for row in input_features.split(1)]
        return BaseModelOutput(last_hidden_state=torch.cat(heard))


def _before(base: type, *mixins: type, **attributes: Any) -> type:
    return type(f"Fast{base.__name__}", (*mixins, base), {"__module__": __name__, **attributes})


@cache
def _class_of(kind: str, model_type: str) -> Any:
    import optimum.onnxruntime
    from optimum.onnxruntime import modeling_seq2seq

    if kind == SPEECH and model_type == "whisper":
        encoder = _before(modeling_seq2seq.ORTEncoderForSpeech, _ByRows)
        return _before(modeling_seq2seq.ORTModelForWhisper, _OneThread, WordTimes, _ort_encoder_class=encoder)
    return _before(getattr(optimum.onnxruntime, _CLASSES[kind]), _OneThread)
