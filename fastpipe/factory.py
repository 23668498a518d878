"""`pipeline()`: the whole story of how a pipeline comes about."""

from __future__ import annotations

import contextlib
import inspect
import logging
import warnings
from dataclasses import fields, replace
from typing import Any

import torch
import transformers

from fastpipe import options, plan
from fastpipe.artifacts.store import Store
from fastpipe.backends import registry
from fastpipe.backends.torch import TorchRunner, text_inputs, token_limit
from fastpipe.errors import ExportError, FallbackWarning, FetchError
from fastpipe.hardware import Hardware, detect_hardware
from fastpipe.pipelines import components, published, saving
from fastpipe.pipelines import request as requests
from fastpipe.pipelines import tuned as tunings
from fastpipe.pipelines.call import Batching
from fastpipe.pipelines.classes import fast_class
from fastpipe.pipelines.generators.batches import Prompts
from fastpipe.pipelines.generators.floats import FloatSelection
from fastpipe.pipelines.generators.model import GeneratorModel
from fastpipe.pipelines.generators.recordings import Recordings
from fastpipe.pipelines.generators.selection import GeneratorSelection
from fastpipe.pipelines.model import EngineModel
from fastpipe.pipelines.request import Request
from fastpipe.pipelines.selection import Selection
from fastpipe.pipelines.tuned import Outdated, Tuned
from fastpipe.precision import calibration
from fastpipe.precision.recipes import FP32, SPEECH, Recipe
from fastpipe.precision.report import Report


class NothingFasterError(Exception):
    """An engine can serve a model in fp32 only; no user sees it."""


_logger = logging.getLogger("fastpipe")
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_TRANSFORMERS = inspect.signature(transformers.pipeline)


def pipeline(*args: Any, **kwargs: Any) -> Any:
    """Make a pipeline, as `transformers.pipeline` does, that runs on the fastest engine of this machine.

    Args:
        args: As for the installed `transformers.pipeline`, in the same order.
        kwargs: As for the installed `transformers.pipeline`, and these:
            backend: "auto", "openvino", "onnxruntime" or "torch".
            precision: "auto" for the fastest that passes the accuracy check, "fp32", "bf16", "fp16", "int8" and more;
                wins over `dtype`.
            calibration_data: Inputs that stand for yours: an iterable of them, a dataset's column, or a text file.
            accuracy: What a recipe must reach beside fp32: "auto", a number, `fastpipe.Accuracy`, `None` for no check.
            cache_dir: Folder for built models.
            threads: CPU threads of an engine; all usable cores by default.
            progress_bar: Whether the steps of a build are shown; on a terminal they are unless this is False.

    Returns:
        An instance of the task's own transformers class. `pipe.plan` says what runs and why, `pipe.report` what the
        accuracy check found.

    Raises:
        OptionError: An option is misspelt, has no such value, or cannot be had here.
        DeviceError: The device does not exist here.
        MissingBackendError: The engine named is not installed.
        KeyError, OSError, RuntimeError: As raised by transformers for an unknown task or model.
    """
    said = {name: kwargs.pop(name) for name in options.NAMES if name in kwargs}
    own = options.resolve(said)
    bound = _TRANSFORMERS.bind(*args, **kwargs)
    extra = bound.arguments.pop("kwargs", {})
    options.reject_misspelt(extra)
    arguments = {**bound.arguments, **extra}
    hardware = detect_hardware()
    device, device_warning = plan.place(arguments.get("device"), hardware)
    # What is said here wins over what the environment says.
    by_dtype = None if said.get("precision") else plan.precision_of(_dtype(arguments))
    precision = by_dtype or own.precision
    if by_dtype:  # a dtype means what it means to transformers, which checks nothing
        own = replace(own, accuracy=None)

    # Read once: it may be a generator, and several engines may want it.
    given = None if own.calibration_data is None else calibration.read(own.calibration_data)
    request = requests.resolve(arguments)
    on_cpu = device.startswith("cpu")
    tunable = on_cpu and request.task is not None and not request.task.generates
    tuned = tunings.find(request, own, precision, hardware, registry.engines(hardware)) if tunable else None
    pipe = make(request, own, precision, hardware, device, given, tuned)
    for message in filter(None, (device_warning, pipe.plan.warning)):
        warnings.warn(message, FallbackWarning, stacklevel=2)
    return pipe


