"""What a call of `pipeline()` asks for, resolved the way transformers resolves it."""

from __future__ import annotations

import copy
import importlib
import inspect
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub import model_info
from transformers import (
    MODEL_FOR_CTC_MAPPING,
    MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING,
    AutoConfig,
    AutoFeatureExtractor,
    GenerationConfig,
    PreTrainedModel,
)
from transformers.pipelines import check_task, get_task
from transformers.utils.hub import cached_file, is_offline_mode

from fastpipe.artifacts.spec import digest_of, digest_of_file, digest_of_folder, digest_of_model
from fastpipe.pipelines import restored, trust
from fastpipe.pipelines.quiet import quietly
from fastpipe.precision.recipes import SPEECH
from fastpipe.tasks import Task, find_task

logger = logging.getLogger("fastpipe")

# Entries of model_kwargs that only find files or are answered by the plan; any other may change the torch model.
_HARMLESS_MODEL_KWARGS = {
    "cache_dir",
    "subfolder",
    "variant",
    "use_safetensors",
    "low_cpu_mem_usage",
    "local_files_only",
    "force_download",
    "proxies",
    "dtype",
    "torch_dtype",
    "attn_implementation",
}
_PARAMETERS = inspect.signature(transformers.pipeline).parameters
_WHICH_FILES = ("subfolder", "variant", "use_safetensors")


@dataclass(frozen=True, kw_only=True)
class Request:
    """A resolved call.

    Attributes:
        arguments: The arguments for `transformers.pipeline`, with the model and revision filled in.
        task_name: transformers' name of the task, without alias.
        task: What fastpipe knows of it.
        pipeline_class: The class to instantiate.
        own_class: Whether that class is the user's.
        config: The model's config; `None` where only transformers can find it.
        obstacle: Why only torch can run this; empty when there is no such reason.
        restored: The task, where the installed transformers has dropped it.
    """

    arguments: Mapping[str, Any] = field(repr=False)  # a token may be in them
    task_name: str
    task: Task | None
    pipeline_class: type | None
    own_class: bool
    config: Any
    obstacle: str
    restored: restored.Restored | None = None

    @property
    def model_id(self) -> str | None:
        """The model's id or folder; `None` for a model object."""
        model = self.arguments["model"]
        return model if isinstance(model, str) else None

    @property
    def folder(self) -> Path | None:
        """The folder with the model's config and weights, where it is in one."""
        model_kwargs = self.arguments.get("model_kwargs") or {}
        folder = Path(self.model_id or "", model_kwargs.get("subfolder") or "")
        return folder if self.model_id and folder.is_dir() else None

    def file(self, name: str) -> Path | None:
        """Find one of the model's files, in its folder or on the hub; `None` where it has none of this name."""
        found = cached_file(
            self.model_id, name, _raise_exceptions_for_missing_entries=False, **_hub_arguments(self.arguments)
        )
        return Path(found) if found else None

    def saved_in(self, folder: Path) -> Request:
        """Give the request of whoever loads the model from a folder that it was saved in."""
        trusted = {name: value for name, value in self.arguments.items() if name == "trust_remote_code"}
        arguments = {"task": self.arguments["task"], "model": str(folder), **trusted}
        config = _load_config(str(folder), trusted)
        return replace(self, arguments=arguments, config=config, own_class=False)

    def transformers_pipeline(self, **changes: Any) -> Any:
        """Let transformers make the pipeline as the user asked, but for some arguments."""
        arguments = _own(self.arguments, **changes)
        if self.restored:
            arguments |= self.restored.loading(arguments["task"], self.config)
            arguments["pipeline_class"] = arguments.get("pipeline_class") or self.pipeline_class
        with quietly():
            return transformers.pipeline(**arguments)

    def engine_pipeline(self, model: Any, components: Mapping[str, Any], pipeline_class: type | None) -> Any:
        """Let transformers make the pipeline around a model that is on an engine."""
        framework = {"framework": "pt"} if "framework" in _PARAMETERS else {}
        return self.transformers_pipeline(
            model=model,
            config=self.config,
            device="cpu",
            pipeline_class=pipeline_class,
            **framework,
            **components,
        )

    def feature_extractor(self, source: str) -> Any:
        """Load a feature extractor: transformers 5 can do so in `pipeline()` only beside a model that has an id."""
        model_kwargs = dict(self.arguments.get("model_kwargs") or {})
        for name in ("torch_dtype", "dtype"):
            model_kwargs.pop(name, None)
        trusted = self.arguments.get("trust_remote_code")
        return AutoFeatureExtractor.from_pretrained(
            source, trust_remote_code=trusted, **{**model_kwargs, **_hub_arguments(self.arguments)}
        )

    def torch_model(self, **changes: Any) -> Any:
        """Give the torch model: the user's object, or what transformers loads for this request on the CPU."""
        return self.transformers_pipeline(device="cpu", **changes).model if self.model_id else self.arguments["model"]

    def generation_config(self) -> Any:
        """Find how the model generates by default, as transformers finds it."""
        model = self.arguments["model"]
        if not isinstance(model, str):
            return copy.deepcopy(model.generation_config)
        try:
            return GenerationConfig.from_pretrained(model, **_hub_arguments(self.arguments))
        except OSError:  # there is no such file
            return GenerationConfig.from_model_config(self.config)

    def digest_of_weights(self, of_file: Callable[[Path], str] = digest_of_file) -> str:
        """Identify the weights by content or commit; they are read once.

        Args:
            of_file: What hashes a file.

        Raises:
            FileNotFoundError: The model's folder holds no weights.
        """
        if "_digest" not in self.__dict__:
            self.__dict__["_digest"] = self._digested(of_file)
        return str(self.__dict__["_digest"])

    def _digested(self, of_file: Callable[[Path], str]) -> str:
        model = self.arguments["model"]
        if not isinstance(model, str):
            return digest_of_model(model)
        model_kwargs = self.arguments.get("model_kwargs") or {}
        which = {name: model_kwargs[name] for name in _WHICH_FILES if name in model_kwargs}
        if Path(model).is_dir():
            folder = Path(model, model_kwargs.get("subfolder") or "")
            return digest_of([digest_of_folder(folder, all_formats="use_safetensors" in which, of_file=of_file), which])
        return digest_of([model, self.arguments["revision"], which])

    def __getstate__(self) -> dict[str, Any]:
        """Leave tokens out: a pickle is a file, and a token does not belong in one."""
        return {**self.__dict__, "arguments": trust.without_tokens(self.arguments)}


