"""Make artifacts: export a model to an engine's fp32 graph and verify it against torch; quantize such a graph."""

from __future__ import annotations

import contextlib
import copy
import errno
import io
import logging
import os
import shutil
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fastpipe.artifacts.examine import examine, text_limit
from fastpipe.artifacts.store import Artifact, empty
from fastpipe.backends import torch as torch_backend
from fastpipe.backends.base import Backend, Runner, Settings, Source
from fastpipe.backends.registry import version_of
from fastpipe.batching import neutrality
from fastpipe.batching.collate import Feed, pad_values, run_batch
from fastpipe.batching.planner import Padding
from fastpipe.batching.shapes import altered, key_of, shapes_of
from fastpipe.errors import ExportError, FetchError
from fastpipe.precision.recipes import FP32, Weights
from fastpipe.tasks import Task

logger = logging.getLogger("fastpipe")

# What every export is compared on: one word, a pair, several scripts, and (added below) as long as the model takes.
_TEXTS: tuple[tuple[str, str | None], ...] = (
    ("The delivery came two days late, but the box was in good shape.", None),
    ("Who wrote the report?", "It was written by the safety team in Oslo last spring."),
    ("No", None),
    ("Grüße aus Köln – 北京欢迎你 – привет 🙂", None),
)
_LONG = "A long text makes every position of the model count, the last one too. " * 64
_LONGEST = 512
_MARGIN = 2
_GRAPH_FILES = {".xml", ".bin", ".onnx", ".data"}


def export(
    folder: Path,
    *,
    model: Any,
    tokenizer: Any,
    task: Task,
    backend: Backend,
    threads: int,
    feeds: Sequence[Feed] = (),
    beside: Collection[str] = (),
    ready: Mapping[str, Callable[[Source, Path], None]] | None = None,
    ready_first: bool = True,
) -> dict[str, Any]:
    """Write a model's fp32 graph into a folder.

    Args:
        folder: An empty folder.
        model: The torch model; it is left as it was.
        tokenizer: The tokenizer that goes with it.
        task: What the model is for.
        backend: The engine to build for.
        threads: CPU threads to verify with.
        feeds: Prepared inputs to examine the model with, where they are no texts.
        beside: Names of other tensors that were prepared with them.
        ready: Graphs that others have made of it: what fetches them, as the backend's exporters do, by origin.
        ready_first: Whether they are tried before an export, or after.

    Returns:
        Facts about the model: "max_tokens", "padding", "outputs", "exporter", "export_error", "main_input", and by name
        the "shapes" of rows that the graph was made for, `None` for an axis of any length.

    Raises:
        ExportError: No way of exporting gives a graph that agrees with torch.
        FetchError: Nor does what is ready, as far as it can be fetched now.
    """
    with as_reference(model, folder) as reference:
        source, padding = (
            _examine(reference, tokenizer, task) if task.modality == "text" else examine(reference, task, feeds, beside)
        )
        own = {name: export for name, export in backend.exporters().items() if version_of(name)}
        ways = {**(ready or {}), **own} if ready_first else {**own, **(ready or {})}
        exporter, error = _export(folder, source, padding, pad_values(tokenizer), backend, ways, threads)
    return {
        "max_tokens": torch_backend.token_limit(model) if task.modality == "text" else text_limit(model.config),
        "padding": padding.value,
        "outputs": source.outputs,
        "exporter": exporter,
        "export_error": error,
        "main_input": model.main_input_name,
        "shapes": {} if task.modality == "text" else shapes_of(source.examples, set(source.inputs) - task.shared),
    }


def quantize(
    folder: Path, *, source: Artifact, backend: Backend, weights: Weights, calibration: Sequence[Feed]
) -> dict[str, Any]:
    """Write a quantized graph into a folder.

    Args:
        folder: An empty folder.
        source: The artifact with the fp32 graph.
        backend: The engine it is for.
        weights: What to make of the dense layers.
        calibration: Rows to calibrate on: arrays of shape (1, tokens) by name.

    Returns:
        The facts of `source`, which hold for it too.

    Raises:
        ExportError: The quantizer fails on this model.
    """
    with quantizing(backend.name, weights, folder, source):
        backend.quantize(source.folder, folder, weights, calibration)
    return dict(source.facts)


