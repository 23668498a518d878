"""Tokens stay in the process, and what is kept is kept for its user alone."""

from __future__ import annotations

import dataclasses
import logging
import os
import pickle
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fastpipe
from fastpipe.artifacts import build, locks
from fastpipe.artifacts.store import Store
from fastpipe.errors import CacheWarning, ExportError
from fastpipe.pipelines import request as requests
from tests.conftest import V5
from tests.models import Models

TOKEN = "hf_" + "Secret" * 6
QUICK = "openvino" if V5 else "onnxruntime"


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Whatever is made is everybody's, unless its maker says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


def nowhere(*places: Any) -> None:
    for place in places:
        files = [p for p in place.rglob("*") if p.is_file()] if isinstance(place, Path) else []
        for text in [p.read_bytes() for p in files] or [place if isinstance(place, bytes) else str(place).encode()]:
            assert TOKEN.encode() not in text, place


def chain(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error) + str(error.__dict__)


def test_a_token_stays_in_the_process(
    models: Models, empty_cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("fastpipe", "transformers", "huggingface_hub", "optimum"):
        caplog.set_level(logging.DEBUG, name)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], token=TOKEN)
        assert pipe("a small river")
        pipe.save_pretrained(tmp_path / "saved")
    request = pipe._request or pipe.model.request
    assert TOKEN in repr(request.arguments)  # it is needed where the torch model is loaded later
    nowhere(
        *map(repr, (pipe.plan, pipe.report, request, pipe.model, pipe.tokenizer)),
        *map(str, (pipe.plan, pipe.report, pipe, [str(warning.message) for warning in said])),
        *(pickle.dumps(part) for part in (pipe, request, pipe.model, pipe.report)),
        *(empty_cache, tmp_path / "saved"),
        *(caplog.text, *capfd.readouterr()),
    )


def test_failures_tell_no_token(
    models: Models,
    empty_cache: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    failures = [
        lambda: fastpipe.pipeline("text-classification", model="nobody/nothing", token=TOKEN),
        lambda: fastpipe.pipeline("text-classification", model=models["seqcls"], token=TOKEN, bakend="torch"),
        lambda: fastpipe.pipeline("text-classification", model=models["seqcls"], model_kwargs={"token": TOKEN}),
        lambda: fastpipe.pipeline("no-such-task", model=models["seqcls"], token=TOKEN),
        lambda: fastpipe.pipeline("text-classification", model=str(tmp_path), token=TOKEN),
    ]
    for fail in failures:
        with pytest.raises((OSError, KeyError, ValueError, TypeError)) as caught:
            fail()
        nowhere(chain(caught.value))

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise ExportError("no engine takes it")

    monkeypatch.setattr(build, "export", refuse)
    pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], token=TOKEN)
    assert pipe.plan.backend == "torch"
    nowhere(pipe.plan, repr(pipe._request), pickle.dumps(pipe), caplog.text, empty_cache)


def test_tokens_within_arguments_stay_too(models: Models) -> None:
    said = {"task": "text-classification", "model": models["seqcls"], "token": TOKEN}
    request = dataclasses.replace(
        requests.resolve(said),
        arguments={**said, "model_kwargs": {"use_auth_token": TOKEN}, "tokenizer": ("t", {"token": TOKEN, "a": 1})},
    )
    nowhere(pickle.dumps(request), repr(request))
    again = pickle.loads(pickle.dumps(request))
    assert again.arguments["model"] == said["model"]
    assert again.arguments["tokenizer"] == ("t", {"token": None, "a": 1})


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
@pytest.mark.usefixtures("open_umask")
def test_the_cache_is_private_whatever_the_umask(models: Models, tmp_path: Path) -> None:
    cache = tmp_path / "home" / "of" / "cache"
    pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], backend=QUICK, cache_dir=cache)
    assert pipe("a small river")
    made = [cache.parent.parent, cache.parent, cache, *cache.rglob("*")]
    assert {path.name for path in made} >= {locks.FOLDER, "manifest.json"}
    for path in made:
        mode = path.stat().st_mode & 0o777
        assert not mode & (0o077 if path.is_dir() else 0o022), (path, oct(mode))


@pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")
@pytest.mark.usefixtures("open_umask")
def test_a_temporary_cache_is_private_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(CacheWarning):
        place = Store(tmp_path / "file" / "cache")._writable().root
    assert place.stat().st_mode & 0o777 == 0o700
