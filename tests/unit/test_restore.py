"""Nobody gets somebody else's result: a model that answers with a hash of each row's own tokens would show it."""

from __future__ import annotations

import copy
import hashlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers.pipelines.pt_utils import KeyDataset
from transformers.utils import ModelOutput

import fastpipe
from fastpipe.backends.torch import TorchRunner
from fastpipe.batching.planner import Padding
from fastpipe.pipelines.call import Batching
from fastpipe.pipelines.windows import LARGEST_WINDOW
from tests.compare import assert_same

WORDS = ["a", "the", "river", "mill", "stands", "old", "北京", "🙂"]
# A small pool: duplicates, ties in length, permutations of the same words, empty and very different lengths.
_POOL = ["", "a", "the", "the river", "river the", "old mill", "mill old", "z " * 90, "y " * 90, "a " * 30, "\u200b"]
_texts = st.lists(
    st.one_of(st.sampled_from(_POOL), st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join)), max_size=30
)
_sizes = st.sampled_from([None, 1, 2, 7, 64])


class Hashing(torch.nn.Module):
    """Answers each row with numbers that follow from that row's own tokens, whatever is beside it.

    Args:
        config: The config of the model it stands for.
        labels: Values in each answer.
        per_token: Whether every token has an answer, or the row as a whole.
    """

    def __init__(self, config: Any, labels: int, *, per_token: bool) -> None:
        super().__init__()
        self.config, self.labels, self.per_token = config, labels, per_token
        self.device, self.dtype = torch.device("cpu"), torch.float32
        self.rows: list[tuple[int, ...]] = []  # of every batch, without padding
        self.largest = 0
        self.poison: tuple[int, ...] | None = None

    def can_generate(self) -> bool:
        return False

    input_modalities = output_modalities = ("text",)

    def forward(self, input_ids, attention_mask=None, token_type_ids=None, **others) -> ModelOutput:
        rows = []
        for ids, mask in zip(input_ids, attention_mask, strict=True):
            length = int(mask.sum())
            assert mask[:length].all(), "padding belongs on the right"
            rows.append(tuple(ids[:length].tolist()))
        self.rows += rows
        self.largest = max(self.largest, len(rows))
        if self.poison in rows:
            raise RuntimeError("the engine gave up")
        width = input_ids.shape[1] if self.per_token else 1
        answers = torch.full((len(rows), width, self.labels), 99.0)
        for row, ids in enumerate(rows):
            for token in range(len(ids) if self.per_token else 1):
                answers[row, token] = torch.tensor(self._answer(ids, token))
        return ModelOutput(logits=answers if self.per_token else answers[:, 0])

    def _answer(self, ids: tuple[int, ...], token: int) -> list[float]:
        digest = hashlib.sha256(repr((ids, token)).encode()).digest()
        return [digest[label] / 64 - 2 for label in range(self.labels)]


def _hashing(pipe: Any, labels: int, *, per_token: bool) -> Any:
    """Put a hashing model into a pipeline, and into its batching where it has one."""
    model = Hashing(pipe.model.config, labels, per_token=per_token)
    pipe.model = model
    if hasattr(pipe, "plan"):
        runner = TorchRunner(model, ("logits",))
        pipe._batching = Batching(runner=runner, per_token=per_token, max_tokens=128, padding=Padding.NEUTRAL)
    return pipe


@pytest.fixture(scope="module")
def make(models) -> Callable[..., tuple[Any, Any]]:
    """A fast pipeline and transformers' own, each on a hashing model."""

    def pair(task: str, name: str, labels: int, *, per_token: bool = False, **options: Any) -> tuple[Any, Any]:
        mine = fastpipe.pipeline(task, model=models[name], backend="torch", **options)
        theirs = transformers.pipeline(task, model=models[name], device="cpu", **options)
        return _hashing(mine, labels, per_token=per_token), _hashing(theirs, labels, per_token=per_token)

    return pair


@pytest.fixture(scope="module")
def classifier(make) -> tuple[Any, Any]:
    return make("text-classification", "seqcls", 3, top_k=3)


def alone(pipe: Any, texts: list[str], **options: Any) -> list[Any]:
    """What each text gives in a list of its own, worked out once for equal texts."""
    results = {text: pipe([text], **options)[0] for text in dict.fromkeys(texts)}
    return [results[text] for text in texts]


class Texts(torch.utils.data.Dataset):
    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> str:
        return self.texts[index]


class Stream(torch.utils.data.IterableDataset):
    def __init__(self, texts: list[str]) -> None:
        self.texts = texts

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)


