"""What batching must not change: results, laziness, order, the caller's own objects."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastpipe
from tests.compare import assert_same
from tests.conftest import BACKENDS, ENGINES
from tests.models import Models

Make = Callable[..., Any]
FIRST_WINDOW, LARGEST_WINDOW = 8, 1024  # as documented: how far ahead of its consumer a generator is read
every_backend = pytest.mark.parametrize("backend", BACKENDS)


# FP-18


@pytest.mark.parametrize("model", ["seqcls", "roberta", "distilbert"])
@every_backend
def test_batches_give_the_results_of_single_texts(fp: Make, ref: Make, backend: str, model: str) -> None:
    """FP-18: every order and batch size of texts between none and the maximum of tokens."""
    # The byte-level tokenizer adds no special tokens, and no model takes a row without any token.
    shortest = "" if model != "roberta" else "a"
    texts = ["short", "a much longer sentence about many different things", shortest, "x " * 100]
    pipe, reference = fp("text-classification", model, backend), ref("text-classification", model)
    options = {"truncation": True, "top_k": None}
    alone = {text: pipe(text, **options) for text in texts}
    for text in texts:
        assert_same(alone[text], reference(text, **options))
    for order in itertools.permutations(texts):
        for batch_size in (1, 2, 3, 4):
            results = pipe(list(order), batch_size=batch_size, **options)
            assert_same(results, [alone[text] for text in order], tolerance=1e-5)


@pytest.mark.parametrize("model", ["seqcls", "roberta", "distilbert"])
@every_backend
def test_every_length_that_a_model_takes(fp: Make, ref: Make, backend: str, model: str) -> None:
    """FP-18: no length is special, from one token to the maximum; none of them was seen at export time."""
    pipe, reference = fp("text-classification", model, backend), ref("text-classification", model)
    longest = pipe.tokenizer.model_max_length
    options = {"add_special_tokens": False, "truncation": True, "top_k": None}
    texts = ["a " * n for n in (1, 2, 3, 5, 8, 13, 31, 32, 33, longest // 2 - 1, longest // 2, longest, 2 * longest)]
    counts = [len(pipe.tokenizer(text, add_special_tokens=False, truncation=True)["input_ids"]) for text in texts]
    assert (counts[0], counts[-1]) == (1 if model != "roberta" else counts[0], longest)
    wanted = [reference(text, **options) for text in texts]
    assert_same([pipe(text, **options) for text in texts], wanted)
    assert_same(pipe(texts, **options), wanted)


@pytest.mark.parametrize("task", ["token-classification", "feature-extraction", "fill-mask"])
@every_backend
@settings(max_examples=15, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lengths=st.lists(st.integers(0, 90), min_size=1, max_size=8),
    batch_size=st.sampled_from([None, 1, 2, 3, 8]),
    seed=st.integers(0, 9),
)
def test_token_results_do_not_depend_on_neighbours(
    fp: Make, backend: str, task: str, lengths: list[int], batch_size: int | None, seed: int
) -> None:
    """FP-18: the same for every task that answers for each token."""
    model = {"token-classification": "ner", "feature-extraction": "feat", "fill-mask": "mlm"}[task]
    pipe = fp(task, model, backend)
    words = random.Random(seed)
    texts = [" ".join(words.choice(("mill", "Oslo", "turns", "no")) for _ in range(length)) for length in lengths]
    if task == "fill-mask":
        texts = [f"{text} [MASK]" for text in [*texts, ""]]  # a list of one is another form there
    if task == "feature-extraction":
        for result, text in zip(pipe(texts, batch_size=batch_size, return_tensors=True), texts, strict=True):
            torch.testing.assert_close(result, pipe(text, return_tensors=True), atol=1e-4, rtol=0)
    else:
        assert_same(pipe(texts, batch_size=batch_size), [pipe(text) for text in texts], tolerance=1e-5)


# FP-19


@pytest.mark.parametrize("batch_size", [None, 1, 2, 4, 64])
@every_backend
def test_an_endless_generator_is_read_no_further_than_documented(
    fp: Make, ref: Make, backend: str, batch_size: int | None
) -> None:
    """FP-19: results come at once, in order, and the source is read at most a window ahead."""
    pulled: list[int] = []

    def source() -> Iterator[str]:
        for number in itertools.count():
            pulled.append(number)
            yield f"text {number % 50}"

    results = iter(fp("text-classification", "seqcls", backend)(source(), batch_size=batch_size))
    assert len(pulled) <= (batch_size or FIRST_WINDOW)
    reference = ref("text-classification", "seqcls")
    first = [next(results) for _ in range(3)]
    assert len(pulled) <= 2 * 3 + (batch_size or FIRST_WINDOW)
    assert_same(first, [reference(f"text {number}")[0] for number in range(3)])
    for taken in range(4, 400):
        next(results)
        ahead = len(pulled) - taken
        assert ahead <= LARGEST_WINDOW
        assert ahead <= taken + (batch_size or FIRST_WINDOW)  # windows grow by what was taken, not at once


class Endless(torch.utils.data.IterableDataset):
    def __init__(self) -> None:
        self.pulled = 0

    def __iter__(self) -> Iterator[str]:
        while True:
            self.pulled += 1
            yield f"text {self.pulled}"


@every_backend
def test_an_endless_dataset_is_read_lazily(fp: Make, ref: Make, backend: str) -> None:
    """FP-19: the same for a Dataset that only iterates."""
    dataset = Endless()
    results = iter(fp("text-classification", "seqcls", backend)(dataset, batch_size=4))
    first = [next(results) for _ in range(5)]
    assert dataset.pulled <= 16
    assert_same(first, [ref("text-classification", "seqcls")(f"text {number}")[0] for number in range(1, 6)])


@pytest.mark.parametrize("task", ["zero-shot-classification", "token-classification"])
@every_backend
def test_tasks_with_several_rows_for_an_input_are_lazy_too(fp: Make, ref: Make, backend: str, task: str) -> None:
    """FP-19: one result for each item, not for each row or batch."""
    model, options = {
        "zero-shot-classification": ("nli", {"candidate_labels": ["sport", "politics", "art"]}),
        "token-classification": ("ner", {}),
    }[task]
    pulled: list[int] = []

    def source() -> Iterator[str]:
        for number in itertools.count():
            pulled.append(number)
            yield f"Anna reads text {number}"

    results = iter(fp(task, model, backend)(source(), batch_size=4, **options))
    first = [next(results) for _ in range(3)]
    assert len(pulled) <= 7
    assert_same(first, [ref(task, model)(f"Anna reads text {number}", **options) for number in range(3)])


@pytest.mark.parametrize("num_workers", [0, 1, 2])
@pytest.mark.parametrize("batch_size", [None, 1, 4])
@every_backend
def test_each_item_of_a_generator_comes_once(
    fp: Make, ref: Make, backend: str, batch_size: int | None, num_workers: int
) -> None:
    """FP-19: workers do not repeat the stream."""
    pipe, reference = fp("text-classification", "seqcls", backend), ref("text-classification", "seqcls")
    texts = [f"text {number}" for number in range(6)]
    results = list(pipe((text for text in texts), batch_size=batch_size, num_workers=num_workers))
    assert_same(results, [reference(text)[0] for text in texts])


class SourceError(Exception):
    pass


@pytest.mark.parametrize("batch_size", [None, 1, 2, 3, 64])
@every_backend
def test_what_came_before_an_error_of_the_source_is_delivered(fp: Make, backend: str, batch_size: int | None) -> None:
    """FP-19: two results, then the source's own exception."""

    def source() -> Iterator[str]:
        yield from ("one", "two")
        raise SourceError("the file ends here")

    results = iter(fp("text-classification", "seqcls", backend)(source(), batch_size=batch_size))
    assert [next(results)["label"] for _ in range(2)]
    with pytest.raises(SourceError, match="the file ends here"):
        next(results)


