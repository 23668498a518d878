"""The classes that come under a task's own pipeline class, and put our call path where transformers has its own."""

from __future__ import annotations

import inspect
import os
import types
from collections.abc import Mapping
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any

import torch
from transformers.pipelines.base import ChunkPipeline, Pipeline

from fastpipe import progress
from fastpipe.errors import OptionError
from fastpipe.pipelines import saving
from fastpipe.pipelines.call import Batching, Call
from fastpipe.pipelines.generators.batches import Prompts
from fastpipe.pipelines.generators.recordings import Recordings
from fastpipe.pipelines.generators.streams import in_windows
from fastpipe.pipelines.inputs import check_length
from fastpipe.pipelines.quiet import quietly
from fastpipe.pipelines.request import Request
from fastpipe.pipelines.standin import collected_here, stand_in_for
from fastpipe.pipelines.windows import Results, lazily, whole
from fastpipe.plan import Plan
from fastpipe.precision.report import Report

_ITERATED = (torch.utils.data.Dataset, types.GeneratorType)


class FastRuntime(Pipeline):
    """Comes after a task's own pipeline class in the method order, and before `Pipeline`."""

    plan: Plan
    report: Report
    _request: Request | None = None
    _cache_dir: Path | None = None
    _batching: Batching | None = None
    _max_tokens: int | None = None
    _prompts: Prompts | Recordings | None = None
    _served: saving.Served | None = None

    @property
    def model(self) -> Any:
        """The model: a torch model, or an `EngineModel`."""
        return stand_in_for(self) or self.__dict__["model"]

    @model.setter
    def model(self, model: Any) -> None:
        self.__dict__["model"] = model
        self._batching = self._max_tokens = self._prompts = self._served = None  # they described the model before

    def __call__(
        self,
        inputs: Any,
        *args: Any,
        num_workers: Any = None,
        batch_size: Any = None,
        progress_bar: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Process one input, a list, a generator or a Dataset.

        Args:
            inputs: As for the task's own class in transformers.
            args: Ignored, as in transformers.
            num_workers: Accepted; rows are prepared in the calling thread.
            batch_size: Upper bound of rows in one batch. Results do not depend on it.
            progress_bar: Whether a bar shows how far a list, generator or Dataset is, where its rows are batched.
                Default: `FASTPIPE_PROGRESS`, else no.
            kwargs: The task's own parameters.

        Returns:
            One result; a list of them for a list; an iterator for a generator or Dataset, which is read at most
            `FIRST_WINDOW` (or `batch_size`) inputs ahead at first, and `LARGEST_WINDOW` after a while. It is read in
            the calling thread, while the engine works on what was read before. A model that generates begins with one
            input, and then takes two batches at once.

        Raises:
            InputError: An input cannot be processed; it names its index.
            OptionError: `batch_size` is not a positive number, or `FASTPIPE_PROGRESS` neither on nor off.
        """
        rows = _positive(self._batch_size if batch_size is None else batch_size)
        if isinstance(inputs, list) and not inputs:
            return []
        if self._batching is None:
            rows = 1 if _padding_is_heard(self.feature_extractor) else rows
            with quietly():
                prompts, iterated = self._prompts if rows != 1 else None, isinstance(inputs, _ITERATED)
                if prompts is not None and not iterated:
                    single = not isinstance(inputs, list)
                    items = [inputs] if single else inputs
                    indices = [None] if single else range(len(items))
                    made = prompts.together(self, items, indices, rows, self._parameters(kwargs))
                    if made is not None:
                        return made[0] if single else made
                if prompts is not None and iterated:
                    theirs = super().__call__(inputs, *args, num_workers=num_workers, batch_size=1, **kwargs)
                    return in_windows(self, prompts, theirs, rows, progress_bar)
                return super().__call__(inputs, *args, num_workers=num_workers, batch_size=rows, **kwargs)

        call = Call(self, self._batching, *self._parameters(kwargs), batch_size=rows)
        if (rows_so_far := collected_here()) is not None:
            items = inputs if isinstance(inputs, list) else [inputs]
            rows_so_far += call.rows(items)
            return [None] * len(items)
        self.call_count += 1
        if isinstance(inputs, list):
            with progress.bar(len(inputs), progress_bar) as bar:
                call.done = bar.update
                return whole(call, inputs)
        if isinstance(inputs, _ITERATED):
            total = len(inputs) if hasattr(inputs, "__len__") else None
            return Results(partial(lazily, call), inputs, progress.bar(total, progress_bar))
        return call.one(inputs)

    def _parameters(self, said: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Give the parameters of `preprocess`, `_forward` and `postprocess` for a call with these arguments."""
        own = (self._preprocess_params, self._forward_params, self._postprocess_params)
        return tuple({**a, **b} for a, b in zip(own, self._sanitize_parameters(**said), strict=True))

    def get_iterator(self, inputs: Any, num_workers: Any, batch_size: Any, *parameters: dict[str, Any]) -> Any:
        """Give transformers' own iterator, which remembers what it is made of."""
        theirs = super().get_iterator(inputs, num_workers, batch_size, *parameters)
        theirs.made_of = inputs, num_workers, parameters
        return theirs

    def forward(self, model_inputs: Any, **forward_params: Any) -> Any:
        """Run one batch of `preprocess` outputs through the model.

        Raises:
            InputTooLongError: There are more tokens than the model has positions.
        """
        if self._max_tokens is not None and isinstance(model_inputs, Mapping):
            ids = model_inputs.get("input_ids")
            if isinstance(ids, torch.Tensor):
                check_length(ids.shape[-1], self._max_tokens, None)
        return super().forward(model_inputs, **forward_params)

    def save_pretrained(self, save_directory: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """Save the pipeline into a folder that `transformers.pipeline` and `fastpipe.pipeline` load.

        What an engine was loaded from is put beside the torch model, so that fastpipe builds nothing there.

        Args:
            save_directory: The folder; it is made where it is not there.
            args: As for transformers' own.
            kwargs: As for transformers' own.
        """
        super().save_pretrained(save_directory, *args, **kwargs)
        if os.path.isdir(save_directory):
            saving.add_ready_files(self, Path(save_directory))

    def _upload_modified_files(
        self,
        working_dir: str,
        repo_id: str,
        files_timestamps: Mapping[str, float],
        commit_message: str | None = None,
        token: Any = None,
        create_pr: bool = False,
        revision: str | None = None,
        commit_description: str | None = None,
    ) -> Any:
        """End `push_to_hub`: transformers' own leaves out what is in folders of folders."""
        names = [
            path.name
            for path in Path(working_dir).iterdir()
            if path.is_dir() or path.stat().st_mtime > files_timestamps.get(path.name, 0.0)
        ]
        return saving.upload(
            working_dir,
            repo_id,
            names,
            revision=revision,
            token=token,
            commit_message=commit_message or f"Upload {type(self).__name__}",
            commit_description=commit_description,
            create_pr=create_pr,
        )


# They differ between versions of transformers.
FastRuntime.save_pretrained.__signature__ = inspect.signature(Pipeline.save_pretrained)  # type: ignore[attr-defined]


def _positive(batch_size: Any) -> int | None:
    """Check a batch size; `None` stands for no bound."""
    if batch_size is None or (isinstance(batch_size, Integral) and int(batch_size) > 0):
        return batch_size if batch_size is None else int(batch_size)
    raise OptionError(f"batch_size={batch_size!r} is not a positive whole number", remedy="Leave it out, or use 1.")


def _padding_is_heard(feature_extractor: Any) -> bool:
    """Tell whether a model hears the silence that a waveform is padded with.

    Models that take no attention mask (wav2vec2 with group norm) transcribe a padded waveform differently. Whisper
    takes none either, but always hears the same number of frames.
    """
    masked = getattr(feature_extractor, "return_attention_mask", True)
    return masked is False and not hasattr(feature_extractor, "nb_max_frames")


class FastChunkRuntime(FastRuntime, ChunkPipeline):
    """The same for tasks whose `preprocess` gives several rows for one input."""
