"""What the restored classes share: arguments of 4.57 that newer base classes do not take, and how they generate."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

from transformers import GenerationConfig
from transformers.pipelines.base import Pipeline, load_assistant_model

# Parameters of `preprocess`, `_forward` and `postprocess`.
Steps: TypeAlias = "tuple[dict[str, Any], dict[str, Any], dict[str, Any]]"

# `max_length` of a model that says nothing of it.
_USUAL_LENGTH = 20


class RestoredPipeline(Pipeline):
    """Takes what every pipeline of 4.57 took."""

    framework = "pt"
    modelcard = None
    _load_processor = False
    _load_image_processor = False
    _load_video_processor = False
    _load_feature_extractor = False
    _load_tokenizer = False

    def __init__(self, *args: Any, framework: str | None = "pt", modelcard: Any = None, **kwargs: Any) -> None:
        if framework not in (None, "pt"):
            raise ValueError(f"framework={framework!r}: transformers 5 runs PyTorch models only")
        super().__init__(*args, **kwargs)
        self.modelcard = modelcard


class GeneratingPipeline(RestoredPipeline):
    """Generates with the settings that the model, the task and the user name, in the order that 4.57 took them in.

    Newer base classes have an order of their own, with which the same call would give other texts, so they are not told
    that there is anything to generate.

    Attributes:
        generation_config: The settings of a call that names none; `None` where the model does not generate.
        prefix: What comes before every input.
        assistant_model: A smaller model that drafts, if there is one.
        assistant_tokenizer: Its tokenizer, where it is another.
    """

    _pipeline_calls_generate = False  # as far as the base class is concerned
    _usual: ClassVar[Mapping[str, Any]] = {"max_new_tokens": 256}
    generation_config: GenerationConfig | None = None
    prefix: str | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        model = args[0] if args else kwargs["model"]
        assistant = [kwargs.pop(name, None) for name in ("assistant_model", "assistant_tokenizer")]
        known = vars(GenerationConfig()) if model.can_generate() else ()
        given = {name: kwargs.pop(name) for name in list(kwargs) if name in known and not name.startswith("_")}
        super().__init__(*args, **kwargs)
        self.assistant_model, self.assistant_tokenizer = load_assistant_model(self.model, *assistant)
        if model.can_generate():
            self.generation_config, self.prefix = _settings(self.model, self.task, self.tokenizer, self._usual, given)

    def _generate(self, parameters: dict[str, Any], *args: Any, **inputs: Any) -> Any:
        """Generate, with a call's parameters over the settings, or with the settings that the call brings."""
        if "generation_config" not in parameters:
            settings = copy.deepcopy(self.generation_config)
            parameters = {**settings.update(**parameters), "generation_config": settings}  # type: ignore[union-attr]
        if self.assistant_model is not None:
            parameters["assistant_model"] = self.assistant_model
        if self.assistant_tokenizer is not None:
            parameters |= {"tokenizer": self.tokenizer, "assistant_tokenizer": self.assistant_tokenizer}
        return self.model.generate(*args, **inputs, **parameters)


def said(**parameters: Any) -> dict[str, Any]:
    """Leave out what was not said, so that what was said at construction stays."""
    return {name: value for name, value in parameters.items() if value is not None}


def _settings(
    model: Any, task: str, tokenizer: Any, usual: Mapping[str, Any], given: Mapping[str, Any]
) -> tuple[GenerationConfig, str | None]:
    """Join what is known of how to generate: each of these wins over the ones before.

    The model's own settings, the pipeline's usual ones, the user's, and what the model's config has for the task. The
    usual number of new tokens gives way to a length that the model names.

    Args:
        model: The model.
        task: As asked for, which is how a config knows it.
        tokenizer: It has the padding token, where the model names none.
        usual: The pipeline's settings.
        given: The user's.

    Returns:
        The settings, and the prefix of every input.
    """
    settings = copy.deepcopy(model.generation_config)
    settings.update(**usual)
    settings.update(**given)
    if settings.max_new_tokens == usual["max_new_tokens"] and settings.max_length not in (None, _USUAL_LENGTH):
        settings.max_new_tokens = None
    own = dict((getattr(model.config, "task_specific_params", None) or {}).get(task) or {})
    prefix = own.pop("prefix", getattr(model.config, "prefix", None))
    settings.update(**own)
    if settings.pad_token_id is None and tokenizer is not None:
        settings.pad_token_id = tokenizer.pad_token_id
    return settings, prefix