@pytest.mark.parametrize("bad", [None, 5, float("nan"), "a" + " word" * 400, "lone \ud800 surrogate"])
@pytest.mark.parametrize("batch_size", [None, 1, 2, 3, 64])
@every_backend
def test_what_came_before_a_bad_item_is_delivered(fp: Make, backend: str, batch_size: int | None, bad: Any) -> None:
    """FP-19: two results, then the error, which names the item; the pipeline stays usable."""
    pipe = fp("text-classification", "seqcls", backend)
    results = iter(pipe((item for item in ("one", "two", bad, "four")), batch_size=batch_size))
    assert [next(results)["label"] for _ in range(2)]
    with pytest.raises(ValueError, match="item 2"):
        next(results)
    assert len(list(pipe((item for item in ("one", "two")), batch_size=batch_size))) == 2


# FP-21


PROMPTS = ["the old mill", "a small river runs past the old mill", "the", "a small river"]


def test_prompts_without_a_pad_token(fp: Make, ref: Make) -> None:
    """FP-21: a list of prompts of different lengths gives what single calls give; the tokenizer stays as it was."""
    options = {"max_new_tokens": 5, "do_sample": False}
    pipe, reference = fp("text-generation", "gpt2"), ref("text-generation", "gpt2")
    wanted = [reference(prompt, **options) for prompt in PROMPTS]
    assert_same(pipe(PROMPTS, **options), wanted)
    assert_same(list(pipe((prompt for prompt in PROMPTS), **options)), wanted)
    assert_same(pipe(PROMPTS, batch_size=1, **options), wanted)
    assert pipe.tokenizer.pad_token is None


