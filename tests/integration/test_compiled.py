"""What an engine compiled: kept, the same to the last bit, and not needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastpipe
from fastpipe.backends import registry
from tests.compare import assert_same
from tests.conftest import ENGINES
from tests.models import Models

TEXTS = ["a small river", "the old mill stands", "", "runs " * 40]
every_engine = pytest.mark.parametrize("backend", ENGINES)


def outputs(runner: Any, rows: int, tokens: int) -> list[np.ndarray[Any, Any]]:
    ids = np.random.default_rng(0).integers(5, 90, (rows, tokens))
    feed = {name: ids if name == "input_ids" else np.full_like(ids, name == "attention_mask") for name in runner.inputs}
    return [runner.run(feed)[name] for name in runner.outputs]


@every_engine
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_it_gives_the_bits_of_the_graph(
    models: Models, backend: str, precision: str, empty_cache: Path, tmp_path: Path
) -> None:
    pipe = fastpipe.pipeline(
        "text-classification", model=models["seqcls"], backend=backend, precision=precision, accuracy=None
    )
    engine, settings = registry.load(backend), pipe.model._settings
    manifests = [json.loads(path.read_text("utf-8")) for path in pipe.model.cache_dir.glob("*/manifest.json")]
    mine = [one for one in manifests if one["spec"]["backend"] == backend and not one["spec"]["choice"]]
    assert mine
    for graph in [pipe.model.cache_dir / one["key"] for one in mine]:
        made = tmp_path / graph.name
        made.mkdir()
        engine.compile(graph, made, settings)
        one, other = engine.load(graph, settings), engine.load(made, settings)
        assert (one.inputs, one.outputs) == (other.inputs, other.outputs)
        for shape in ((1, 7), (3, 20), (1, 1)):
            for got, wanted in zip(outputs(one, *shape), outputs(other, *shape), strict=True):
                np.testing.assert_array_equal(got, wanted)


@every_engine
def test_a_second_construction_reads_what_was_compiled_alone(
    models: Models, backend: str, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = fastpipe.pipeline("text-classification", model=models["seqcls"], backend=backend)(TEXTS)
    engine = type(registry.load(backend))

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("compiled again")

    monkeypatch.setattr(engine, "compile", refuse)
    pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], backend=backend)
    assert list(pipe.model._folder.glob("compiled.*"))
    assert_same(pipe(TEXTS), wanted)


@every_engine
def test_an_engine_that_cannot_store_it_loads_the_graph(
    models: Models, backend: str, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = type(registry.load(backend))
    monkeypatch.delattr(engine, "compile")
    for _ in range(2):
        pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], backend=backend)
        assert not list(pipe.model._folder.glob("compiled.*"))
        assert len(pipe(TEXTS)) == len(TEXTS)