FORMS: dict[str, Callable[[list[str]], Any]] = {
    "list": list,
    "generator": lambda texts: (text for text in texts),
    "dataset": Texts,
    "stream": Stream,
    "key dataset": lambda texts: KeyDataset([{"text": text} for text in texts], "text"),
}
_forms = st.sampled_from(sorted(FORMS))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(texts=_texts, size=_sizes, form=_forms)
def test_every_text_gets_its_own_result(classifier, texts, size, form):
    mine, theirs = classifier
    given_texts, kept = FORMS[form](texts), list(texts)
    mine.model.largest = 0
    got = list(mine(given_texts, batch_size=size, truncation=True))
    assert texts == kept
    assert_same(got, alone(theirs, texts, truncation=True), 1e-6)
    assert size is None or mine.model.largest <= size


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(texts=_texts, size=_sizes, data=st.data())
def test_a_permutation_permutes_the_results(classifier, texts, size, data):
    mine, _ = classifier
    order = data.draw(st.permutations(range(len(texts))))
    results = mine(list(texts), batch_size=size, truncation=True)
    assert_same(mine([texts[i] for i in order], truncation=True), [results[i] for i in order], 0)


@pytest.mark.parametrize("padding", list(Padding))
def test_whatever_the_model_does_with_padding(classifier, padding):
    mine, theirs = classifier
    texts = _POOL * 3
    mine._batching.padding, mine.model.largest = padding, 0
    try:
        assert_same(mine(texts, truncation=True), alone(theirs, texts, truncation=True), 1e-6)
    finally:
        mine._batching.padding = Padding.NEUTRAL
    assert (mine.model.largest == 1) is (padding is Padding.SINGLE)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(texts=_texts, size=_sizes, form=_forms)
def test_windows_of_several_texts_in_one_batch_find_their_text(make_ner, texts, size, form):
    mine, theirs = make_ner
    got = list(mine(FORMS[form](texts), batch_size=size))
    assert_same(got, alone(theirs, texts), 1e-6)


@pytest.fixture(scope="module")
def make_ner(make) -> tuple[Any, Any]:
    pair = make("token-classification", "ner", 5, per_token=True, aggregation_strategy="simple", stride=4)
    for pipe in pair:
        pipe.tokenizer.model_max_length = 16  # so that ordinary texts have several windows
    pair[0]([" ".join(WORDS[:6] * 5)])
    assert len(pair[0].model.rows) > 2
    return pair


@pytest.mark.parametrize("multi_label", [False, True])
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    texts=_texts.map(lambda texts: [text for text in texts if text]),  # transformers refuses an empty sequence
    labels=st.lists(st.sampled_from(WORDS), min_size=1, max_size=5, unique=True),
    size=_sizes,
)
def test_label_pairs_of_several_texts_in_one_batch_find_their_text(make_zero_shot, multi_label, texts, labels, size):
    mine, theirs = make_zero_shot
    options = {"candidate_labels": labels, "multi_label": multi_label}
    assert_same(mine(list(texts), batch_size=size, **options), alone(theirs, texts, **options), 1e-6)


@pytest.fixture(scope="module")
def make_zero_shot(make) -> tuple[Any, Any]:
    return make("zero-shot-classification", "nli", 3)


@pytest.mark.parametrize("form", sorted(FORMS))
def test_equal_rows_run_once(classifier, form):
    mine, _ = classifier
    mine.model.rows.clear()
    list(mine(FORMS[form](["a", "the river", "a", "old mill", "a", "the river"] * 5), batch_size=64, truncation=True))
    assert Counter(mine.model.rows).most_common(1)[0][1] == 1
    assert len(mine.model.rows) == 3


def test_equal_label_pairs_run_once(make_zero_shot):
    mine, _ = make_zero_shot
    mine.model.rows.clear()
    mine(["a", "the", "a"], candidate_labels=["old", "mill"])
    assert Counter(mine.model.rows).most_common(1)[0][1] == 1
    assert len(mine.model.rows) == 4


@pytest.fixture
def poisoned(classifier):
    """The classifier, whose model fails for any batch that holds the text "poison"."""
    mine, _ = classifier
    mine.model.poison = tuple(mine.tokenizer("poison")["input_ids"])
    yield mine
    mine.model.poison = None