@pytest.mark.parametrize("batch_size", [2, 3, 64])
def test_a_batch_of_prompts_without_a_pad_token_is_refused_or_right(models: Models, ref: Make, batch_size: int) -> None:
    """FP-21: never a wrong text."""
    options = {"max_new_tokens": 5, "do_sample": False}
    reference = ref("text-generation", "gpt2")
    wanted = [reference(prompt, **options) for prompt in PROMPTS]
    model, tokenizer = models.make("gpt2")
    pipe = fastpipe.pipeline("text-generation", model=model, tokenizer=tokenizer, device="cpu")
    refusal = ""
    try:
        assert_same(pipe(PROMPTS, batch_size=batch_size, **options), wanted)
    except ValueError as error:
        refusal = str(error)
    assert not refusal or "pad_token" in refusal
    # The tokenizer is left as transformers leaves it (transformers 5 sets the padding side).
    twin_model, twin = models.make("gpt2")
    transformers.pipeline("text-generation", model=twin_model, tokenizer=twin, device="cpu")(PROMPTS[0], **options)
    assert tokenizer.pad_token is None
    assert (tokenizer.padding_side, tokenizer.special_tokens_map) == (twin.padding_side, twin.special_tokens_map)


@pytest.mark.parametrize("task", ["text-classification", "feature-extraction"])
@every_backend
def test_encoders_batch_without_a_pad_token(models: Models, backend: str, task: str) -> None:
    """FP-21: what a masked position holds does not matter, so no pad token is needed."""
    model, tokenizer = models.make({"text-classification": "distilbert", "feature-extraction": "feat"}[task])
    tokenizer.pad_token = None
    pipe = fastpipe.pipeline(task, model=model, tokenizer=tokenizer, backend=backend, device="cpu")
    options = {"return_tensors": True} if task == "feature-extraction" else {"top_k": None}
    results = pipe(["one", "a longer text than one", "one word"], batch_size=3, **options)
    alone = [pipe(text, **options) for text in ("one", "a longer text than one", "one word")]
    assert_same(results, alone, tolerance=1e-4)
    assert tokenizer.pad_token is None


# FP-23


MIXED = [
    "ok", "北京欢迎你", "🙂🙂🙂", "def f(x): return x+1", "", "Grüße aus Köln", "42", "привет, как дела?",
    "The delivery came two days late, but the box was in good shape.",
    "A long text makes every position of the model count. " * 12,
    "!!!", "Ελληνικά κείμενα", "a", "SELECT name FROM users WHERE id = 7;", "word " * 90, "ok ok ok",
]  # fmt: skip


