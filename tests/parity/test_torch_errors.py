"""What cannot be answered on torch either fails as it does in transformers, or says more."""

from __future__ import annotations

import importlib.util

import pytest
import transformers
from transformers.pipelines import PIPELINE_REGISTRY

import fastpipe
from fastpipe.errors import InputTooLongError
from tests import media
from tests.torch_models import TorchModels, both

PICTURE = media.pictures()[0].convert("RGB")


def test_labels_with_more_words_than_the_model_has_positions(torch_models: TorchModels) -> None:
    pipe, reference = both(torch_models, "zero-shot-object-detection", "owlvit")
    labels = ["a river and a mill " * 9]
    with pytest.raises(RuntimeError, match="16"):
        reference(PICTURE, candidate_labels=labels)
    with pytest.raises(InputTooLongError, match="> 16"):
        pipe(PICTURE, candidate_labels=labels)


@pytest.mark.parametrize(
    ("task", "model", "library"),
    [("video-classification", "videomae", "av"), ("any-to-any", "llava", "torchvision")],
)
def test_a_library_that_is_missing_is_named_as_by_transformers(
    torch_models: TorchModels, task: str, model: str, library: str
) -> None:
    if task not in PIPELINE_REGISTRY.supported_tasks or importlib.util.find_spec(library):
        pytest.skip(f"transformers {transformers.__version__} has no {task}, or {library} is here")
    with pytest.raises(ImportError) as theirs:
        transformers.pipeline(task, model=torch_models[model], device="cpu")
    with pytest.raises(ImportError) as ours:
        fastpipe.pipeline(task, model=torch_models[model])
    assert str(ours.value).replace("Fast", "") == str(theirs.value)


@pytest.mark.skipif(importlib.util.find_spec("pytesseract") is not None, reason="it reads them here")
def test_documents_without_their_words_fail_as_in_transformers(torch_models: TorchModels) -> None:
    for pipe in both(torch_models, "document-question-answering", "layoutlm"):
        with pytest.raises(ValueError, match="pytesseract is not available"):
            pipe(image=PICTURE, question="Who?")
