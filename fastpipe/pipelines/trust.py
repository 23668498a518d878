"""What must not leave a process, and what must not run in it unless the user said so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import transformers
from transformers.utils.hub import cached_file

from fastpipe.artifacts import records
from fastpipe.errors import OptionError

_TOKENS = ("token", "use_auth_token")
# Code of a repository that takes the place of `generate`. transformers 4 runs it unasked where it is in a folder.
_GENERATE = "custom_generate/generate.py"
_RUNS_UNASKED = transformers.__version__.startswith("4.")


def without_tokens(value: Any) -> Any:
    """Copy arguments without tokens, and those in them: of `model_kwargs`, of a tokenizer given with its arguments."""
    if isinstance(value, dict):
        return {name: None if name in _TOKENS else without_tokens(inner) for name, inner in value.items()}
    return tuple(map(without_tokens, value)) if type(value) is tuple else value


def brings_generate(model: Any, hub_arguments: Mapping[str, Any]) -> bool:
    """Tell whether a model's repository has code of its own to generate with."""
    if not isinstance(model, str):
        return False
    return cached_file(model, _GENERATE, _raise_exceptions_for_missing_entries=False, **hub_arguments) is not None


def _named(arguments: Mapping[str, Any]) -> Iterator[str | Path]:
    """Give the models that arguments name, and the one that an adapter in a folder is for."""
    for model in (arguments.get("model"), arguments.get("assistant_model")):
        if isinstance(model, (str, Path)):
            yield model
            with contextlib.suppress(OSError, ValueError):
                base = records.read(Path(model, "adapter_config.json")).get("base_model_name_or_path")
                if isinstance(base, str):
                    yield base


def reject_untrusted_generate(arguments: Mapping[str, Any]) -> None:
    """Refuse a folder whose code the installed transformers would run without being told to.

    Args:
        arguments: Of `pipeline()`.

    Raises:
        OptionError: It is one.
    """
    if not _RUNS_UNASKED or arguments.get("trust_remote_code"):
        return
    subfolder = (arguments.get("model_kwargs") or {}).get("subfolder") or ""
    for model in _named(arguments):
        if any(Path(model, inner, _GENERATE).exists() for inner in ("", subfolder)):
            raise OptionError(
                f"the folder {str(model)!r} brings code of its own to generate with, {_GENERATE}",
                remedy="Pass trust_remote_code=True to run it, or remove that file.",
            )