def _own(arguments: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Copy arguments, as transformers writes into `model_kwargs`."""
    own = {**arguments, **changes}
    if own.get("model_kwargs") is not None:
        own["model_kwargs"] = dict(own["model_kwargs"])
    if isinstance(own.get("tokenizer"), tuple):
        own["tokenizer"] = (own["tokenizer"][0], dict(own["tokenizer"][1]))
    return own


def resolve(arguments: Mapping[str, Any]) -> Request:
    """Resolve the arguments of a `transformers.pipeline` call.

    Raises:
        KeyError: There is no such task; transformers' own error.
        OSError: There is no such model; transformers' own error.
        RuntimeError: The task cannot be inferred; transformers' own error.
    """
    arguments = dict(arguments)
    task, model = arguments.get("task"), arguments.get("model")
    if isinstance(model, Path):
        model = arguments["model"] = str(model)
    if model is None and (task is None or arguments.get("tokenizer") or arguments.get("feature_extractor")):
        transformers.pipeline(**_own(arguments))  # it says what is missing
    if model is None:
        model = arguments["model"] = _default_model(str(task), arguments)

    trust.reject_untrusted_generate(arguments)
    config = arguments.get("config")
    if not isinstance(model, str):
        config = getattr(model, "config", None) if config is None or isinstance(config, str) else config
    elif config is None or isinstance(config, str):
        config = _load_config(config or model, arguments)
    custom = getattr(config, "custom_pipelines", None) or {}
    if task is None and not custom:
        if not isinstance(model, str):
            transformers.pipeline(**_own(arguments))  # it says that a task is needed
        task = arguments["task"] = _inferred_task(str(model), arguments.get("token"))
    if task is None or task in custom:
        return _foreign(arguments, str(task or next(iter(custom))), config, "the repository brings its own pipeline")

    dropped = restored.find(task)
    if dropped:
        logger.info("transformers %s has dropped %s: fastpipe restores it", transformers.__version__, dropped.name)
        arguments["task"] = restored.named_by(config, task)
    task_name, implementation = (dropped.name, dropped.pipeline_class) if dropped else _implemented(task)
    own_class = arguments.get("pipeline_class")
    unpinned = False
    if isinstance(model, str) and not Path(model).is_dir():
        commit = _commit(model, arguments)
        unpinned = commit is None
        arguments["revision"] = commit or arguments.get("revision")
    known = find_task(task_name, config)
    return Request(
        arguments=arguments,
        task_name=task_name,
        task=known,
        pipeline_class=own_class or implementation,
        own_class=own_class is not None,
        config=config,
        obstacle="the commit of its weights cannot be found"
        if unpinned
        else _obstacle(arguments, model, config, bool(known and known.generates)) or obstacle_of(known, config),
        restored=dropped,
    )


def _foreign(arguments: dict[str, Any], task_name: str, config: Any, obstacle: str) -> Request:
    return Request(
        arguments=arguments,
        task_name=task_name,
        task=None,
        pipeline_class=arguments.get("pipeline_class"),
        own_class=True,
        config=config,
        obstacle=obstacle,
    )


def _implemented(task: str) -> tuple[str, type]:
    """Find a task's name and class in transformers; 5 names the class by its import path."""
    task_name, targeted, _ = check_task(task)
    implementation = targeted["impl"]
    if isinstance(implementation, str):
        module, _, name = implementation.rpartition(".")
        implementation = getattr(importlib.import_module(module), name)
    return task_name, implementation


def _inferred_task(model: str, token: Any) -> str:
    """Ask the Hub what a model is for; transformers 5 does not pass every answer on."""
    try:
        task = get_task(model, token)
        replaced = task == "image-text-to-text"  # may stand for image-to-text
    except KeyError:  # transformers' own error for a task that it has dropped
        task, replaced = "", True
    if replaced:
        tag = model_info(model, token=token).pipeline_tag
        task = tag if restored.find(tag) else task or get_task(model, token)
    return str(task)


def _default_model(task: str, arguments: dict[str, Any]) -> str:
    """Choose the task's default model as transformers does, and say so as it does."""
    dropped = restored.find(task)
    defaults = dropped.default_model(task) if dropped else check_task(task)[1].get("default", {}).get("model")
    if isinstance(defaults, dict):
        defaults = defaults.get("pt")
    if not isinstance(defaults, tuple):
        transformers.pipeline(**_own(arguments))  # it knows, or says why not
        raise ValueError(f"transformers has no default model for {task}")
    model, revision = defaults
    arguments["revision"] = arguments.get("revision") or revision
    logger.warning("no model was given: using %s at revision %s", model, arguments["revision"])
    return str(model)


def _hub_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    model_kwargs = arguments.get("model_kwargs") or {}
    said = ("revision", "token", "local_files_only")
    found = {name: arguments[name] for name in said if arguments.get(name) is not None}
    return {
        **found,
        **{n: model_kwargs[n] for n in ("cache_dir", "subfolder", "local_files_only") if n in model_kwargs},
    }


def _load_config(source: str, arguments: Mapping[str, Any]) -> Any:
    model_kwargs = copy.copy(arguments.get("model_kwargs") or {})
    for name in ("torch_dtype", "dtype"):
        model_kwargs.pop(name, None)
    try:
        return AutoConfig.from_pretrained(
            source,
            trust_remote_code=arguments.get("trust_remote_code"),
            **{**model_kwargs, **_hub_arguments(arguments)},
        )
    except OSError as error:
        if not is_offline_mode():
            raise
        raise OSError(
            f"the model {source!r} is neither a folder nor in the local cache, and offline mode is on. Download it "
            "once without HF_HUB_OFFLINE, or give the path of a folder."
        ) from error


def _commit(model: str, arguments: Mapping[str, Any]) -> str | None:
    """Find the commit that the config came from, so that all that follows comes from there too."""
    path = cached_file(model, "config.json", _raise_exceptions_for_missing_entries=False, **_hub_arguments(arguments))
    found = re.search(r"snapshots[/\\]([0-9a-f]{40})[/\\]", path or "")
    return found.group(1) if found else None


def _obstacle(arguments: Mapping[str, Any], model: Any, config: Any, generates: bool) -> str:
    """Say why only torch can run this model; nothing when an engine may try."""
    model_kwargs = arguments.get("model_kwargs") or {}
    unusual = sorted(set(model_kwargs) - _HARMLESS_MODEL_KWARGS - set(config.to_dict() if config else ()))
    checks = (
        (arguments.get("framework") == "tf", "framework='tf' asks for TensorFlow"),
        (arguments.get("device_map") is not None, "device_map= spreads the torch model over devices"),
        (bool(unusual), f"model_kwargs {', '.join(unusual)} change how torch loads the model"),
        (not isinstance(model, (str, PreTrainedModel)), f"the model given is a {type(model).__name__}"),
        (config is None, "the model has no config"),
        (arguments.get("assistant_model") is not None, "assistant_model= needs a cache that can be cut back"),
        (getattr(config, "quantization_config", None) is not None, "its weights are already quantized"),
        (bool(getattr(config, "auto_map", None)), "its code comes from its repository"),
        (isinstance(model, str) and _is_adapter(model, arguments), "it is a PEFT adapter"),
        (
            generates and trust.brings_generate(model, _hub_arguments(arguments)),
            "its way of generating comes from its repository",
        ),
    )
    return next((reason for applies, reason in checks if applies), "")


def obstacle_of(task: Task | None, config: Any) -> str:
    """Say why only torch can run a model of this kind for this task."""
    if task is not None and task.generates == SPEECH and type(config) not in MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING:
        return "it writes down speech neither as CTC nor as sequence-to-sequence models do"  # a transducer
    if task is None or task.generates:
        return ""
    # Detectors call themselves so, too, and answer at once all the same.
    if getattr(config, "is_encoder_decoder", False) and task.modality != "image":
        return "it is an encoder-decoder model"
    if task.name == "automatic-speech-recognition" and type(config) not in MODEL_FOR_CTC_MAPPING:
        return "it is no CTC model"
    return ""


def _is_adapter(model: str, arguments: Mapping[str, Any]) -> bool:
    from transformers.utils import find_adapter_config_file, is_peft_available

    if Path(model).is_dir():
        return Path(model, "adapter_config.json").is_file()
    return is_peft_available() and find_adapter_config_file(model, **_hub_arguments(arguments)) is not None
