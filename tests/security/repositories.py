"""Folders of models that bring code of their own, which leaves a mark when it runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.models import Models

# What a repository may bring: each class does what its base does, so that results can be compared.
CODE = """
from pathlib import Path
Path({mark!r}).touch()

import transformers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast, TextClassificationPipeline

class OwnConfig(BertConfig):
    model_type = "own"

class OwnModel(BertForSequenceClassification):
    config_class = OwnConfig

class OwnTokenizer(PreTrainedTokenizerFast):
    pass

class OwnPipeline(TextClassificationPipeline):
    def postprocess(self, *args, **kwargs):
        return {{"own": super().postprocess(*args, **kwargs)}}

Processor = getattr(transformers, "ViTImageProcessorPil", None) or transformers.ViTImageProcessor

class OwnImageProcessor(Processor):
    pass

class OwnFeatureExtractor(transformers.Wav2Vec2FeatureExtractor):
    pass
"""
GENERATE = """
from pathlib import Path
Path({mark!r}).touch()

import torch

def generate(model, input_ids, **kwargs):
    return torch.cat([input_ids, input_ids], dim=1)
"""


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A folder with a model and code.

    Attributes:
        folder: The folder.
        task: What its model is for; `None` to leave that to the folder.
        mark: What is there once the code has run.
    """

    folder: Path
    task: str | None
    mark: Path

    def ran(self) -> bool:
        """Tell whether code of the folder has run since the last time."""
        ran = self.mark.exists()
        self.mark.unlink(missing_ok=True)
        return ran


def _edited(name: str, **changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / name
        values = json.loads(path.read_text("utf-8")) if path.exists() else {}
        path.write_text(json.dumps({**values, **changes}), "utf-8")

    return edit


def _feature_extractor(folder: Path) -> None:
    whole = folder / "processor_config.json"  # of transformers 5, which has no file of its own for it
    if whole.exists():
        values = json.loads(whole.read_text("utf-8"))["feature_extractor"]
        (folder / "preprocessor_config.json").write_text(json.dumps(values), "utf-8")
        whole.unlink()
    _edited(
        "preprocessor_config.json",
        feature_extractor_type="OwnFeatureExtractor",
        auto_map={"AutoFeatureExtractor": "own.OwnFeatureExtractor"},
    )(folder)


_MODEL = {"AutoModelForSequenceClassification": "own.OwnModel"}
_OWN_TASK = {"impl": "own.OwnPipeline", "pt": ["AutoModelForSequenceClassification"]}
_TOKENIZER = _edited(
    "tokenizer_config.json", tokenizer_class="OwnTokenizer", auto_map={"AutoTokenizer": [None, "own.OwnTokenizer"]}
)

# By what brings the code: the task, the tiny model, and what makes its folder hostile.
KINDS: dict[str, tuple[str | None, str, Callable[[Path], None]]] = {
    "a config of its own": (
        "text-classification",
        "seqcls",
        _edited("config.json", model_type="own", auto_map={"AutoConfig": "own.OwnConfig", **_MODEL}),
    ),
    "a model of a known kind": (
        "text-classification",
        "seqcls",
        _edited("config.json", auto_map={"AutoConfig": "own.OwnConfig", **_MODEL}),
    ),
    "a model alone": ("text-classification", "seqcls", _edited("config.json", auto_map=_MODEL)),
    "a tokenizer": ("text-classification", "seqcls", _TOKENIZER),
    "a tokenizer of a restored task": ("question-answering", "qa", _TOKENIZER),
    "a tokenizer of a generator": ("text-generation", "gpt2", _TOKENIZER),
    "a task": ("own-task", "seqcls", _edited("config.json", custom_pipelines={"own-task": _OWN_TASK})),
    "a task, unnamed": (None, "seqcls", _edited("config.json", custom_pipelines={"own-task": _OWN_TASK})),
    "a known task": (
        "text-classification",
        "seqcls",
        _edited("config.json", custom_pipelines={"text-classification": _OWN_TASK}),
    ),
    "an image processor": (
        "image-classification",
        "vit",
        _edited(
            "preprocessor_config.json",
            image_processor_type="OwnImageProcessor",
            auto_map={"AutoImageProcessor": "own.OwnImageProcessor"},
        ),
    ),
    "a feature extractor": (
        "automatic-speech-recognition",
        "wav2vec2",
        _feature_extractor,
    ),
    "a way of generating": ("text-generation", "gpt2", lambda folder: None),
}


def make(kind: str, models: Models, root: Path) -> Repository:
    """Make the folder of one kind."""
    task, name, harm = KINDS[kind]
    folder, mark = models.save(name, root / "".join(filter(str.isalnum, kind))), root / "the code ran"
    harm(folder)
    (folder / "own.py").write_text(CODE.format(mark=str(mark)), "utf-8")
    if kind == "a way of generating":
        (folder / "custom_generate").mkdir()
        (folder / "custom_generate" / "generate.py").write_text(GENERATE.format(mark=str(mark)), "utf-8")
    return Repository(folder=folder, task=task, mark=mark)
