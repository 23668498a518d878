"""Tasks that transformers 5 has dropped, with the arguments and results they had in 4.57.

A task that the installed transformers has is left to it. The classes have the names that they had, and are looked up in
transformers first: `from fastpipe.pipelines.restored import QuestionAnsweringPipeline` gives the class to ask
`isinstance` about, next to either version.
"""

from __future__ import annotations

import copy
import importlib
import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import transformers
from transformers import PretrainedConfig
from transformers.pipelines import PIPELINE_REGISTRY

logger = logging.getLogger("fastpipe")


@dataclass(frozen=True, kw_only=True)
class Restored:
    """A dropped task.

    Attributes:
        name: Its name, without alias or languages.
        module: The module here that has its class.
        class_name: The name of that class.
        auto_class: transformers' class that loads its model.
        defaults: Model and revision where none is given, by task.
    """

    name: str
    module: str
    class_name: str
    auto_class: str
    defaults: Mapping[str, tuple[str, str]]

    @property
    def pipeline_class(self) -> type:
        """Its class."""
        return by_name(self.class_name)

    def default_model(self, task: str) -> tuple[str, str]:
        """Give the model and revision that the task as asked for has by default.

        Raises:
            ValueError: It has none.
        """
        found = self.defaults.get(task) or self.defaults.get(self.name)
        if found is None:
            raise ValueError(
                f"{task} has no default model: give model=, or one of the tasks {', '.join(self.defaults)}"
            )
        return found

    def loading(self, task: str, config: Any) -> dict[str, Any]:
        """Give the arguments by which the installed `transformers.pipeline` loads a task that it does not have.

        A repository may bring tasks of its own, in its config. A copy of the config says that this one does; the copy
        ends with the call, and transformers' own list of tasks is left as it is.

        Args:
            task: As asked for.
            config: The model's config.
        """
        config = copy.copy(config) if config is not None else PretrainedConfig()
        own = getattr(config, "custom_pipelines", None) or {}
        config.custom_pipelines = {**own, task: {"impl": self.class_name, "pt": (self.auto_class,)}}
        return {"task": task, "config": config}


_T5 = ("google-t5/t5-base", "a9723ea")
_TASKS = {
    task.name: task
    for task in (
        Restored(
            name="question-answering",
            module="answers",
            class_name="QuestionAnsweringPipeline",
            auto_class="AutoModelForQuestionAnswering",
            defaults={"question-answering": ("distilbert/distilbert-base-cased-distilled-squad", "564e9b5")},
        ),
        Restored(
            name="text2text-generation",
            module="texts",
            class_name="Text2TextGenerationPipeline",
            auto_class="AutoModelForSeq2SeqLM",
            defaults={"text2text-generation": _T5},
        ),
        Restored(
            name="summarization",
            module="texts",
            class_name="SummarizationPipeline",
            auto_class="AutoModelForSeq2SeqLM",
            defaults={"summarization": ("sshleifer/distilbart-cnn-12-6", "a4f8f3e")},
        ),
        Restored(
            name="translation",
            module="texts",
            class_name="TranslationPipeline",
            auto_class="AutoModelForSeq2SeqLM",
            defaults={f"translation_en_to_{language}": _T5 for language in ("fr", "de", "ro")},
        ),
        Restored(
            name="visual-question-answering",
            module="images",
            class_name="VisualQuestionAnsweringPipeline",
            auto_class="AutoModelForVisualQuestionAnswering",
            defaults={"visual-question-answering": ("dandelin/vilt-b32-finetuned-vqa", "d0a1f6a")},
        ),
        Restored(
            name="image-to-text",
            module="images",
            class_name="ImageToTextPipeline",
            auto_class="AutoModelForImageTextToText",
            defaults={"image-to-text": ("ydshieh/vit-gpt2-coco-en", "5bebf1e")},
        ),
        Restored(
            name="image-to-image",
            module="images",
            class_name="ImageToImagePipeline",
            auto_class="AutoModelForImageToImage",
            defaults={"image-to-image": ("caidas/swin2SR-classical-sr-x2-64", "cee1c92")},
        ),
    )
}
_ALIASES = {"vqa": "visual-question-answering"}


def find(task: str) -> Restored | None:
    """Find a task that is restored here: one that 4.57 had, and the installed transformers has not.

    Args:
        task: As asked for: a name, an alias, or `translation_xx_to_yy`.

    Raises:
        KeyError: It is a translation between languages that are not named so.
    """
    name = _ALIASES.get(task, task)
    if name.startswith("translation_"):
        name = "translation"
    if name not in _TASKS or name in PIPELINE_REGISTRY.supported_tasks:
        return None
    parts = task.split("_")
    if name == "translation" and len(parts) > 1 and (len(parts) != 4 or parts[2] != "to"):
        raise KeyError(f"there is no task {task!r}; translations are named as in 'translation_en_to_fr'")
    return _TASKS[name]


def named_by(config: Any, task: str) -> str:
    """Give the translation that a model's config has parameters for, where only "translation" was asked for."""
    if task == "translation":
        for known in getattr(config, "task_specific_params", None) or ():
            if known.startswith("translation"):
                warnings.warn(
                    f'"translation" names no languages: the model knows {known!r}, which is used', UserWarning
                )
                return str(known)
    return task


def by_name(class_name: str) -> type:
    """Give a pipeline class by its name: transformers' own, else the one here.

    Raises:
        AttributeError: There is none.
    """
    found = getattr(transformers, class_name, None)
    if found is None:
        module = next((task.module for task in _TASKS.values() if task.class_name == class_name), None)
        if module is None:
            raise AttributeError(f"neither transformers nor fastpipe has a pipeline class {class_name!r}")
        found = getattr(importlib.import_module(f"{__name__}.{module}"), class_name)
    return found  # type: ignore[no-any-return]


def __getattr__(name: str) -> Any:
    """Find a class of a dropped task by its name."""
    if not name.endswith("Pipeline"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return by_name(name)