def make(
    request: Request,
    own: options.Options,
    precision: str | None,
    hardware: Hardware,
    device: str,
    given: calibration.Calibration | None,
    tuned: Tuned | None = None,
) -> Any:
    """Plan, and build what the plan says; where an engine cannot take the model, plan again without it.

    So it is where the accuracy check leaves an engine nothing but fp32, and the engine was not asked for: a quantized
    model of another may pass. Where none does, the first engine serves in fp32.

    Args:
        request: The resolved call.
        own: What the user said to us.
        precision: The one they named, by its name or by a dtype.
        hardware: What this machine has.
        device: torch's name of the device.
        given: The calibration data, if there is any.
        tuned: The choice of tuning to follow, if there is one.

    Raises:
        OptionError: As `pipeline`.
        MissingBackendError: As `pipeline`.
    """
    store = Store(own.cache_dir)
    ready = published.find(request, store) if device.startswith("cpu") and own.backend != "torch" else None
    shared = saving.find(request, store, ready)
    case: dict[str, Any] = {
        "request": request,
        "task": request.task,
        "hardware": hardware,
        "options": own,
        "given": given,
        "published": ready,
    }
    failed: dict[str, str] = {}
    in_fp32 = ""  # the first engine that nothing faster was left to
    while True:
        chosen = plan.choose(
            request.task_name,
            task=request.task,
            obstacle=request.obstacle,
            hardware=hardware,
            engines=registry.engines(hardware),
            backend=own.backend,
            precision=precision,
            device=device,
            failed=failed,
            first=tuned.backend if tuned else shared.choice.backend if shared else "",
            threads=own.threads,
        )
        if tuned and chosen.backend != tuned.backend:
            tuned = None
        if chosen.backend == "torch" and in_fp32 in failed:
            del failed[in_fp32]
            continue
        if chosen.backend == "torch" or request.task is None:
            pipe = _on_torch(request, chosen)
            if _may_narrow(pipe, request, chosen, own, precision) and hardware.has_bf16:
                chosen = _in_fewer_bits(FloatSelection(pipe=pipe, plan=chosen, **case))
            break
        try:
            if request.task.generates:
                pipe = _around(GeneratorModel(request, request.task.generates), request)
                chosen = _generating(GeneratorSelection(pipe=pipe, plan=chosen, shared=shared, **case))
                break
            settled = own.backend != "auto" or tuned is not None or in_fp32 == chosen.backend
            pipe = _around(EngineModel(request), request)
            chosen = _on_engine(Selection(pipe=pipe, plan=chosen, tuned=tuned, shared=shared, **case), settled)
            break
        except NothingFasterError as error:
            in_fp32 = in_fp32 or chosen.backend
            failed[chosen.backend] = str(error)
        except (Outdated, ExportError, FetchError) as error:
            if tuned is None:
                failed[chosen.backend] = str(error)
            in_fp32 = "" if in_fp32 == chosen.backend else in_fp32
            tuned = None
    pipe.plan = plan.as_run(chosen, pipe.dtype)
    what, where = pipe.plan.backend, pipe.plan.device
    _logger.info("%s runs on %s, %s, %s", request.model_id or request.task_name, what, pipe.plan.precision, where)
    if chosen.backend == "torch" and "report" not in pipe.__dict__:
        pipe.report = Report(backend="torch", chosen=pipe.plan.precision, reason="torch runs the model as it is")
        # For tuning; on an engine the model knows where it is from.
        if request.task and not request.task.generates and not request.obstacle:
            pipe._request, pipe._cache_dir = request, own.cache_dir
    if tuned:
        tuned.explain(pipe)
    return pipe


def _dtype(arguments: dict[str, Any]) -> Any:
    """Find what the user said of the dtype, by any of its names."""
    model_kwargs = arguments.get("model_kwargs") or {}
    said = (
        arguments.get("dtype"),
        arguments.get("torch_dtype"),
        model_kwargs.get("dtype"),
        model_kwargs.get("torch_dtype"),
    )
    return next((dtype for dtype in said if dtype not in (None, "auto")), None)


def _on_torch(request: Request, chosen: plan.Plan) -> Any:
    """Let transformers make the pipeline, and batch where the task's rows are known."""
    changes: dict[str, Any] = {}
    if request.arguments.get("device") is not None:
        changes["device"] = chosen.device
    if not request.own_class:
        changes["pipeline_class"] = fast_class(request.pipeline_class)
    pipe = request.transformers_pipeline(**changes)
    is_text = request.task is None or request.task.modality == "text"
    if request.own_class or not is_text or not isinstance(pipe.model, torch.nn.Module):
        return pipe
    if "input_ids" not in text_inputs(pipe.model):
        return pipe
    pipe._max_tokens = limit = token_limit(pipe.model)
    if request.task and not request.task.generates:
        pipe._batching = Batching(
            runner=TorchRunner(pipe.model, request.task.outputs),
            per_token=request.task.per_token,
            max_tokens=limit,
            padding=None,
        )
        components.limit_tokenizer(pipe, limit)
    return pipe


