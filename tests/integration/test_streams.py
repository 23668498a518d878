"""Lists in streams: the answers of one at a time, errors by name, and engines that are loaded only when needed."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fastpipe
from fastpipe.batching.cost import USUAL
from fastpipe.errors import InputError
from fastpipe.precision.sample import TEXTS
from tests.compare import assert_same
from tests.conftest import ENGINES
from tests.models import Models

Make = Callable[..., Any]
every_engine = pytest.mark.parametrize("backend", ENGINES)
TASKS = [("text-classification", "seqcls"), ("feature-extraction", "feat"), ("token-classification", "ner")]
OPTIONS = {"text-classification": {"truncation": True}, "feature-extraction": {"truncation": True}}


@pytest.fixture
def streaming(models: Models) -> Iterator[Callable[..., Any]]:
    """A pipeline that was told to use two streams, whatever is faster here."""

    def make(task: str, name: str, backend: str) -> Any:
        pipe = fastpipe.pipeline(task, model=models[name], backend=backend)
        pipe._batching = replace(pipe._batching, streams=2)
        return pipe

    return make


@pytest.mark.parametrize(("task", "name"), TASKS)
@every_engine
def test_the_answers_of_one_at_a_time(streaming: Make, backend: str, task: str, name: str) -> None:
    pipe, options = streaming(task, name, backend), OPTIONS.get(task, {})
    asked = []
    beside = pipe.model.beside
    pipe.model.beside = lambda streams: asked.append(streams) or beside(streams)
    texts = [*TEXTS[:40], "", TEXTS[0]]
    assert_same(pipe(texts, batch_size=4, **options), [pipe([text], **options)[0] for text in texts])
    assert asked == [2]
    assert_same(list(pipe((t for t in texts), batch_size=20, **options)), [pipe([t], **options)[0] for t in texts])


@every_engine
def test_few_batches_have_all_threads(streaming: Make, backend: str) -> None:
    pipe = streaming("text-classification", "seqcls", backend)
    pipe.model.beside = lambda streams: pytest.fail("three batches do not fill two streams twice")
    assert len(pipe(["one", "two three", "four five six"], batch_size=1)) == 3


@every_engine
def test_the_item_at_fault_is_named(streaming: Make, backend: str) -> None:
    pipe = streaming("text-classification", "seqcls", backend)
    run = pipe.model.beside(2)

    def failing(batch: Any) -> Any:
        if 1999 in batch["input_ids"]:
            raise RuntimeError("no")
        return run(batch)

    texts = [f"text {i} " * (i % 7) for i in range(30)]
    ids = pipe.tokenizer("zebra")["input_ids"]
    pipe.model.beside = lambda streams: lambda batch: failing({**batch, "input_ids": _marked(batch["input_ids"], ids)})
    with pytest.raises(RuntimeError, match="item 17"):
        pipe([*texts[:17], "zebra", *texts[17:]], batch_size=2)
    del pipe.model.beside
    with pytest.raises(InputError, match="item 30"):
        pipe([*texts, None], batch_size=2)
    assert len(pipe(texts, batch_size=2)) == 30


def _marked(ids: Any, zebra: list[int]) -> Any:
    """Put a token into the row of one text that stands for "the engine fails here"."""
    marked = ids.copy()
    for row in marked:
        if row[: len(zebra)].tolist() == zebra:
            row[0] = 1999
    return marked


@every_engine
def test_a_process_with_only_lists_or_only_single_inputs_has_one_loaded_model(streaming: Make, backend: str) -> None:
    pipe, texts = streaming("text-classification", "seqcls", backend), ["one", "two", "three four", "five six", "a b c"]
    wanted = [pipe([text])[0] for text in texts]
    pipe.model.unload_streams()
    loaded = lambda: sorted(settings.streams for settings in pipe.model._runners)  # noqa: E731
    pipe("one")
    assert loaded() == [1]
    for _ in range(2):
        assert_same(pipe(texts, batch_size=1), wanted)
        assert loaded() == [2]
    for _ in range(2):
        assert_same(pipe("one"), [wanted[0]])
        assert_same(pipe(texts, batch_size=1), wanted)
        assert loaded() == [1, 2], "what is used in turns is not loaded in turns"
    again = pickle.loads(pickle.dumps(pipe))
    assert len(again.model._runners) == 1
    assert_same(again("one"), pipe("one"))


@pytest.mark.parametrize("first", ["single", "list"])
@every_engine
def test_a_pipeline_outlives_its_files(streaming: Make, backend: str, first: str, empty_cache: Path) -> None:
    pipe, texts = streaming("text-classification", "seqcls", backend), ["one", "two", "three four", "five six", "a b c"]
    pipe.model.unload_streams()
    wanted = [pipe([text])[0] for text in texts]
    if first == "list":
        pipe(texts, batch_size=1)
    shutil.rmtree(empty_cache)
    for _ in range(2):
        assert_same(pipe(texts, batch_size=1), wanted)
        assert_same([pipe(text)[0] for text in texts], wanted)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
@every_engine
def test_a_forked_process_does_without(streaming: Make, backend: str) -> None:
    pipe = streaming("text-classification", "seqcls", backend)
    texts = [f"text {i}" for i in range(12)]
    wanted = pipe(texts, batch_size=2)
    child = os.fork()
    if not child:
        code = 1
        try:
            code = int(pipe.model.beside(2) is not None or len(pipe(texts, batch_size=2)) != len(wanted))
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


@every_engine
def test_what_was_measured_is_remembered(models: Models, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fastpipe.pipeline("text-classification", model=models["seqcls"], backend=backend)

    def again(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("measured twice")

    monkeypatch.setattr("fastpipe.pipelines.speed.measure", again)
    monkeypatch.setattr("fastpipe.pipelines.speed.faster", again)
    second = fastpipe.pipeline("text-classification", model=models["seqcls"], backend=backend)
    assert (second._batching.cost, second.plan.streams) == (first._batching.cost, first.plan.streams)
    assert second._batching.cost.bytes_per_token > 0


@every_engine
def test_a_model_that_cannot_be_timed_works(
    models: Models, backend: str, empty_cache: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Exception("no such position")

    monkeypatch.setattr("fastpipe.pipelines.speed.measure", refuse)
    pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], backend=backend)
    assert (pipe._batching.cost, pipe.plan.streams) == (USUAL, 1)
    assert len(pipe(["one", "two"])) == 2
