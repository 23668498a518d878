"""Tasks that transformers 5 dropped: the answers of 4.57, next to both versions."""

from __future__ import annotations

import base64
import json
from functools import cache
from typing import Any

import numpy as np
import pytest

import fastpipe
from tests.compare import assert_same
from tests.golden.cases import CASES, RESULTS
from tests.golden.models import GoldenModels

ANSWERS = json.loads(RESULTS.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> GoldenModels:
    return GoldenModels(tmp_path_factory.mktemp("golden"))


@cache
def made(task: str, **options: Any) -> Any:
    """`fastpipe.pipeline`; those with equal arguments are made once."""
    return fastpipe.pipeline(task, **options)


def assert_golden(got: Any, wanted: Any) -> None:
    """Numbers within 1e-4, text and offsets exactly, images within one step of a byte."""
    if isinstance(wanted, dict) and "bytes" in wanted:
        assert (got["mode"], got["size"]) == (wanted["mode"], wanted["size"])
        bytes_of = [np.frombuffer(base64.b64decode(image["bytes"]), np.uint8).astype(int) for image in (got, wanted)]
        assert abs(bytes_of[0] - bytes_of[1]).max() <= 1
    else:
        assert_same(got, wanted)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", CASES)
def test_the_answers_of_4_57(golden: GoldenModels, name: str) -> None:
    case = CASES[name]
    assert_golden(case.answer(made, golden[case.model], backend="torch"), ANSWERS[name])
