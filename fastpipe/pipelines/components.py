"""What prepares a model's inputs: tokenizer, image processor, feature extractor."""

from __future__ import annotations

import copy
import importlib.util
from typing import Any

from fastpipe.artifacts.spec import digest_of
from fastpipe.errors import ExportError
from fastpipe.pipelines.request import Request

# A tokenizer without a limit says 1e30; no limit that is one comes near this.
_NO_LIMIT = 10**9

# By the argument of `pipeline()`: what a pipeline class says it needs.
_WANTED = {
    "tokenizer": "_load_tokenizer",
    "image_processor": "_load_image_processor",
    "feature_extractor": "_load_feature_extractor",
}


def of(request: Request) -> dict[str, Any]:
    """Say where a pipeline around a model on an engine has its components from.

    transformers looks for them where the model comes from, which an engine's does not say.

    Returns:
        Arguments of `pipeline()`: what the user gave, else the model's id.
    """
    is_text = request.task is None or request.task.modality == "text"
    found: dict[str, Any] = {}
    for name, attribute in _WANTED.items():
        wanted = getattr(request.pipeline_class, attribute, False)  # `None` stands for "if there is one"
        given = request.arguments.get(name)
        if wanted or (name == "tokenizer" and is_text) or (wanted is None and not is_text):
            found[name] = given or request.model_id
    source = found.get("feature_extractor")
    if isinstance(source, str):
        found["feature_extractor"] = request.feature_extractor(source)
    return found


def names(pipe: Any) -> tuple[str, ...]:
    """Identify what a pipeline's components give the model: names of inputs, and what decides their shapes."""
    if pipe.tokenizer is not None and pipe.image_processor is None and pipe.feature_extractor is None:
        return tuple(pipe.tokenizer.model_input_names)
    found: list[str] = []
    for part in (pipe.tokenizer, pipe.image_processor, pipe.feature_extractor):
        if part is not None:
            found += part.model_input_names
            found += [digest_of(part.to_dict())] if hasattr(part, "to_dict") else []
    return tuple(found)


def limit_tokenizer(pipe: Any, limit: int | None) -> None:
    """Let truncation stop at the model's positions where the tokenizer has no limit of its own.

    The user's tokenizer keeps what it has: the pipeline gets a copy.
    """
    if limit is not None and pipe.tokenizer is not None and pipe.tokenizer.model_max_length > _NO_LIMIT:
        pipe.tokenizer = copy.copy(pipe.tokenizer)
        pipe.tokenizer.model_max_length = limit


def reject_language_model(pipe: Any) -> None:
    """Raise where transformers would decode speech with a language model that it loads beside the torch model.

    Raises:
        ExportError: It would.
    """
    processor = getattr(pipe.feature_extractor, "_processor_class", None) or ""
    if processor.endswith("WithLM") and getattr(pipe, "type", "") == "ctc" and importlib.util.find_spec("pyctcdecode"):
        raise ExportError("its transcripts are decoded with a language model, which transformers loads itself")
