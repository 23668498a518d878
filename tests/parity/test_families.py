"""Encoders of many families: the same answers as transformers', in lists and alone, on every engine that takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests import encoders
from tests.compare import assert_same
from tests.conftest import ENGINES, V5
from tests.parity.test_parity import TEXTS

# The engine's own converter makes a graph of it whose results are no numbers: found out, and torch runs.
WITHOUT = [("modernbert", "openvino")] if V5 else []


@pytest.mark.filterwarnings("ignore::fastpipe.errors.FallbackWarning")
@pytest.mark.parametrize("backend", ENGINES)
@pytest.mark.parametrize("name", encoders.MAKERS)
def test_a_family(fp: Callable[..., Any], ref: Callable[..., Any], name: str, backend: str) -> None:
    pipe, reference = fp("text-classification", name, backend), ref("text-classification", name)
    assert pipe.plan.backend == ("torch" if (name, backend) in WITHOUT else backend)
    options = {"truncation": True, "top_k": None}
    wanted = [reference([text], **options)[0] for text in TEXTS]
    assert_same(pipe(list(TEXTS), **options), wanted, 1e-4)
    assert_same([pipe([text], **options)[0] for text in TEXTS], wanted, 1e-4)