def _may_narrow(pipe: Any, request: Request, chosen: plan.Plan, own: options.Options, precision: str | None) -> bool:
    """Tell whether the user left it to us how a generator that no engine takes computes."""
    left_to_us = precision in (None, "auto") and own.backend == "auto" and own.accuracy is not None
    generates = request.task is not None and bool(request.task.generates)
    plain = request.model_id is not None and not request.own_class and not request.obstacle
    return generates and left_to_us and plain and chosen.device.startswith("cpu") and pipe.dtype == torch.float32


def _in_fewer_bits(selection: FloatSelection) -> plan.Plan:
    """Give a generator on torch its weights in bf16, where that is faster here and passes the check."""
    pipe, chosen = selection.pipe, selection.plan
    if not selection.fits():
        return chosen
    with contextlib.closing(selection.steps):
        recipe, pipe.report = selection.checked()
    if recipe is FP32:
        return chosen
    limit = pipe._max_tokens
    pipe.model = selection.narrow_model()
    pipe._max_tokens = limit  # which goes with the model before
    return plan.decided(chosen, recipe.name, pipe.report.reason)


def _around(model: Any, request: Request) -> Any:
    """Make the pipeline, before there is anything in its model: what its components give is part of what is built."""
    own_class = request.pipeline_class if request.own_class else fast_class(request.pipeline_class)
    return request.engine_pipeline(model, components.of(request), own_class)


def _on_engine(selection: Selection, settled: bool) -> plan.Plan:
    """Choose the recipe, find or build its artifact, and load it into the model of the selection's pipeline.

    Args:
        selection: The recipes.
        settled: Whether this engine serves even where only fp32 is left.

    Raises:
        ExportError: The engine cannot take the model.
        FetchError: It cannot now, as a graph cannot be fetched.
        NothingFasterError: The accuracy check refused all that is faster than fp32, and the engine is not settled.
    """
    pipe, chosen = selection.pipe, selection.plan
    with contextlib.closing(selection.steps):
        recipe, report = selection.choose()
        settled = settled or selection.follows
        if not settled and chosen.precision == "auto" and report.refused and recipe is FP32:
            raise NothingFasterError(
                f"nothing faster than fp32 passes the accuracy check here: {', '.join(report.refused)} do not"
            )
        try:
            artifact = selection.compiled(recipe)
        except FetchError as error:  # a check is remembered for longer than the graph that it chose
            if not selection.leave_ready(error):
                raise
            recipe, report = selection.choose()
            artifact = selection.compiled(recipe)
        asked = DTYPES.get(chosen.precision, torch.float32)  # results have the dtype that the user named, if they did
        pipe.model.load(artifact.folder, chosen.backend, selection.settings(recipe), artifact.facts, dtype=asked)
        speed = selection.speed(recipe, artifact.facts)
    selection.equip(artifact.facts, speed)
    pipe.report, pipe._served = report, selection.served(recipe)
    return plan.decided(chosen, recipe.name, report.reason, speed.streams)


def _generating(selection: GeneratorSelection) -> plan.Plan:
    """The same for a model that generates.

    Raises:
        ExportError: The engine cannot take the model.
    """
    pipe, chosen = selection.pipe, selection.plan
    model = pipe.model
    with contextlib.closing(selection.steps):
        recipe, report = selection.choose()
        artifact = selection.artifact(recipe)
        model.load(artifact.folder, chosen.backend, recipe, chosen.threads, artifact.facts["max_tokens"])
    pipe._max_tokens = artifact.facts["max_tokens"]
    if not selection.request.own_class:
        pipe._prompts = _lists(model, selection.task.generates, recipe, artifact.facts.get("left_padding", False))
    pipe.report, pipe._served = report, selection.served(recipe)
    return plan.decided(chosen, recipe.name, report.reason)


def _lists(model: GeneratorModel, kind: str, recipe: Recipe, left_padding: bool) -> Prompts | Recordings | None:
    """Give the way in which lists go to a model that generates; without one, each input goes alone."""
    exact = recipe.compute == "f32" and not recipe.activation_group  # others may change with the rows beside
    if kind == SPEECH:
        return Recordings(model, exact) if exact or model.counts else None  # what is not exact is tried, by our steps
    return Prompts(model, left_padding) if exact and model.counts else None


def _signature() -> inspect.Signature:
    """The installed transformers' parameters in their order, then ours."""
    theirs = [p for p in _TRANSFORMERS.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    keywords = [p for p in _TRANSFORMERS.parameters.values() if p.kind is inspect.Parameter.VAR_KEYWORD]
    said = {field.name: field.default for field in fields(options.Options) if field.name == "accuracy"}
    ours = [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=said.get(n)) for n in options.NAMES]
    return inspect.Signature([*theirs, *ours, *keywords])


pipeline.__signature__ = _signature()  # type: ignore[attr-defined]
