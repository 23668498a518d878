"""A model on an engine, with the face of a transformers model."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from transformers.utils import ModelOutput

from fastpipe.artifacts import locks
from fastpipe.backends import registry
from fastpipe.backends.base import Batch, Outputs, Runner, Settings
from fastpipe.errors import ArtifactError, UnsupportedOnEngineError
from fastpipe.pipelines.request import Request
from fastpipe.pipelines.rows import array_of

# Runners that a fork copied: their threads are not in this process, and to end them would wait for those for ever.
_left_to_parents: list[dict[Settings, Runner]] = []
_FIRST_PROCESS = os.getpid()
_TEXT = ("attention_mask", "token_type_ids")  # in the order in which text encoders take them after the main input


class EngineModel:
    """What `pipe.model` is when an engine runs it.

    It pickles as the place of its artifact, copies share the loaded engine, and a forked process loads its own: the
    engine's threads stay behind in the parent.

    Args:
        request: What the user asked for; it has the config, and finds the torch model for what only that can do.
    """

    main_input_name = "input_ids"
    base_model_prefix = "model"
    output_modalities = ("text",)
    training = False
    generation_config = None

    def __init__(self, request: Request) -> None:
        self.config = request.config
        self.device = torch.device("cpu")
        self.dtype = torch.float32
        self.input_modalities = request.task.modality if request.task else "text"
        self._request = request
        self._runners: dict[Settings, Runner] = {}
        self._loaded_by = -1
        self._alternates = False

    def load(
        self, folder: Path, backend: str, settings: Settings, facts: Mapping[str, Any], dtype: torch.dtype
    ) -> None:
        """Load an artifact.

        Args:
            folder: Where its files are.
            backend: Name of the engine.
            settings: How it is loaded.
            facts: What `fastpipe.artifacts.build.export` found out about it.
            dtype: Of the tensors that it answers with.
        """
        self.dtype = dtype
        self._folder = folder
        self._backend = backend
        self._settings = settings
        self.outputs = tuple(facts["outputs"])
        self.main_input_name = facts.get("main_input", "input_ids")
        self._shapes = facts.get("shapes", {})
        self._live()

    def _live(self, settings: Settings | None = None) -> Runner:
        """Give one of this process's runners, loading it when it is not there.

        Raises:
            ArtifactError: It is not loaded, no other is, and its files are gone.
        """
        settings = settings or self._settings
        if self._loaded_by != os.getpid():
            _left_to_parents.append(self._runners)
            self._runners, self._loaded_by = {}, os.getpid()
        runner = self._runners.get(settings)  # another thread may free it now
        if runner is None:
            if not self._folder.is_dir():
                if self._runners:  # it gives the same answers, if on other threads: a cache may be cleared meanwhile
                    return next(iter(self._runners.values()))
                raise ArtifactError(
                    f"the artifact {self._folder} is gone", remedy="Build the pipeline again with fastpipe.pipeline()."
                )
            self._lease = locks.hold(self._folder.parent, self._folder.name)
            self._alternates |= settings == self._settings and bool(self._runners)
            runner = self._runners[settings] = registry.load(self._backend).load(self._folder, settings)
        return runner

    def beside(self, streams: int) -> Callable[[Batch], Outputs] | None:
        """Give what runs a batch while others run on the other streams; it is loaded when first asked for.

        What `run` uses is freed then, and loaded again when it is asked for. Both stay after that.

        Args:
            streams: How many run at once.

        Returns:
            Like `run`; `None` in a forked process, where an engine has no threads for streams.
        """
        if os.getpid() != _FIRST_PROCESS:
            return None
        side_by_side = replace(self._settings, streams=streams)
        runner = self._live(side_by_side)
        # Most processes have either lists or single inputs: one loaded model will do.
        if side_by_side in self._runners and not self._alternates:
            self._runners.pop(self._settings, None)

        def run(batch: Batch) -> Outputs:
            self._check_shapes(batch)
            return self._wanted(runner.run(batch))

        return run

    def unload_streams(self) -> None:
        """Free what `beside` has loaded; it is loaded again when it is asked for."""
        self._runners, self._alternates = {self._settings: self._live()}, False

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the graph's inputs."""
        return (next(iter(self._runners.values()), None) or self._live()).inputs

    @property
    def request(self) -> Request:
        """What the user asked for."""
        return self._request

    @property
    def cache_dir(self) -> Path:
        """The folder of the artifacts."""
        return self._folder.parent

    @property
    def name_or_path(self) -> str:
        """The model's id or folder, as on the torch model."""
        return str(self.config.name_or_path)

    def run(self, batch: Batch) -> Outputs:
        """See `fastpipe.backends.base.Runner`."""
        self._check_shapes(batch)
        return self._wanted(self._live().run(batch))

    def _check_shapes(self, batch: Batch) -> None:
        """Raise where the graph was made, and compared with torch, for rows of other shapes."""
        for name, wanted in self._shapes.items():
            found = np.shape(batch.get(name, ()))[1:]
            if found and (len(found) != len(wanted) or any(w not in (None, f) for f, w in zip(found, wanted))):  # noqa: B905
                raise UnsupportedOnEngineError(
                    f"{name}: the exported model takes {_by(wanted)}, and this is {_by(found)}",
                    remedy="It was exported for what the pipeline's processor gives; use backend='torch' for others.",
                )

    def _wanted(self, outputs: Outputs) -> Outputs:
        return {name: outputs[name] for name in self.outputs}

    def forward(self, *args: torch.Tensor, **inputs: Any) -> ModelOutput:
        """Run the model.

        Args:
            args: The main input, where it has no name.
            inputs: The model's inputs by name, tensors with rows as axis 0: `input_ids`, `attention_mask` and
                `token_type_ids` are int64 (rows, tokens), the latter two all ones and all zeros by default. Beside them
                nothing that changes the result.

        Returns:
            float32 tensors with `rows` as axis 0, by name.

        Raises:
            UnsupportedOnEngineError: An input asks for something the graph does not have.
        """
        tensors = {**dict(zip((self.main_input_name, *_TEXT), args)), **inputs}  # noqa: B905 - as many as were given
        feed = {name: array_of(tensor) for name, tensor in tensors.items() if isinstance(tensor, torch.Tensor)}
        asked = [name for name, value in tensors.items() if name not in feed and value and name != "return_dict"]
        if asked:
            raise UnsupportedOnEngineError(
                f"the exported model has no {', '.join(asked)}", remedy="Use backend='torch' for calls that need it."
            )
        return as_model_output(self.run(feed), self.dtype)

    __call__ = forward

    def can_generate(self) -> bool:
        """Encoders do not generate."""
        return False

    def to(self, device: Any = None, *args: Any, **kwargs: Any) -> EngineModel:
        """Stay: the engine was loaded for its device.

        Raises:
            UnsupportedOnEngineError: Another device or a dtype is asked for.
        """
        if isinstance(device, (str, torch.device)) and torch.device(device).type == self.device.type:
            return self
        raise UnsupportedOnEngineError(
            f"a model on {self._backend} cannot move to {device}",
            remedy="Build another pipeline with device= or dtype=.",
        )

    def eval(self) -> EngineModel:
        """Do nothing: an engine only infers."""
        return self

    def save_pretrained(self, save_directory: str | os.PathLike[str], **kwargs: Any) -> None:
        """Save the torch model, so that transformers and fastpipe both load the folder."""
        from fastpipe.pipelines import saving

        saving.save_weights(self, self._request, save_directory, **kwargs)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UnsupportedOnEngineError(
            f"a model that runs on an engine has no {name!r}",
            remedy="Use backend='torch' to work with the torch model.",
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_runners": {}, "_loaded_by": -1, "_alternates": False, "_lease": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._live()

    def __deepcopy__(self, memo: dict[int, Any]) -> EngineModel:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__, config=copy.deepcopy(self.config, memo))
        return twin

    def __repr__(self) -> str:
        return f"EngineModel({self.name_or_path!r}, {self._backend}, {self._settings.recipe.name})"


def as_model_output(arrays: Mapping[str, np.ndarray[Any, Any]], dtype: torch.dtype) -> ModelOutput:
    """Dress arrays as what a transformers model returns: tensors by name, by attribute and by position."""
    output = ModelOutput()
    for name, values in arrays.items():
        output[name] = torch.from_numpy(values).to(dtype)
    return output


def _by(lengths: Sequence[int | None]) -> str:
    return " x ".join("any" if length is None else str(length) for length in lengths)
