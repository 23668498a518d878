"""OpenVINO on the CPU."""

from __future__ import annotations

import contextlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fastpipe.backends.base import Batch, Outputs, Settings, Source, complete
from fastpipe.backends.keys import pad_keys
from fastpipe.hardware import Hardware
from fastpipe.precision.recipes import HEADS, WHOLE, Recipe, Weights, ladder

GRAPH = "openvino_model.xml"
COMPILED = "compiled.blob"
GROUP = "DYNAMIC_QUANTIZATION_GROUP_SIZE"
_FIRST_PROCESS = os.getpid()


class OpenVINOBackend:
    """Exports through Optimum or OpenVINO's own converter, compresses weights with NNCF."""

    name = "openvino"
    libraries = ("openvino",)
    remedy = "pip install 'transformers-fastpipe[openvino]'"

    def recipes(self, hardware: Hardware) -> tuple[Recipe, ...]:
        """See `Backend`."""
        return ladder(self.name, hardware)

    def exporters(self) -> Mapping[str, Callable[[Source, Path], None]]:
        """See `Backend`."""
        return {"optimum-intel": _export_with_optimum, "openvino": _convert}

    def quantize(self, source: Path, folder: Path, weights: Weights, calibration: Sequence[Batch]) -> None:
        """See `Backend`. These are the quantizers that Optimum calls; here they work on the graph, on any version."""
        import openvino

        model = core().read_model(source / GRAPH)  # NNCF changes the model it is given
        with without_progress():
            model = _static(model, calibration) if weights.method == "static" else pad_keys(compressed(model, weights))
        openvino.save_model(model, folder / GRAPH, compress_to_fp16=False)

    def adopt(self, graph: Path, folder: Path) -> None:
        """See `Backend`."""
        import openvino

        openvino.save_model(pad_keys(core().read_model(graph)), folder / GRAPH, compress_to_fp16=False)

    def compile(self, source: Path, folder: Path, settings: Settings) -> None:
        """See `Backend`."""
        model, group = _compiled(source, settings)
        (folder / COMPILED).write_bytes(model.export_model().getbuffer())
        (folder / f"{COMPILED}.json").write_text(json.dumps({GROUP: group}), "utf-8")

    def load(self, folder: Path, settings: Settings) -> OpenVINORunner:
        """See `Backend`."""
        return OpenVINORunner(folder, settings)


class OpenVINORunner:
    """A compiled model and its idle infer requests."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        if (folder / COMPILED).is_file():
            # Mapped, and private to this process: what is not written to is shared with all that map it.
            self._bytes = _tensor(np.memmap(folder / COMPILED, dtype=np.uint8, mode="c"))
            told = json.loads((folder / f"{COMPILED}.json").read_text("utf-8"))
            self._model = core().import_model(self._bytes, "CPU", properties(settings, told[GROUP]))
        else:
            self._model, _ = _compiled(folder, settings)
        self._idle: deque[Any] = deque()
        # `get_any_name` may answer with a number; the names we gave are always among `get_names`.
        self.inputs = tuple(_given_name(port) for port in self._model.inputs)
        self.outputs = tuple(_given_name(port) for port in self._model.outputs)

    def run(self, batch: Batch) -> Outputs:
        """See `Runner`. Every call has an infer request of its own."""
        feed = complete(batch, self.inputs)
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._model.create_infer_request()
        # Shared inputs: with copied ones, a batch larger than the one before fails ("Could set new shape").
        results = request.infer([feed[name] for name in self.inputs], share_inputs=True, share_outputs=True)
        outputs = {name: np.array(results[index]) for index, name in enumerate(self.outputs)}
        self._idle.append(request)
        return outputs


def _tensor(array: np.ndarray[Any, Any]) -> Any:
    """Give an array as the engine's own kind, in the same memory."""
    import openvino

    return openvino.Tensor(array, shared_memory=True)


def _compiled(folder: Path, settings: Settings) -> tuple[Any, int]:
    """Compile a graph; give its activation group, too."""
    model = core().read_model(folder / GRAPH)
    group = _activation_group(settings.recipe, model)
    return core().compile_model(model, "CPU", properties(settings, group)), group


