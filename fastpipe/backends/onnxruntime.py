"""ONNX Runtime on the CPU."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastpipe.backends.base import Batch, Outputs, Settings, Source, complete
from fastpipe.hardware import Hardware
from fastpipe.precision.per_token import description, quantize_dense_layers
from fastpipe.precision.recipes import HEADS, Recipe, Weights, ladder

GRAPH = "model.onnx"
COMPILED = "compiled.onnx"
# The fused kernel takes 1.8 ms where an Add and a Gelu take 1.3 together (1024 rows of 1536, two cores).
_HARMFUL = ["BiasGeluFusion"]


class ONNXRuntimeBackend:
    """Exports through Optimum or torch's exporter, quantizes with ONNX Runtime's own tools."""

    name = "onnxruntime"
    libraries = ("onnxruntime", "onnxruntime-gpu")
    remedy = "pip install 'transformers-fastpipe[onnxruntime]'"

    def recipes(self, hardware: Hardware) -> tuple[Recipe, ...]:
        """See `Backend`."""
        return ladder(self.name, hardware)

    def exporters(self) -> Mapping[str, Callable[[Source, Path], None]]:
        """See `Backend`."""
        return {"optimum-onnx": _export_with_optimum, "torch": _export_with_torch}

    def quantize(self, source: Path, folder: Path, weights: Weights, calibration: Sequence[Batch]) -> None:
        """See `Backend`."""
        import onnx

        if weights.method == "static":
            _quantize_static(source, folder, weights, calibration)
            return
        save(quantized(onnx.load(source / GRAPH), weights), folder / GRAPH)

    def adopt(self, graph: Path, folder: Path) -> None:
        """See `Backend`."""
        import onnx

        save(onnx.load(graph), folder / GRAPH)

    def compile(self, source: Path, folder: Path, settings: Settings) -> None:
        """See `Backend`. Weights are written as the kernels want them, and mapped into memory when they are loaded."""
        options = _options(settings)
        options.optimized_model_filepath = str(folder / COMPILED)
        for name, value in {
            "session.optimized_model_external_initializers_file_name": f"{COMPILED}.data",
            "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
            "session.save_external_prepacked_constant_initializers": "1",
        }.items():
            options.add_session_config_entry(name, value)
        _session(source / GRAPH, options)

    def load(self, folder: Path, settings: Settings) -> ONNXRuntimeRunner:
        """See `Backend`."""
        return ONNXRuntimeRunner(folder, settings)


class ONNXRuntimeRunner:
    """One inference session, which is safe to run from many threads: a stream is one of them."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        options, path = _options(settings), folder / GRAPH
        if (folder / COMPILED).is_file():
            import onnxruntime

            path, options.graph_optimization_level = (
                folder / COMPILED,
                onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
            )
        self._session = _session(path, options)
        self.inputs = tuple(port.name for port in self._session.get_inputs())
        self.outputs = tuple(port.name for port in self._session.get_outputs())

    def run(self, batch: Batch) -> Outputs:
        """See `Runner`."""
        results = self._session.run(self.outputs, complete(batch, self.inputs))
        return dict(zip(self.outputs, results, strict=True))


def quantized(model: Any, weights: Weights) -> Any:
    """Quantize the dense layers of a graph, which is changed in place."""
    if weights.method == "compressed":
        return _compress(model, weights)
    return quantize_dense_layers(model, keep=HEADS, largest=weights.largest)


def _options(settings: Settings) -> Any:
    return session_options(max(1, settings.threads // settings.streams))


def session_options(threads: int) -> Any:
    """Give the options that every session has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # a failing call raises; the same message on stderr would be told twice
    return options


def _session(path: Path, options: Any) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=_HARMFUL
    )


def _export_with_optimum(source: Source, folder: Path) -> None:
    from optimum.exporters.onnx import onnx_export_from_model

    onnx_export_from_model(source.model, folder, task=source.task.export, do_validation=False)


def _export_with_torch(source: Source, folder: Path) -> None:
    try:
        program = _program(source)
    except Exception:
        if source.task.modality == "text" or source.model.config._attn_implementation == "eager":
            raise
        with _eager_attention(source.model):
            program = _program(source)
    save(program.model_proto, folder / GRAPH)


@contextlib.contextmanager
def _eager_attention(model: Any) -> Iterator[None]:
    """Write attention out: what takes its place has other strides, on which the views of some models (Swin) fail."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def _program(source: Source) -> Any:
    import torch

    from fastpipe.backends.traceable import Traceable, dynamic_axes, example

    shapes = [
        {axis: torch.export.Dim.DYNAMIC if length is None else length for axis, length in enumerate(axes)}
        for axes in dynamic_axes(source).values()
    ]
    program = torch.onnx.export(
        Traceable(source).eval(),
        example(source),
        dynamo=True,
        dynamic_shapes=(tuple(shapes),),
        input_names=list(source.inputs),
        output_names=list(source.outputs),
        verbose=False,
    )
    assert program is not None
    return program


def _compress(model: Any, weights: Weights) -> Any:
    """Store the weights of dense layers as integers in blocks, which the engine turns back into floats."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    quantizer = MatMulNBitsQuantizer(
        model,
        bits=weights.bits,
        block_size=weights.group,
        is_symmetric=weights.symmetric,
        accuracy_level=1,  # floats times floats: 4 would quantize activations too, in ways that differ between batches
        nodes_to_exclude=_heads(model),
    )
    quantizer.process()
    return quantizer.model.model


def _quantize_static(source: Path, folder: Path, weights: Weights, calibration: Sequence[Batch]) -> None:
    """Put QuantizeLinear and DequantizeLinear around dense layers, with ranges seen on calibration data."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    model = onnx.load(source / GRAPH, load_external_data=False)
    names = [port.name for port in model.graph.input]

    class Rows(CalibrationDataReader):
        def __init__(self) -> None:
            self._rows = (complete(feed, names) for feed in calibration)

        def get_next(self) -> Any:
            return next(self._rows, None)

    quantize_static(
        source / GRAPH,
        folder / GRAPH,
        Rows(),
        quant_format=QuantFormat.QDQ,
        op_types_to_quantize=["MatMul"],
        nodes_to_exclude=_heads(model),
        per_channel=True,
        reduce_range=weights.largest < 127,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        use_external_data_format=True,
        extra_options={"MatMulConstBOnly": True},
    )


def _heads(model: Any) -> list[str]:
    return [node.name for node in model.graph.node if node.op_type == "MatMul" and re.search(HEADS, description(node))]


def save(model: object, path: Path) -> None:
    """Write a graph, with its weights beside it: a protobuf file ends at 2 GiB."""
    import onnx

    onnx.save_model(model, path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=1024)
