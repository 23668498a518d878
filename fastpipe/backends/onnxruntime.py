"""ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from fastpipe.backends.base import Batch, Outputs, Settings, Source, complete
from fastpipe.hardware import Hardware
from fastpipe.precision.per_token import quantize_dense_layers
from fastpipe.precision.recipes import HEADS, Recipe

GRAPH = "model.onnx"


class ONNXRuntimeBackend:
    """Exports through Optimum or torch's exporter, quantizes with ONNX Runtime's own tools."""

    name = "onnxruntime"
    libraries = ("onnxruntime", "onnxruntime-gpu")
    remedy = "pip install 'transformers-fastpipe[onnxruntime]'"

    def precisions(self, hardware: Hardware) -> tuple[str, ...]:
        """See `Backend`. Without instructions for it, uint8 by int8 products overflow 16 bits and come out wrong."""
        return ("fp32", "int8") if hardware.has_int8 else ("fp32",)

    def exporters(self) -> Mapping[str, Callable[[Source, Path], None]]:
        """See `Backend`."""
        return {"optimum-onnx": _export_with_optimum, "torch": _export_with_torch}

    def quantize(self, folder: Path, recipe: Recipe) -> None:
        """See `Backend`."""
        import onnx

        model = quantize_dense_layers(onnx.load(folder / GRAPH), keep=HEADS)
        for path in folder.iterdir():
            path.unlink()
        _save(model, folder)

    def load(self, folder: Path, settings: Settings) -> ONNXRuntimeRunner:
        """See `Backend`."""
        return ONNXRuntimeRunner(folder, settings)


class ONNXRuntimeRunner:
    """One inference session, which is safe to run from many threads."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = settings.threads
        options.log_severity_level = 4  # a failing call raises; the same message on stderr would be told twice
        self._session = onnxruntime.InferenceSession(str(folder / GRAPH), options, providers=["CPUExecutionProvider"])
        self.inputs = tuple(port.name for port in self._session.get_inputs())
        self.outputs = tuple(port.name for port in self._session.get_outputs())

    def run(self, batch: Batch) -> Outputs:
        """See `Runner`."""
        results = self._session.run(self.outputs, complete(batch, self.inputs))
        return dict(zip(self.outputs, results, strict=True))


def _export_with_optimum(source: Source, folder: Path) -> None:
    from optimum.exporters.onnx import onnx_export_from_model

    onnx_export_from_model(source.model, folder, task=source.task.export, do_validation=False)


def _export_with_torch(source: Source, folder: Path) -> None:
    import torch

    from fastpipe.backends.traceable import Traceable, example

    rows = torch.export.Dim.DYNAMIC if source.batchable else 1
    program = torch.onnx.export(
        Traceable(source).eval(),
        example(source),
        dynamo=True,
        dynamic_shapes=(tuple({0: rows, 1: torch.export.Dim.DYNAMIC} for _ in source.inputs),),
        input_names=list(source.inputs),
        output_names=list(source.outputs),
        verbose=False,
    )
    assert program is not None
    _save(program.model_proto, folder)


def _save(model: object, folder: Path) -> None:
    """Write a graph, with its weights beside it: a protobuf file ends at 2 GiB."""
    import onnx

    onnx.save_model(model, folder / GRAPH, save_as_external_data=True, location=f"{GRAPH}.data", size_threshold=1024)