def _many_texts() -> list[str]:
    """The mixed texts, and the beginnings of numpy's docstrings: 3 to 150 words. A few texts show no small drift."""
    lengths = random.Random(0)
    documented = [vars(np)[name] for name in sorted(vars(np)) if callable(vars(np)[name]) and vars(np)[name].__doc__]
    starts = [item.__doc__.split()[: lengths.choice([3, 8, 20, 60, 150])] for item in documented]
    return MIXED + [" ".join(words) for words in starts][:40]


@pytest.mark.parametrize(("precision", "floor"), [("fp32", 0.999999), ("int8", 0.9995)])
@pytest.mark.parametrize("backend", ENGINES)
def test_embeddings_do_not_depend_on_their_neighbours(fp: Make, backend: str, precision: str, floor: float) -> None:
    """FP-23: MiniLM's pooled vectors, alone and among others, in order and shuffled."""
    pipe = fp("feature-extraction", "minilm", backend, precision=precision, accuracy=None)
    assert pipe.plan.precision == precision

    def embed(texts: list[str], batch_size: int | None) -> np.ndarray[Any, Any]:
        hidden = pipe(texts, batch_size=batch_size, truncation=True, return_tensors=True)
        pooled = np.stack([tokens[0].mean(dim=0).numpy() for tokens in hidden])
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)

    texts = _many_texts()
    alone = np.stack([embed([text], 1)[0] for text in texts])
    order = list(range(len(texts)))
    for batch_size in (None, 1, 8, 32):
        random.Random(batch_size).shuffle(order)
        together = embed([texts[position] for position in order], batch_size)
        cosines = (together * alone[order]).sum(axis=1)
        assert cosines.min() >= floor, (batch_size, texts[order[int(cosines.argmin())]])
        if precision == "fp32":
            np.testing.assert_allclose(together, alone[order], atol=1e-5, rtol=0)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("model", ["seqcls", "distilbert"])
@pytest.mark.parametrize("backend", ENGINES)
def test_labels_do_not_depend_on_their_neighbours(fp: Make, backend: str, model: str, precision: str) -> None:
    """FP-23: no label changes with the batch; in fp32 no score does either."""
    pipe = fp("text-classification", model, backend, precision=precision, accuracy=None)
    assert (pipe.plan.backend, pipe.plan.precision) == (backend, precision)
    options = {"truncation": True}
    alone = {text: pipe(text, **options)[0] for text in MIXED}
    order = list(MIXED)
    for batch_size in (None, 2, 8, 32):
        random.Random(batch_size).shuffle(order)
        results = pipe(order, batch_size=batch_size, **options)
        assert [result["label"] for result in results] == [alone[text]["label"] for text in order]
        tolerance = 1e-5 if precision == "fp32" else 2e-2
        assert_same(results, [alone[text] for text in order], tolerance)


@pytest.mark.parametrize("backend", ENGINES)
def test_the_same_call_gives_the_same_bits(fp: Make, backend: str) -> None:
    """FP-23: repeating a quantized call repeats its result."""
    pipe = fp("feature-extraction", "minilm", backend, precision="int8", accuracy=None)
    once, again = (pipe(MIXED, return_tensors=True) for _ in range(2))
    for one, other in zip(once, again, strict=True):
        assert torch.equal(one, other)


@every_backend
def test_answers_do_not_depend_on_their_neighbours(fp: Make, backend: str) -> None:
    """FP-18: windows of several contexts share batches, and each answer comes from its own."""
    pipe = fp("question-answering", "qa", backend)
    contexts = ["Paris", "The tower is in Paris. " * 20, "It was Anna Weber who built it in 1842.", "no", "Paris"]
    options = {"max_seq_len": 64, "doc_stride": 16}
    alone = {context: pipe(question="Where?", context=context, **options) for context in contexts}
    for order in itertools.islice(itertools.permutations(contexts), 0, None, 7):
        results = pipe(question=["Where?"] * 5, context=list(order), batch_size=3, **options)
        assert_same(results, [alone[context] for context in order], tolerance=1e-5)
