"""Generators on OpenVINO: Optimum's model classes, with the cache inside the decoder and a loop of our own."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fastpipe.backends.base import Settings
from fastpipe.backends.generators import EXPORTS
from fastpipe.backends.last_logits import KEEP, add_choice
from fastpipe.backends.lean import LeanSampling
from fastpipe.backends.openvino import compressed, core, properties, without_progress
from fastpipe.backends.shared_beams import share_among_beams
from fastpipe.backends.siblings import merge_siblings
from fastpipe.backends.word_times import WordTimes
from fastpipe.hardware import Hardware
from fastpipe.precision.recipes import CAUSAL, SEQ2SEQ, SPEECH, Recipe, Weights, generator_ladder

_CLASSES = {CAUSAL: "OVModelForCausalLM", SEQ2SEQ: "OVModelForSeq2SeqLM", SPEECH: "OVModelForSpeechSeq2Seq"}


class OpenVINOGenerators:
    """Generators on OpenVINO, by way of optimum-intel."""

    name = "openvino"
    libraries = ("openvino",)
    exporter = "optimum-intel"

    def recipes(self, hardware: Hardware, kind: str) -> tuple[Recipe, ...]:
        """See `Generators`."""
        return generator_ladder(self.name, hardware, kind)

    def export(self, model: Any, folder: Path, kind: str) -> None:
        """See `Generators`."""
        from optimum.exporters.openvino import export_from_model
        from optimum.intel import OVConfig

        how = {"task": EXPORTS[kind], "ov_config": OVConfig(dtype="fp32")}
        try:
            export_from_model(model, folder, stateful=True, **how)
        except RuntimeError:  # of some decoders (T5's) parts have no name, which the making of states asks for
            if kind == CAUSAL:
                raise
            export_from_model(model, folder, stateful=False, **how)
        if kind == CAUSAL:
            _merge(folder, "openvino_model")

    def quantize(self, source: Path, folder: Path, weights: Weights) -> None:
        """See `Generators`."""
        import openvino

        for graph in sorted(source.glob("*.xml")):
            model = core().read_model(graph)
            with without_progress():
                model = compressed(model, weights)
            openvino.save_model(model, folder / graph.name, compress_to_fp16=False)

    def load(self, folder: Path, kind: str, recipe: Recipe, threads: int, config: Any, generation_config: Any) -> Any:
        """See `Generators`."""
        model = _class_of(kind, config)._from_pretrained(
            folder,
            copy.deepcopy(config),  # Optimum moves entries out of it
            generation_config=copy.deepcopy(generation_config),
            ov_config=_properties(recipe.compute, recipe, threads),
            compile=False,
        )
        if kind == CAUSAL:
            if add_choice(model.model):
                model.input_names[KEEP] = len(model.input_names)
        else:
            model.shares_beams = kind == SPEECH and share_among_beams(model.decoder.model)
            model.encoder.ov_config = _properties(recipe.encoder or recipe.compute, recipe, threads)
        model.compile()
        return model

    def twin(self, model: Any) -> Any:
        """See `Generators`. The compiled graphs are shared; state, inputs and outputs are its own."""
        twin = copy.copy(model)
        if not model.config.is_encoder_decoder:
            twin.request = model.request.get_compiled_model().create_infer_request()
            return twin
        for name in model._component_names:
            part = copy.copy(getattr(model, name))
            part.parent_model = twin
            if name != "encoder":
                part.request = part.request.get_compiled_model().create_infer_request()
            setattr(twin, name, part)
        by_rows = model.config.model_type == "whisper"
        twin.encoder.request = (_ByRows if by_rows else _Callable)(model.encoder.request.create_infer_request())
        return twin


class _Callable:
    """An infer request that is called as a compiled model is: that has one request for all who call it."""

    def __init__(self, request: Any) -> None:
        self._request = request

    def __call__(self, inputs: Any, **how: Any) -> Any:
        return self._request.infer(inputs, **{**how, "share_outputs": False})


class _ByRows(_Callable):
    """The same, which takes a batch row by row.

    Whisper hears 30 s of every recording: one fills all threads, and several at once take as long and more memory. So
    what is heard of one depends on no other, whatever the encoder computes in.
    """

    def __call__(self, inputs: Any, **how: Any) -> Any:
        alone = super().__call__
        rows = range(len(next(iter(inputs.values()))))
        parts = [alone({name: values[row : row + 1] for name, values in inputs.items()}, **how) for row in rows]
        return {port.any_name: np.concatenate([part[port] for part in parts]) for port in parts[0]}


def _merge(folder: Path, name: str) -> None:
    """Put a graph with fewer and larger layers in the place of an exported one."""
    import openvino

    graph = core().read_model(folder / f"{name}.xml")
    if merge_siblings(graph):
        merged = folder / f"{name}_merged"  # the engine reads weights out of the file for as long as it has the graph
        openvino.save_model(graph, merged.with_suffix(".xml"), compress_to_fp16=False)
        del graph
        for suffix in (".xml", ".bin"):
            merged.with_suffix(suffix).replace(folder / f"{name}{suffix}")


def _properties(compute: str, recipe: Recipe, threads: int) -> dict[str, Any]:
    """Say how one graph computes: its keys and values too, which the engine keeps in 8 bits by default."""
    settings = Settings(recipe=replace(recipe, compute=compute), threads=threads)
    return {**properties(settings, recipe.activation_group), "KV_CACHE_PRECISION": compute}


@cache
def _lean(base: type, *before: type) -> type:
    return type(f"Lean{base.__name__}", (LeanSampling, *before, base), {"__module__": __name__})


def _class_of(kind: str, config: Any) -> Any:
    import optimum.intel
    from optimum.intel.openvino import modeling_seq2seq

    if kind == SPEECH and config.model_type == "whisper":
        return _lean(modeling_seq2seq._OVModelForWhisper, WordTimes)
    return _lean(getattr(optimum.intel, _CLASSES[kind]))