@contextlib.contextmanager
def quantizing(backend: str, weights: Weights, folder: Path, source: Artifact) -> Iterator[None]:
    """Keep a quantizer quiet, and say what it could not do.

    Args:
        backend: Name of the engine.
        weights: What is to be made of the dense layers.
        folder: Where to.
        source: The artifact with the fp32 graph.

    Raises:
        ExportError: It failed on the model.
        OSError: The disk is full.
    """
    try:
        with _quiet():
            yield
    except (OSError, MemoryError):  # these pass; an ExportError is remembered
        raise
    except Exception as error:
        reject_full_disk(folder, source.size_bytes, error)
        raise ExportError(
            f"{backend} cannot quantize this model ({weights.method}, {weights.bits} bits): {_first_line(error)}"
        ) from error


def examples(tokenizer: Any, inputs: tuple[str, ...], limit: int | None) -> list[Feed]:
    """Tokenize the texts that models are examined with.

    Returns:
        One mapping per text: an int64 array of shape (1, tokens) for each of `inputs` that the tokenizer gives.
    """
    cut = {"truncation": True, "max_length": min(limit or _LONGEST, _LONGEST)}
    feeds: list[Feed] = []
    for text, pair in (*_TEXTS, (_LONG, None)):
        encoded = tokenizer(text, pair, return_tensors="np", **cut)
        if encoded["input_ids"].shape[1]:
            feeds.append({name: values.astype("int64") for name, values in encoded.items() if name in inputs})
    return feeds


@contextlib.contextmanager
def as_reference(model: Any, folder: Path) -> Iterator[Any]:
    """Lend a model as fp32 on the CPU in eval mode, and leave the user's own as it was.

    For as long as it is lent it says that it comes from `folder`: Optimum looks for a tokenizer where a model comes
    from, and would ask the hub for one, at another revision and without the user's token.
    """
    import torch

    plain = all(p.device.type == "cpu" and p.dtype == torch.float32 for p in model.parameters())
    reference = model if plain else copy.deepcopy(model).to(device="cpu", dtype=torch.float32)
    restore, config = torch_backend.to_eval_mode(reference), dict(reference.config.__dict__)
    reference.config._name_or_path = str(folder)
    try:
        yield reference
    finally:
        reference.config.__dict__.clear()  # Optimum writes into it
        reference.config.__dict__.update(config)
        restore()


def _examine(model: Any, tokenizer: Any, task: Task) -> tuple[Source, Padding]:
    """Find the model's inputs and outputs, and what it does with padded rows."""
    inputs = torch_backend.text_inputs(model)
    if "input_ids" not in inputs:
        raise ExportError(f"{type(model).__name__} takes no input_ids")
    feeds = examples(tokenizer, inputs, torch_backend.token_limit(model))
    try:
        runner = torch_backend.TorchRunner(model, task.outputs)
        outputs = task.outputs or tuple(runner.run(feeds[0]))
        padding = neutrality.measure(runner.run, feeds, pad_values(tokenizer), per_token=task.per_token)
    except (OSError, MemoryError):  # these pass; an ExportError is remembered
        raise
    except Exception as error:
        raise ExportError(f"{type(model).__name__} does not run as a text encoder: {error}") from error
    batchable = padding is not Padding.SINGLE
    return (
        Source(model=model, task=task, inputs=tuple(feeds[0]), outputs=outputs, examples=feeds, batchable=batchable),
        padding,
    )


def _export(
    folder: Path,
    source: Source,
    padding: Padding,
    values: dict[str, int],
    backend: Backend,
    ways: Mapping[str, Callable[[Source, Path], None]],
    threads: int,
) -> tuple[str, float]:
    """Export by the first way that agrees with torch; give its name and the largest relative difference."""
    failures: list[str] = []
    kind: type[ExportError | FetchError] = ExportError
    settings = Settings(recipe=FP32, threads=threads)

    def difference() -> float:
        runner = backend.load(folder, settings)
        outputs = tuple(name for name in source.outputs if name in runner.outputs)
        error = _compare(runner, replace(source, outputs=outputs), padding, values)
        return error if outputs == source.outputs else float("inf")

    for name, export in ways.items():
        try:
            return name, verified(folder, name, partial(export, source, folder), difference, bytes_of(source.model))
        except (ExportError, FetchError) as error:
            logger.info("%s", error)
            failures.append(str(error))
            kind = FetchError if isinstance(error, FetchError) else kind  # the next time it may be there
    reasons = "; ".join(failures) or "no exporter is installed"
    raise kind(f"{backend.name} cannot take {type(source.model).__name__} ({reasons})")


