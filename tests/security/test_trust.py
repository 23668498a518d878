"""Code of a model's repository runs when the user said `trust_remote_code=True`, and never else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

import fastpipe
from fastpipe.errors import OptionError
from tests.compare import assert_same
from tests.conftest import V5
from tests.media import clips, pictures
from tests.models import Models
from tests.security.repositories import KINDS, Repository, make

_CALLS: dict[str | None, Any] = {
    "question-answering": lambda pipe: pipe(question="Who came?", context="The mill turns, and a small river runs."),
    "text-generation": lambda pipe: pipe("the old mill", max_new_tokens=3, do_sample=False),
    "image-classification": lambda pipe: pipe(pictures()[0]),
    "automatic-speech-recognition": lambda pipe: pipe(clips()[0]),
}


@pytest.fixture
def repository(kind: str, models: Models, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    def refuse(*args: Any) -> str:
        raise EOFError("nobody is there to be asked")

    monkeypatch.setattr("builtins.input", refuse)
    return make(kind, models, tmp_path)


def answer(pipeline: Any, repository: Repository, **how: Any) -> Any:
    pipe = pipeline(repository.task, model=str(repository.folder), **how)
    return _CALLS.get(repository.task, lambda pipe: pipe("a small river"))(pipe)


def outcome(pipeline: Any, repository: Repository, **how: Any) -> Any:
    """What comes of it: an answer, or the kind of an error."""
    try:
        return answer(pipeline, repository, **how)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trusted", [None, False])
def test_code_of_a_repository_does_not_run_unasked(repository: Repository, kind: str, trusted: bool | None) -> None:
    found = outcome(fastpipe.pipeline, repository, trust_remote_code=trusted)
    assert not repository.ran()
    if kind == "a way of generating" and not V5:  # transformers 4 runs it
        assert issubclass(found, ValueError)
    elif kind != "a tokenizer of a restored task" or not V5:
        theirs = outcome(transformers.pipeline, repository, trust_remote_code=trusted, device="cpu")
        assert not repository.ran()
        assert isinstance(found, type) == isinstance(theirs, type), (found, theirs)
        if not isinstance(found, type):
            assert_same(found, theirs)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not V5 or kind != "a tokenizer of a restored task"])
def test_trusted_code_runs_as_in_transformers(repository: Repository, kind: str) -> None:
    theirs = answer(transformers.pipeline, repository, trust_remote_code=True, device="cpu")
    assert repository.ran()
    assert_same(answer(fastpipe.pipeline, repository, trust_remote_code=True), theirs)


def test_a_restored_task_runs_code_that_is_trusted(models: Models, tmp_path: Path) -> None:
    repository = make("a tokenizer of a restored task", models, tmp_path)
    assert answer(fastpipe.pipeline, repository, trust_remote_code=True)["answer"]
    assert repository.mark.exists()


@pytest.mark.parametrize("kind", ["a tokenizer"])
def test_what_was_trusted_is_trusted_where_it_is_saved(repository: Repository, tmp_path: Path) -> None:
    pipe = fastpipe.pipeline(repository.task, model=str(repository.folder), trust_remote_code=True)
    pipe.save_pretrained(tmp_path / "saved")
    again = fastpipe.pipeline(repository.task, model=str(tmp_path / "saved"), trust_remote_code=True)
    assert_same(again("a small river"), pipe("a small river"))


@pytest.mark.parametrize("kind", ["a way of generating"])
@pytest.mark.skipif(V5, reason="transformers 5 leaves the code alone")
def test_what_transformers_4_would_run_unasked_is_said(repository: Repository, models: Models, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"custom_generate.*trust_remote_code=True"):
        fastpipe.pipeline("text-generation", model=repository.folder)
    with pytest.raises(OptionError, match=r"custom_generate"):
        fastpipe.pipeline("text-generation", model=models["gpt2"], assistant_model=str(repository.folder))
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": str(repository.folder)})
    )
    with pytest.raises(OptionError, match=r"custom_generate"):
        fastpipe.pipeline("text-generation", model=str(tmp_path / "adapter"))
    assert not repository.ran()
