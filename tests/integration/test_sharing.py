"""Saved pipelines: a folder that transformers and fastpipe load, and that fastpipe builds nothing for."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
import transformers

import fastpipe
from fastpipe.artifacts import build, share
from fastpipe.artifacts.spec import MANIFEST
from fastpipe.artifacts.store import Store
from fastpipe.errors import CacheWarning
from fastpipe.pipelines.generators.selection import GeneratorSelection
from fastpipe.pipelines.request import Request
from fastpipe.precision import gate
from tests.compare import assert_same
from tests.conftest import BACKENDS, ENGINES, V5
from tests.models import Models

TEXTS = ["a small river", "the old mill stands", "", "runs " * 40]
QUICK = "openvino" if V5 else "onnxruntime"


@pytest.fixture
def nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From when it is called, nothing may be exported, quantized, checked, or loaded by torch."""

    def forbid() -> None:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise AssertionError("something is built again")

        for owner, name in (
            (build, "export"),
            (build, "quantize"),
            (gate, "walk"),
            (GeneratorSelection, "_export"),
            (GeneratorSelection, "_quantize"),
            (Request, "torch_model"),
            (transformers.PreTrainedModel, "from_pretrained"),
        ):
            monkeypatch.setattr(owner, name, refuse)

    return forbid


def saved(pipe: Any, folder: Path) -> Path:
    pipe.save_pretrained(folder)
    return folder


def ready(folder: Path) -> list[Path]:
    return sorted((folder / share.FOLDER).glob(f"*/{MANIFEST}"))


@pytest.mark.parametrize("backend", ENGINES)
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_what_is_saved_serves_in_an_empty_cache(
    models: Models, fp: Any, ref: Any, nothing_is_built: Any, empty_cache: Path, tmp_path: Path, backend: str, precision: str
) -> None:
    pipe = fp("text-classification", "seqcls", backend, precision=precision)
    wanted = pipe(TEXTS)
    folder = saved(pipe, tmp_path / "saved")
    theirs = transformers.pipeline("text-classification", model=str(folder), device="cpu")
    assert_same([theirs([text])[0] for text in TEXTS], [ref("text-classification", "seqcls")([t])[0] for t in TEXTS])
    shutil.move(folder, tmp_path / "moved")
    nothing_is_built()
    mine = fastpipe.pipeline("text-classification", model=tmp_path / "moved", backend=backend, precision=precision)
    assert_same(mine(TEXTS), wanted, 1e-5)
    assert (mine.plan.backend, mine.plan.precision) == (backend, precision)


def test_a_check_that_was_passed_is_saved_too(
    models: Models, nothing_is_built: Any, empty_cache: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.delenv("FASTPIPE_PRECISION")
    pipe = fastpipe.pipeline("text-classification", model=models["seqcls"])
    folder = saved(pipe, tmp_path / "saved")
    shutil.rmtree(empty_cache)
    nothing_is_built()
    again = fastpipe.pipeline("text-classification", model=folder)
    assert (again.plan.backend, again.plan.precision) == (pipe.plan.backend, pipe.plan.precision)
    assert again.report.candidates == pipe.report.candidates
    assert "saved" in again.report.reason
    assert_same(again(TEXTS), pipe(TEXTS), 1e-5)