def bytes_of(model: Any) -> int:
    """Tell how much the weights of a torch model take as fp32."""
    return 4 * sum(int(parameter.numel()) for parameter in model.parameters())


def reject_full_disk(folder: Path, needed_bytes: int, failure: Exception) -> None:
    """Raise where a failure may well be one of the disk: engines write files without saying why they cannot.

    What raises here is not remembered as a fault of the model.

    Raises:
        OSError: There is no more space than about what was to be written.
    """
    if shutil.disk_usage(folder).free < _MARGIN * needed_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)) from failure


def verified(
    folder: Path,
    exporter: str,
    export: Callable[[], None],
    difference: Callable[[], float],
    needed_bytes: int,
) -> float:
    """Export, and compare with torch.

    Args:
        folder: Where `export` writes; it is left empty when it fails.
        exporter: Its name.
        export: Writes the graphs.
        difference: Gives the largest relative difference of their results to torch's.
        needed_bytes: About what the graphs take.

    Returns:
        That difference.

    Raises:
        ExportError: It fails, or the difference is too large.
        FetchError: What would have been fetched cannot be, now.
        OSError: The disk is full.
    """
    try:
        with _quiet():
            export()
            _keep_graph_files(folder)
            error = difference()
    except FetchError:  # passes too
        empty(folder)
        raise
    except (OSError, MemoryError):  # these pass; an ExportError is remembered
        raise
    except Exception as failure:
        logger.debug("export by %s failed", exporter, exc_info=True)
        reject_full_disk(folder, needed_bytes, failure)
        empty(folder)
        raise ExportError(f"{exporter}: {_first_line(failure)}") from failure
    if not error <= neutrality.TOLERANCE:
        empty(folder)
        incomparable = error == float("inf")
        found = "are no numbers, or of other shapes than" if incomparable else f"differ by {error:.1g} from"
        raise ExportError(f"{exporter}: its results {found} torch's")
    return error


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"


def _compare(runner: Runner, source: Source, padding: Padding, values: dict[str, int]) -> float:
    """Give the largest relative difference between a runner and torch, alone and, where that is allowed, padded."""
    torch_runner = torch_backend.TorchRunner(source.model, source.outputs)
    wanted = [torch_runner.run(feed) for feed in source.examples]
    got = [runner.run(feed) for feed in source.examples]
    worst = max(map(neutrality.distance, _only(got, source.outputs), wanted))
    if padding is Padding.NEUTRAL:
        rows = run_batch(runner.run, source.examples, values, per_token=source.task.per_token)
        worst = max(worst, *map(neutrality.distance, _only(rows, source.outputs), wanted))
    elif source.task.modality != "text" and source.batchable:
        shared = source.task.shared
        first_of = {key_of(feed, shared): place for place, feed in reversed(list(enumerate(source.examples)))}
        for place in sorted(first_of.values())[:2]:  # of two shapes, in a batch that export has not seen
            feed = source.examples[place]
            beside = [altered(feed, shared), feed, altered(feed, shared)]
            (row,) = _only(run_batch(runner.run, beside, {}, per_token=False, shared=shared)[1:2], source.outputs)
            worst = max(worst, neutrality.distance(row, wanted[place]))
    return worst


def _only(rows: Sequence[Feed], names: tuple[str, ...]) -> list[Feed]:
    return [{name: row[name] for name in names} for row in rows]


def _keep_graph_files(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.suffix not in _GRAPH_FILES:
            path.unlink()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what exporters print to themselves: it is about their internals, and goes to our debug log."""
    said = io.StringIO()
    noisy = [logging.getLogger(name) for name in ("torch.onnx", "optimum", "nncf", "transformers", "onnxscript")]
    levels, disabled = [log.level for log in noisy], logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        warnings.simplefilter("ignore")
        for log in noisy:
            log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            logging.disable(disabled)  # Optimum changes it, and does not change it back when it fails
            for log, level in zip(noisy, levels, strict=True):
                log.setLevel(level)
            logger.debug("exporters said: %s", said.getvalue())