def properties(settings: Settings, group: int) -> dict[str, Any]:
    """Give what the engine is told when it compiles a graph."""
    return {
        # Never the engine's default: on a CPU with bf16 it would leave fp32 without being asked.
        "INFERENCE_PRECISION_HINT": settings.recipe.compute,
        "INFERENCE_NUM_THREADS": settings.threads,
        # OpenVINO keeps the threads of dropped models for the next one with as many. In a forked process they are
        # dead, and whoever is given them waits for ever. Without streams, the calling thread does the work.
        "NUM_STREAMS": settings.streams if os.getpid() == _FIRST_PROCESS else 0,
        # Kernels kept for shapes seen before. The engine's own limit of 5,000 is reached at gigabytes; this one holds
        # some hundred shapes, and repeats are as fast.
        "CPU_RUNTIME_CACHE_CAPACITY": 256,
        GROUP: group,
    }


def _activation_group(recipe: Recipe, model: Any) -> int:
    """Give the engine's number for an activation group.

    It has none for "all of a token", and a group wider than a layer's rows switches that layer's quantization off: so
    the rows of the narrowest layer are the widest group.
    """
    if recipe.activation_group != WHOLE:
        return recipe.activation_group
    widths = [node.input(1).get_partial_shape() for node in model.get_ops() if node.get_type_name() == "MatMul"]
    return min((max(w[-1].get_length(), 1) for w in widths if w.rank.get_length() == 2 and w.is_static), default=0)


def compressed(model: Any, weights: Weights) -> Any:
    """Compress the weights of a graph, which is changed in place."""
    import nncf

    modes = nncf.CompressWeightsMode
    if weights.bits == 8:
        how: dict[str, Any] = {"mode": modes.INT8_SYM if weights.symmetric else modes.INT8_ASYM}
    else:
        how = {
            "mode": modes.INT4_SYM if weights.symmetric else modes.INT4_ASYM,
            "group_size": weights.group,
            "ratio": weights.ratio,
            # A layer narrower than the group takes a smaller one, or 8 bits where none divides its width.
            "advanced_parameters": nncf.AdvancedCompressionParameters(
                group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST
            ),
        }
    return nncf.compress_weights(model, ignored_scope=_heads(), **how)


def _static(model: Any, calibration: Sequence[Batch]) -> Any:
    import nncf

    names = [_given_name(port) for port in model.inputs]
    return nncf.quantize(
        model,
        nncf.Dataset(calibration, lambda feed: complete(feed, names)),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(calibration),
        ignored_scope=_heads(),
    )


def _heads() -> Any:
    import nncf

    return nncf.IgnoredScope(patterns=[f".*{HEADS}.*"], validate=False)


@contextlib.contextmanager
def without_progress() -> Iterator[None]:
    """Silence rich's console: NNCF draws its progress on it, in a notebook even past a redirected stdout."""
    import rich

    console = rich.get_console()
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before


def _given_name(port: Any) -> str:
    return str(next(name for name in sorted(port.get_names()) if not name.isdigit()))


def core() -> Any:
    """Give this process's core: its threads do not survive a fork."""
    return _core_of(os.getpid())


@cache
def _core_of(process_id: int) -> Any:
    import openvino

    return openvino.Core()


def _export_with_optimum(source: Source, folder: Path) -> None:
    import openvino
    from optimum.exporters.openvino import export_from_model

    export_from_model(source.model, folder, task=source.task.export, stateful=False)
    if source.task.modality == "text":
        return
    graph = folder / GRAPH
    model = core().read_model(graph)  # in which nothing is known, not even that there are three colours
    _reshape(model, {_given_name(port): port for port in model.inputs}, source)
    written = graph.with_stem("shaped")
    openvino.save_model(model, written, compress_to_fp16=False)
    del model  # it maps the weights that are replaced
    for suffix in (".xml", ".bin"):
        written.with_suffix(suffix).replace(graph.with_suffix(suffix))


def _reshape(model: Any, ports: Mapping[str, Any], source: Source) -> None:
    """Say which axes of the inputs are free, and how long the others are."""
    import openvino

    from fastpipe.backends.traceable import dynamic_axes

    is_text = source.task.modality == "text"
    shapes = {
        ports[name]: openvino.PartialShape([-1 if is_text or length is None else length for length in axes])
        for name, axes in dynamic_axes(source).items()
    }
    model.reshape(shapes)


def _convert(source: Source, folder: Path) -> None:
    import openvino

    from fastpipe.backends.traceable import Traceable, example

    model = openvino.convert_model(Traceable(source).eval(), example_input=example(source))
    _reshape(model, dict(zip(source.inputs, model.inputs, strict=True)), source)
    for port, name in zip(model.inputs, source.inputs, strict=True):
        port.get_tensor().set_names({name})
    for port, name in zip(model.outputs, source.outputs, strict=True):
        port.get_tensor().set_names({name})
    openvino.save_model(model, folder / GRAPH, compress_to_fp16=False)