@pytest.mark.parametrize("size", [None, 1, 2, 7])
@pytest.mark.parametrize("index", [0, 5, 9])
def test_an_error_of_the_engine_names_the_item(poisoned, size, index):
    texts = [f"{'a ' * i}text" for i in range(10)]
    before = poisoned(texts)
    texts[index] = "poison"
    with pytest.raises(RuntimeError, match=rf"item {index}: the engine gave up"):
        poisoned(texts, batch_size=size)
    texts[index] = f"{'a ' * index}text"
    assert_same(poisoned(texts, batch_size=size), before, 1e-6)


def test_an_error_for_a_single_text_names_no_item(poisoned):
    with pytest.raises(RuntimeError, match=r"^the engine gave up$"):
        poisoned("poison")


@pytest.mark.parametrize("size", [None, 2])
@pytest.mark.parametrize(
    ("bad", "kind", "words"), [("poison", RuntimeError, "gave up"), (None, ValueError, "None"), (5, ValueError, "5")]
)
def test_results_before_a_bad_item_of_a_generator_arrive(poisoned, size, bad, kind, words):
    results = poisoned((text for text in ["a", "the river", bad, "old mill"]), batch_size=size)
    assert_same([next(results), next(results)], alone(poisoned, ["a", "the river"]), 1e-6)
    with pytest.raises(kind, match=words) as raised:
        next(results)
    assert "item 2" in str(raised.value)


def test_an_error_of_the_source_arrives_after_the_results_before_it(classifier):
    mine, _ = classifier
    failure = KeyError("the file ended")

    def source() -> Iterator[str]:
        yield "a"
        yield "the river"
        raise failure

    results = mine(source())
    assert_same([next(results), next(results)], alone(mine, ["a", "the river"]), 1e-6)
    with pytest.raises(KeyError) as raised:
        next(results)
    assert raised.value is failure
    assert raised.value.args == ("the file ended",)


def test_a_generator_is_read_a_bounded_window_ahead(classifier):
    mine, _ = classifier
    pulled = 0

    def source() -> Iterator[str]:
        nonlocal pulled
        for number in itertools.count():
            pulled += 1
            yield f"text {number}"

    results = mine(source())
    assert pulled == 0
    next(results)
    assert pulled <= 8
    taken = 1
    for _ in range(3000):
        next(results)
        taken += 1
        assert pulled - taken < LARGEST_WINDOW
    assert_same(next(results), mine([f"text {taken}"])[0], 1e-6)


def test_a_pipeline_may_be_called_while_its_results_are_read(classifier):
    mine, theirs = classifier
    texts = ["a", "the river", "old mill"] * 4
    got = []
    for text, result in zip(texts, mine(text for text in texts), strict=True):
        got.append(result)
        assert_same(mine([text, "a " * 9])[0], result, 1e-6)
    assert_same(got, alone(theirs, texts), 1e-6)


def test_two_generators_may_be_read_in_turns(classifier):
    mine, theirs = classifier
    texts = [f"{'a ' * i}" for i in range(20)]
    pairs = list(zip(mine(t for t in texts), mine(t for t in reversed(texts)), strict=True))
    wanted = alone(theirs, texts)
    assert_same([one for one, _ in pairs], wanted, 1e-6)
    assert_same([other for _, other in reversed(pairs)], wanted, 1e-6)


def test_results_of_equal_texts_do_not_share_a_label(classifier):
    mine, _ = classifier
    first, second = mine(["a", "a"])
    wanted = copy.deepcopy(second)
    first[0]["label"] = "changed"
    first.clear()
    assert second == wanted


@pytest.mark.parametrize("form", ["list", "generator"])
def test_results_of_equal_texts_do_not_share_memory(make, form):
    mine, _ = make("feature-extraction", "feat", 4, per_token=True, return_tensors=True)
    results = list(mine(FORMS[form](["a", "the river", "a", "a"])))
    kept = [result.clone() for result in results]
    for changed in (0, 2):
        results[changed].zero_()
    torch.testing.assert_close(results[3], kept[3])
    torch.testing.assert_close(results[1], kept[1])


def test_inputs_of_several_rows_run_as_they_are(make):
    # feature-extraction takes a list of texts as one input; with tokens of equal number it needs no padding.
    mine, theirs = make("feature-extraction", "feat", 4, per_token=True)
    inputs = [["a", "the"], ["river", "mill"], ["old", "a"]]
    got, wanted = mine(inputs), theirs(inputs)
    assert np.array(got).shape == np.array(wanted).shape
    assert_same(got, wanted, 1e-6)
    mixed = ["a text", ["a", "the"], "old", ["river", "mill"]]
    assert_same(mine(mixed), theirs(mixed), 1e-6)
