"""`pipeline()`: the whole story of how a pipeline comes about."""

from __future__ import annotations

import copy
import inspect
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers

from fastpipe import options, plan
from fastpipe._version import __version__
from fastpipe.artifacts import build
from fastpipe.artifacts.spec import ArtifactSpec, digest_of_config
from fastpipe.artifacts.store import Store
from fastpipe.backends import registry
from fastpipe.backends.base import Settings
from fastpipe.backends.torch import TorchRunner, text_inputs, token_limit
from fastpipe.batching.planner import Padding
from fastpipe.errors import ExportError, FallbackWarning
from fastpipe.hardware import Hardware, detect_hardware
from fastpipe.pipelines import request as requests
from fastpipe.pipelines.call import Batching
from fastpipe.pipelines.classes import fast_class
from fastpipe.pipelines.model import EngineModel
from fastpipe.pipelines.request import Request
from fastpipe.precision.recipes import RECIPES, Recipe, compute_type
from fastpipe.tasks import Task

# A tokenizer without a limit says 1e30; no limit that is one comes near this.
_NO_LIMIT = 10**9
_TRANSFORMERS = inspect.signature(transformers.pipeline)


def pipeline(*args: Any, **kwargs: Any) -> Any:
    """Make a pipeline, as `transformers.pipeline` does, that runs on the fastest engine of this machine.

    Args:
        args: As for the installed `transformers.pipeline`, in the same order.
        kwargs: As for the installed `transformers.pipeline`, and these:
            backend: "auto", "openvino", "onnxruntime" or "torch".
            precision: "auto", "fp32", "bf16", "fp16" or "int8"; wins over `dtype`.
            calibration_data: Reserved; giving it raises in this version.
            accuracy: Reserved; giving it raises in this version.
            cache_dir: Folder for built models.

    Returns:
        An instance of the task's own transformers class. `pipe.plan` says what runs and why.

    Raises:
        OptionError: An option is misspelt, has no such value, or cannot be had here.
        DeviceError: The device does not exist here.
        MissingBackendError: The engine named is not installed.
        KeyError, OSError, RuntimeError: As raised by transformers for an unknown task or model.
    """
    own = options.resolve({name: kwargs.pop(name, None) for name in options.NAMES})
    bound = _TRANSFORMERS.bind(*args, **kwargs)
    extra = bound.arguments.pop("kwargs", {})
    options.reject_misspelt(extra)
    arguments = {**bound.arguments, **extra}
    hardware = detect_hardware()
    device, device_warning = plan.place(arguments.get("device"), hardware)
    precision = own.precision or plan.precision_of(_dtype(arguments))

    request = requests.resolve(arguments)
    failed: dict[str, str] = {}
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
        )
        if chosen.backend == "torch" or request.task is None:
            pipe = _on_torch(request, chosen)
            break
        try:
            pipe = _on_engine(request, request.task, chosen, hardware, own)
            break
        except ExportError as error:
            failed[chosen.backend] = str(error)
    for message in filter(None, (device_warning, chosen.warning)):
        warnings.warn(message, FallbackWarning, stacklevel=2)
    pipe.plan = plan.as_run(chosen, pipe.dtype)
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
    if request.own_class or not isinstance(pipe.model, torch.nn.Module) or "input_ids" not in text_inputs(pipe.model):
        return pipe
    pipe._max_tokens = limit = token_limit(pipe.model)
    if request.task:
        pipe._batching = Batching(
            runner=TorchRunner(pipe.model, request.task.outputs),
            per_token=request.task.per_token,
            max_tokens=limit,
            padding=None,
        )
        _limit_tokenizer(pipe, limit)
    return pipe


def _on_engine(request: Request, task: Task, chosen: plan.Plan, hardware: Hardware, own: options.Options) -> Any:
    """Find or build the artifact, load it, and put it where transformers puts the model."""
    backend = registry.load(chosen.backend)
    recipe = RECIPES[chosen.backend, chosen.precision]

    # The pipeline comes first: what its tokenizer gives the model is part of what is built.
    model = EngineModel(request)
    pipe = request.transformers_pipeline(
        model=model,
        config=request.config,
        tokenizer=request.arguments.get("tokenizer") or request.model_id,
        device="cpu",
        pipeline_class=request.pipeline_class if request.own_class else fast_class(request.pipeline_class),
        **({"framework": "pt"} if "framework" in _TRANSFORMERS.parameters else {}),
    )

    def make(folder: Path) -> dict[str, Any]:
        return build.build(
            folder,
            model=request.torch_model(tokenizer=pipe.tokenizer),
            tokenizer=pipe.tokenizer,
            task=task,
            backend=backend,
            recipe=recipe,
            threads=chosen.threads,
        )

    spec = _spec(request, task, backend, recipe, tuple(pipe.tokenizer.model_input_names))
    artifact = Store(own.cache_dir).obtain(spec, make)
    settings = Settings(
        recipe=recipe,
        compute=compute_type(recipe, has_bf16=hardware.has_bf16) or "f32",
        threads=chosen.threads,
        streams=chosen.streams,
    )
    model.load(artifact.folder, chosen.backend, settings, artifact.facts["outputs"])
    if not request.own_class:
        pipe._batching = Batching(
            runner=model,
            per_token=task.per_token,
            max_tokens=artifact.facts["max_tokens"],
            padding=Padding(artifact.facts["padding"]),
        )
    _limit_tokenizer(pipe, artifact.facts["max_tokens"])
    return pipe


def _spec(request: Request, task: Task, backend: Any, recipe: Recipe, inputs: tuple[str, ...]) -> ArtifactSpec:
    libraries = {"torch", "transformers", "nncf", *backend.libraries, *backend.exporters()}
    return ArtifactSpec(
        weights=request.digest_of_weights(),
        config=digest_of_config(request.config),
        architecture=str((request.config.architectures or [""])[0]),
        task=task.export,
        inputs=inputs,
        recipe=recipe.to_dict(),
        versions={"fastpipe": __version__, **{name: registry.version_of(name) for name in sorted(libraries)}},
    )


def _limit_tokenizer(pipe: Any, limit: int | None) -> None:
    """Let truncation stop at the model's positions where the tokenizer has no limit of its own.

    The user's tokenizer keeps what it has: the pipeline gets a copy.
    """
    if limit is not None and pipe.tokenizer is not None and pipe.tokenizer.model_max_length > _NO_LIMIT:
        pipe.tokenizer = copy.copy(pipe.tokenizer)
        pipe.tokenizer.model_max_length = limit


def _signature() -> inspect.Signature:
    """The installed transformers' parameters in their order, then ours."""
    theirs = [p for p in _TRANSFORMERS.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    keywords = [p for p in _TRANSFORMERS.parameters.values() if p.kind is inspect.Parameter.VAR_KEYWORD]
    ours = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in options.NAMES]
    return inspect.Signature([*theirs, *ours, *keywords])


pipeline.__signature__ = _signature()  # type: ignore[attr-defined]
