"""A generator on an engine, with the face of a transformers model."""

from __future__ import annotations

import contextlib
import copy
import os
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationMixin

from fastpipe.artifacts import locks
from fastpipe.backends import generators, word_times
from fastpipe.errors import ArtifactError, UnsupportedOnEngineError
from fastpipe.pipelines.request import Request
from fastpipe.precision.recipes import Recipe

# Engines that a fork copied: to end them would wait for threads that are not in this process.
_left_to_parents: list[Any] = []
_TIMES = "return_token_timestamps"
# What only torch tells beside the times of words: all that went on inside.
_INSIDE = ("return_dict_in_generate", "output_attentions", "output_hidden_states", "output_logits")


class GeneratorModel:
    """What `pipe.model` is when an engine generates.

    Every generation has a state of its own, so that many threads may generate at once over one set of weights. It
    pickles as the place of its artifact; a forked process loads its own engine.

    Args:
        request: What the user asked for; it finds the torch model for what only that can do.
        kind: One of the kinds of `fastpipe.backends.generators`.
    """

    training = False
    _prepare_generation_config = GenerationMixin._prepare_generation_config  # asked for before anything is loaded

    def __init__(self, request: Request, kind: str) -> None:
        self.request, self.kind = request, kind
        self.config = request.config
        self.generation_config = request.generation_config()
        self.device = torch.device("cpu")
        self.dtype = torch.float32
        self._live: tuple[int, Any] = (-1, None)
        self._idle: deque[Any] = deque()
        self._torch: Any = None
        self._attend: word_times.Attend | None = None

    def load(self, folder: Path, backend: str, recipe: Recipe, threads: int, limit: int | None) -> None:
        """Load an artifact.

        Args:
            folder: Where its files are.
            backend: Name of the engine.
            recipe: How it computes.
            threads: CPU threads.
            limit: Tokens that the decoder has positions for.
        """
        self.folder, self._how = folder, (backend, recipe, threads, limit)
        self.engine  # noqa: B018  loaded now, so that what fails, fails here

    @property
    def engine(self) -> Any:
        """This process's model of the engine's own class.

        Raises:
            ArtifactError: It is not loaded, and its files are gone.
        """
        loaded_by, model = self._live
        if loaded_by == os.getpid():
            return model
        if not self.folder.is_dir():
            raise ArtifactError(
                f"the artifact {self.folder} is gone", remedy="Build the pipeline again with fastpipe.pipeline()."
            )
        self._lease = locks.hold(self.folder.parent, self.folder.name)
        backend, recipe, threads, limit = self._how
        model = self._engine(backend).load(self.folder, self.kind, recipe, threads, self.config, self.generation_config)
        model.limit = limit
        _left_to_parents.append((self._live, self._idle))
        self._live, self._idle = (os.getpid(), model), deque()
        return model

    @property
    def counts(self) -> bool:
        """Whether generations of several rows tell where each ends."""
        return bool(getattr(self.engine, "is_lean", False))

    @staticmethod
    def _engine(backend: str) -> generators.Generators:
        found = generators.load(backend)
        assert found is not None
        return found

    @contextlib.contextmanager
    def lent(self) -> Iterator[Any]:
        """Lend a model over the same weights to one generation."""
        engine, idle = self.engine, self._idle
        try:
            twin = idle.pop()
        except IndexError:
            twin = self._engine(self._how[0]).twin(engine)
        twin.generation_config = self.generation_config  # users change it in place, or put another there
        try:
            yield twin
        finally:
            idle.append(twin)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generate, with transformers' own arguments and results.

        Raises:
            InputTooLongError: The text outgrows the model's positions.
            UnsupportedOnEngineError: `assistant_model` is given.
        """
        if kwargs.get("assistant_model") is not None:
            raise UnsupportedOnEngineError(
                "assisted decoding takes back tokens, and the cache of a model on an engine cannot be cut",
                remedy="Use backend='torch' with assistant_model=, or leave it out.",
            )
        with self.lent() as twin:
            if not kwargs.get(_TIMES):
                return twin.generate(*args, **kwargs)
            if any(kwargs.get(name) for name in _INSIDE) or not isinstance(twin, word_times.WordTimes):
                return self.torch_model.generate(*args, **{"generation_config": self.generation_config, **kwargs})
            self._attend = self._attend or word_times.attention_of(self.torch_model)
            with twin.attending(self._attend):
                return twin.generate(*args, **kwargs)

    def whole_config(self, arguments: dict[str, Any], default: Any) -> tuple[Any, dict[str, Any]]:
        """Give the config of a generation with what the arguments change, and the arguments that are not in it.

        Args:
            arguments: Of `generate`.
            default: The config where they name none.
        """
        with self.lent() as twin:
            config, others = twin._prepare_generation_config(**{"generation_config": default, **arguments})
        return config, others

    def plain_config(self, arguments: dict[str, Any], default: Any) -> Any:
        """Give the config of a generation whose every token depends on nothing but the model's own logits.

        Args:
            arguments: Of `generate`.
            default: The config where they name none.

        Returns:
            The whole config; `None` where there is chance, a search, or a processor that reads the tokens so far.
        """
        config, others = self.whole_config(arguments, default)
        with self.lent() as twin:
            plain = not (config.do_sample or config.num_beams > 1 or config.num_return_sequences > 1 or others)
            processors = plain and twin._get_logits_processor(
                generation_config=config,
                input_ids_seq_length=1,
                encoder_input_ids=torch.zeros(1, 1, dtype=torch.int64),
                prefix_allowed_tokens_fn=None,
                logits_processor=[],
            )
        return config if plain and not processors and not config.stop_strings else None

    def generate_rows(self, **arguments: Any) -> tuple[torch.Tensor, list[int]]:
        """Generate from prompts padded at the left: their tokens, and the place where each row's own end."""
        with self.lent() as twin:
            found = twin.generate(**arguments)
            if twin.lengths is None:  # by transformers' own loop, which does not count
                raise UnsupportedOnEngineError(
                    "this decoder does not take several prompts at once", remedy="batch_size=1."
                )
            return found, twin.lengths

    @property
    def torch_model(self) -> Any:
        """The torch model, for what the graphs cannot tell; loaded when first asked for."""
        if self._torch is None:
            self._torch = self.request.torch_model().eval()
        return self._torch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one step, as a transformers model does."""
        with self.lent() as twin:
            return twin(*args, **kwargs)

    forward = __call__

    def can_generate(self) -> bool:
        """Tell that it does."""
        return True

    @property
    def cache_dir(self) -> Path:
        """The folder of the artifacts."""
        return self.folder.parent

    @property
    def name_or_path(self) -> str:
        """The model's id or folder, as on the torch model."""
        return str(self.config.name_or_path)

    def to(self, device: Any = None, *args: Any, **kwargs: Any) -> GeneratorModel:
        """Stay: the engine was loaded for its device.

        Raises:
            UnsupportedOnEngineError: Another device or a dtype is asked for.
        """
        if isinstance(device, (str, torch.device)) and torch.device(device).type == self.device.type:
            return self
        raise UnsupportedOnEngineError(
            f"a model on {self._how[0]} cannot move to {device}",
            remedy="Build another pipeline with device= or dtype=.",
        )

    def eval(self) -> GeneratorModel:
        """Do nothing: an engine only infers."""
        return self

    def save_pretrained(self, save_directory: str | os.PathLike[str], **kwargs: Any) -> None:
        """Save the torch model, so that transformers and fastpipe both load the folder."""
        from fastpipe.pipelines import saving

        saving.save_weights(self, self.request, save_directory, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "folder" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.engine, name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_live": (-1, None), "_idle": deque(), "_torch": None, "_attend": None, "_lease": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> GeneratorModel:
        twin = object.__new__(type(self))
        twin.__dict__.update(
            self.__dict__,
            config=copy.deepcopy(self.config, memo),
            generation_config=copy.deepcopy(self.generation_config, memo),
        )
        return twin

    def __repr__(self) -> str:
        return f"GeneratorModel({self.name_or_path!r}, {self._how[0]}, {self._how[1].name})"
