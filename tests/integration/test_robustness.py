"""Empty, missing, odd and over-long inputs: the result of transformers, or an error that names item and cause."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

import fastpipe
from tests.compare import assert_same
from tests.conftest import BACKENDS
from tests.models import Models


@dataclass(frozen=True)
class Subject:
    """A task, the model to try it on, and how a text becomes an input of it."""

    task: str
    model: str
    options: dict[str, Any] = field(default_factory=dict)
    wrap: Callable[[Any], Any] = lambda text: text
    tolerance: float = 1e-4


def _masked(text: Any) -> Any:
    return f"{text} [MASK]" if isinstance(text, str) else text


def _asked(text: Any) -> Any:
    return {"question": "Where?", "context": text}


SUBJECTS = {
    subject.task: subject
    for subject in (
        Subject("text-classification", "seqcls"),
        Subject("token-classification", "ner"),
        Subject("feature-extraction", "feat", tolerance=1e-3),
        Subject("fill-mask", "mlm", wrap=_masked),
        Subject("zero-shot-classification", "nli", {"candidate_labels": ["old", "new"]}),
        Subject("question-answering", "qa", wrap=_asked),
    )
}
TASKS = list(SUBJECTS)
MISSING = [None, float("nan"), 5, 2.5, np.float32(1), np.int64(3)]
LONG = "word " * 400


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=TASKS)
def subject(request: pytest.FixtureRequest) -> Subject:
    return SUBJECTS[request.param]


@pytest.fixture
def call(fp: Any, subject: Subject, backend: str) -> Iterator[Callable[..., Any]]:
    """Call the pipeline of a task; afterwards it must still answer as before."""
    pipe = fp(subject.task, subject.model, backend)

    def run(inputs: Any, **options: Any) -> Any:
        return pipe(inputs, **{**subject.options, **options})

    probe = [subject.wrap("a small river"), subject.wrap("the mill")]
    before = run(probe)
    yield run
    assert_same(run(probe), before, 1e-5)


@pytest.fixture
def theirs(ref: Any, subject: Subject) -> Callable[..., Any]:
    pipe = ref(subject.task, subject.model)
    return lambda inputs, **options: pipe(inputs, **{**subject.options, **options})


def assert_same_outcome(mine: Callable[[], Any], theirs: Callable[[], Any], tolerance: float) -> None:
    """Compare results, or that there is none: an error of transformers is an error of its kind here."""
    try:
        wanted = theirs()
    except Exception as error:
        with pytest.raises(type(error)):
            mine()
    else:
        assert_same(mine(), wanted, tolerance)


def test_no_inputs(call: Any):
    assert call([]) == []


@pytest.mark.parametrize(
    "text", ["", "\u200b", " \n\t ", "a\x00b", "🙂", "\ufeffa", "e\u0301", "\x7f\x1b[0m", "</s>[PAD]"]
)
def test_odd_texts_are_texts(call: Any, theirs: Any, subject: Subject, text: str):
    item, other = subject.wrap(text), subject.wrap("a small river")
    assert_same_outcome(lambda: call(item), lambda: theirs(item), subject.tolerance)

    def one_by_one() -> list[Any]:
        results = [theirs(one) for one in (other, item)]
        return [result[0] for result in results] if subject.task == "text-classification" else results

    assert_same_outcome(lambda: call([other, item]), one_by_one, subject.tolerance)


def test_an_empty_text_has_a_result(fp: Any, backend: str):
    (result,) = fp("text-classification", "seqcls", backend)("")
    assert math.isfinite(result["score"])
    assert fp("token-classification", "ner", backend)("") == []
    assert np.array(fp("feature-extraction", "feat", backend)("")).shape == (1, 2, 64)
    assert np.isfinite(fp("feature-extraction", "feat", backend)("")).all()


@pytest.mark.parametrize("value", [*MISSING, b"bytes"], ids=repr)
def test_a_missing_value_is_an_error_that_names_it(call: Any, subject: Subject, value: Any):
    with pytest.raises((ValueError, TypeError)) as raised:
        call([subject.wrap("a"), subject.wrap(value)])
    assert str(raised.value).startswith("item 1:")
    with pytest.raises((ValueError, TypeError)) as raised:
        call([subject.wrap(text) for text in ("a " * 9, "b", "c " * 5)] + [subject.wrap(value)], batch_size=2)
    assert str(raised.value).startswith("item 3:")  # whatever the order of lengths
    with pytest.raises((ValueError, TypeError)) as raised:
        call(subject.wrap(value))
    assert not str(raised.value).startswith("item")


def test_a_lone_surrogate_is_an_error_that_names_it(call: Any, subject: Subject):
    bad = subject.wrap("bad \ud800 text")
    with pytest.raises(ValueError, match=r"item 1: .*surrogate"):
        call([subject.wrap("a"), bad])
    with pytest.raises(ValueError, match=r"^(?!item).*surrogate"):
        call(bad)


@pytest.mark.parametrize("size", [0, -1, 1.5, "2"])
def test_a_batch_size_that_is_none_is_an_error_that_names_it(call: Any, subject: Subject, size: Any):
    with pytest.raises(ValueError, match="batch_size"):
        call([subject.wrap("a"), subject.wrap("b")], batch_size=size)


def test_the_same_for_the_batch_size_of_the_pipeline(models: Models, backend: str):
    with pytest.raises(ValueError, match="batch_size"):
        fastpipe.pipeline("text-classification", model=models["seqcls"], backend=backend, batch_size=0)(["a", "b"])


@pytest.mark.parametrize("inputs", [{"text": "a", "text_pair": None}, {"text": "a"}, [{"text": "a"}, {"text": "b"}]])
def test_a_pair_may_lack_its_second_text(fp: Any, ref: Any, backend: str, inputs: Any):
    wanted = ref("text-classification", "seqcls")(inputs)
    assert_same(fp("text-classification", "seqcls", backend)(inputs), wanted)


def test_a_pair_with_a_missing_text_names_it(fp: Any, backend: str):
    pipe = fp("text-classification", "seqcls", backend)
    pair = {"text": "a", "text_pair": "b"}
    with pytest.raises((ValueError, TypeError), match=r"^item 1:"):
        pipe([pair, {"text": None, "text_pair": "b"}])
    with pytest.raises((ValueError, TypeError), match=r"^item 1:"):
        pipe([pair, {"text": "a", "text_pair": float("nan")}])


@pytest.mark.parametrize("task", ["text-classification", "token-classification", "feature-extraction"])
def test_a_million_characters_are_cut(fp: Any, backend: str, task: str):
    pipe = fp(task, SUBJECTS[task].model, backend)
    options = {} if task == "token-classification" else {"truncation": True}  # which cuts by itself
    million, thousand = "word " * 200_000, "word " * 1000
    assert_same(pipe(million, **options), pipe(thousand, **options), 1e-5)
    assert_same(pipe(["a", million], **options)[1], pipe([thousand], **options)[0], 1e-5)


@pytest.mark.parametrize("task", ["text-classification", "feature-extraction", "fill-mask"])
def test_an_over_long_text_is_an_error_with_length_and_limit(fp: Any, ref: Any, backend: str, task: str):
    wrap = SUBJECTS[task].wrap
    long = wrap(LONG)
    with pytest.raises(Exception):  # noqa: B017 - each engine and version has another
        ref(task, SUBJECTS[task].model)(long)
    pipe = fp(task, SUBJECTS[task].model, backend)
    tokens = str(len(pipe.tokenizer(long)["input_ids"]))
    for inputs, named in ((long, False), ([wrap("a"), long], True)):
        with pytest.raises(ValueError, match=tokens) as raised:
            pipe(inputs)
        assert "128" in str(raised.value)
        assert isinstance(raised.value, RuntimeError)  # as in transformers
        assert ("item 1" in str(raised.value)) is named
    assert pipe(wrap("a"))


@pytest.mark.parametrize("task", ["token-classification", "zero-shot-classification", "question-answering"])
def test_a_task_that_cuts_by_itself_cuts(fp: Any, ref: Any, backend: str, task: str):
    subject = SUBJECTS[task]
    mine, theirs = fp(task, subject.model, backend), ref(task, subject.model)
    item = subject.wrap(LONG)
    assert_same(mine(item, **subject.options), theirs(item, **subject.options))


@pytest.mark.parametrize("task", ["text-classification", "feature-extraction", "fill-mask"])
def test_truncation_is_that_of_transformers(fp: Any, ref: Any, backend: str, task: str):
    subject, cut = SUBJECTS[task], {"truncation": True}
    options: dict[str, Any] = {"tokenizer_kwargs": cut} if task == "fill-mask" else cut
    texts = [f"[MASK] {LONG}", "a [MASK]", f"b [MASK] {LONG}"]
    mine, theirs = fp(task, subject.model, backend), ref(task, subject.model)
    wanted = [theirs(text, **options) for text in texts]
    if task == "text-classification":
        wanted = [result[0] for result in wanted]
    assert_same(mine(texts, **options), wanted, subject.tolerance)


def test_without_a_limit_of_the_tokenizer_that_of_the_model_holds(fp: Any, ref: Any, backend: str):
    pipe, theirs = fp("text-classification", "hugemax", backend), ref("text-classification", "hugemax")
    assert_same(pipe(LONG, truncation=True), theirs(LONG, truncation=True, max_length=64))
    assert_same(pipe(["a", LONG], truncation=True)[1:], theirs([LONG], truncation=True, max_length=64))
    with pytest.raises(ValueError, match="402 > 64"):
        pipe(LONG)


def test_the_users_tokenizer_keeps_its_limit(models: Models, backend: str):
    tokenizer = transformers.AutoTokenizer.from_pretrained(models["hugemax"])
    limit = tokenizer.model_max_length
    pipe = fastpipe.pipeline("text-classification", model=models["hugemax"], tokenizer=tokenizer, backend=backend)
    pipe(LONG, truncation=True)
    assert tokenizer.model_max_length == limit > 10**9


def test_positions_that_start_behind_the_padding_do_not_count(models: Models, tmp_path: Path):
    model, tokenizer = models.make("roberta")  # 64 usable positions of 66
    tokenizer.model_max_length = 10**30
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    mine = fastpipe.pipeline("text-classification", model=tmp_path, backend="torch")
    theirs = transformers.pipeline("text-classification", model=str(tmp_path), device="cpu")
    assert_same(mine(LONG, truncation=True), theirs(LONG, truncation=True, max_length=64))
    exactly = tokenizer.decode(tokenizer(LONG, truncation=True, max_length=64)["input_ids"])
    assert len(tokenizer(exactly)["input_ids"]) == 64
    assert_same(mine(exactly), theirs(exactly))
    with pytest.raises(ValueError, match="64"):
        mine(exactly + " word")


def test_a_decoder_classifies_up_to_its_limit(fp: Any, ref: Any, backend: str):
    pipe = fp("text-classification", "gpt2cls", backend)
    assert_same(pipe(LONG, truncation=True), ref("text-classification", "gpt2cls")(LONG, truncation=True))
    with pytest.raises(ValueError, match="64"):
        pipe(LONG)


def test_a_prompt_beyond_the_positions_is_an_error_with_the_limit(fp: Any):
    pipe = fp("text-generation", "gpt2", "torch")
    with pytest.raises(Exception, match="64"):
        pipe(LONG, max_new_tokens=2)
    assert pipe("a small", max_new_tokens=2, do_sample=False)


def test_a_text_of_exactly_the_limit_passes(fp: Any, ref: Any, backend: str):
    pipe, theirs = fp("text-classification", "seqcls", backend), ref("text-classification", "seqcls")
    text = "word " * 126
    assert len(pipe.tokenizer(text)["input_ids"]) == 128
    assert_same(pipe(text), theirs(text))
    assert_same(pipe([text, "a", text + "word"], truncation=True)[0], theirs(text)[0])
    with pytest.raises(ValueError, match=r"129 > 128"):
        pipe(text + "word")
