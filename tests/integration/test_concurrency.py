"""One pipeline, or one tokenizer, in several threads: no error, and nobody gets another caller's result."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import fastpipe
from tests.compare import assert_same
from tests.conftest import BACKENDS, ENGINES

THREADS = 8
TEXTS = [f"{'river mill ' * (i % 23)}text {i % 50}" for i in range(64)]
# Half of the callers cut texts, each at another place; the others pad, or leave the tokenizer as it is.
OPTIONS: list[dict[str, Any]] = [
    {"truncation": True, "max_length": 16},
    {"top_k": None},
    {"truncation": True, "max_length": 24},
    {"padding": "max_length", "max_length": 64, "truncation": True},
    {"truncation": True, "max_length": 32},
    {"function_to_apply": "none"},
    {"truncation": True, "max_length": 16, "top_k": 2},
    {"padding": True},
]


def together(jobs: list[Callable[[], Any]]) -> list[Any]:
    """Run each job in a thread of its own, all starting at once; an error of one is an error here."""
    barrier = threading.Barrier(len(jobs))

    def run(job: Callable[[], Any]) -> Any:
        barrier.wait(30)
        return job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [future.result(timeout=120) for future in [pool.submit(run, job) for job in jobs]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_single_calls_in_threads(fp: Callable[..., Any], backend: str):
    pipe = fp("text-classification", "seqcls", backend)
    wanted = [[pipe(text, **options) for text in TEXTS] for options in OPTIONS]

    def job(number: int) -> list[Any]:
        start = number * 8  # so that threads are at different texts
        order = [*range(start, len(TEXTS)), *range(start)]
        results = {i: pipe(TEXTS[i], **OPTIONS[number]) for i in order}
        return [results[i] for i in range(len(TEXTS))]

    got = together([lambda number=number: job(number) for number in range(THREADS)])
    for mine, theirs in zip(got, wanted, strict=True):
        assert_same(mine, theirs, 1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_lists_generators_and_single_calls_in_threads(fp: Callable[..., Any], models: Any, backend: str):
    made = fp("text-classification", "seqcls", backend)
    wanted = [made([text], truncation=True, max_length=24)[0] for text in TEXTS]
    # A new one, as a first call has more to do than later ones.
    pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], backend=backend)
    options = {"truncation": True, "max_length": 24}

    def by_generator() -> list[Any]:
        return list(pipe((text for text in TEXTS), **options))

    jobs: list[Callable[[], Any]] = [
        lambda size=size: pipe(TEXTS, batch_size=size, **options) for size in (None, 1, 3, 64)
    ]
    jobs += [by_generator, by_generator, lambda: pipe(TEXTS[::-1], **options)[::-1]]
    jobs.append(lambda: [pipe(text, **options)[0] for text in TEXTS])
    for got in together(jobs):
        assert_same(got, wanted, 1e-5)


@pytest.mark.parametrize("backend", ENGINES)
def test_tasks_with_several_rows_for_one_input(fp: Callable[..., Any], backend: str):
    pipe = fp("token-classification", "ner", backend, aggregation_strategy="simple", stride=8)
    texts = [f"Angela {i} lives in Paris. " * (1 + 9 * (i % 4)) for i in range(16)]
    wanted = [pipe(text) for text in texts]

    def job(number: int) -> list[Any]:
        order = texts[number:] + texts[:number]
        results = pipe(order) if number % 2 else [pipe(text) for text in order]
        return results[len(texts) - number :] + results[: len(texts) - number]

    for got in together([lambda number=number: job(number) for number in range(THREADS)]):
        assert_same(got, wanted, 1e-4)


def test_two_pipelines_share_a_tokenizer(models: Any):
    tokenizer = fastpipe.pipeline("text-classification", model=models["seqcls"], backend="torch").tokenizer
    made = {
        backend: fastpipe.pipeline("text-classification", model=models["seqcls"], tokenizer=tokenizer, backend=backend)
        for backend in BACKENDS
    }
    assert all(pipe.tokenizer is tokenizer for pipe in made.values())
    wanted = {backend: [pipe(text, **OPTIONS[0]) for text in TEXTS] for backend, pipe in made.items()}
    padded = {backend: [pipe(text, **OPTIONS[3]) for text in TEXTS] for backend, pipe in made.items()}

    def job(backend: str, options: dict[str, Any]) -> list[Any]:
        return [made[backend](text, **options) for text in TEXTS]

    jobs = [lambda b=backend, o=options: job(b, o) for backend in BACKENDS for options in (OPTIONS[0], OPTIONS[3])]
    got = together(jobs)
    for position, backend in enumerate(BACKENDS):
        assert_same(got[2 * position], wanted[backend], 1e-5)
        assert_same(got[2 * position + 1], padded[backend], 1e-5)


@pytest.mark.parametrize("backend", ENGINES)
def test_an_error_in_one_thread_stays_there(fp: Callable[..., Any], backend: str):
    pipe = fp("text-classification", "seqcls", backend)
    wanted = pipe(TEXTS, truncation=True)

    def failing() -> int:
        errors = 0
        for number in range(20):
            with pytest.raises(ValueError, match="item 1"):
                pipe(["a", None if number % 2 else "word " * 400])
            errors += 1
        return errors

    def working() -> list[Any]:
        for _ in range(2):
            results = pipe(TEXTS, truncation=True)
        return results

    got = together([failing, working] * 3)
    assert got[::2] == [20] * 3
    for results in got[1::2]:
        assert_same(results, wanted, 1e-5)


def test_a_model_left_in_train_mode_drops_nothing_in_any_thread(models: Any):
    model, tokenizer = models.make("seqcls")
    pipe = fastpipe.pipeline("text-classification", model=model, tokenizer=tokenizer, backend="torch")
    wanted = [pipe(text) for text in TEXTS]
    model.train()

    def job(number: int) -> list[Any]:
        order = range(len(TEXTS)) if number % 2 else reversed(range(len(TEXTS)))
        results = {i: pipe(TEXTS[i]) for i in order}
        return [results[i] for i in range(len(TEXTS))]

    for got in together([lambda number=number: job(number) for number in range(4)]):
        assert_same(got, wanted, 1e-5)
    assert model.training
