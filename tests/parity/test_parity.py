"""Side by side with the installed transformers: every encoder task, form of input, engine and batch size.

The reference is `transformers.pipeline` called with one input at a time. Each element of a list, generator or Dataset
must be what that call gives, whatever `batch_size` is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import torch
from transformers.pipelines.pt_utils import KeyDataset, KeyPairDataset

from tests.compare import assert_same
from tests.conftest import BACKENDS

BATCH_SIZES = (None, 1, 2, 7, 64)

# Ties, duplicates, an empty text, one word, several scripts, and texts on both sides of the average length.
TEXTS = (
    "The ferry leaves at nine.",
    "no",
    "Maria Keller flew from Berlin to Lima, and Jonas stayed at home in Oslo with the two dogs.",
    "",
    "The ferry leaves at nine.",
    "yes",
    "no",
    "Grüße aus Köln – 北京欢迎你 – привет 🙂",
    "a b c d e f g h i j k l m n o p q r s t u v w x y z " * 3,
    "def f(x): return x + 1",
    "  spaces   around\tand\nlines  ",
    "Jonas",
)
PAIRS = (
    ("Who wrote it?", "It was written by the safety team in Oslo."),
    ("no", "yes"),
    ("", "an empty first part"),
    ("no", "yes"),
    ("yes", "no"),
    ("The first part is the longer one of the two, by a good measure", "short"),
)
CONTEXT = "The mill stands in Ulm. It was built in 1842 by Anna Weber, and it still turns every Sunday in June."


@dataclass(frozen=True)
class Subject:
    """One task, and what to call it with."""

    task: str
    model: str
    items: tuple[Any, ...]
    call: dict[str, Any] = field(default_factory=dict)
    make: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-4
    wrapped: bool = False  # a single call gives a list of one

    def one(self, pipe: Any, item: Any) -> Any:
        result = pipe(item, **self.call)
        return result[0] if self.wrapped else result


SUBJECTS = {
    "text-classification": Subject("text-classification", "seqcls", TEXTS, wrapped=True),
    "text-classification, all labels": Subject("text-classification", "seqcls", TEXTS, call={"top_k": None}),
    "text-classification of pairs": Subject(
        "text-classification", "seqcls", tuple({"text": one, "text_pair": other} for one, other in PAIRS)
    ),
    "token-classification": Subject("token-classification", "ner", TEXTS),
    "token-classification, aggregated": Subject(
        "token-classification", "ner", TEXTS, make={"aggregation_strategy": "average"}
    ),
    "feature-extraction": Subject("feature-extraction", "feat", TEXTS, tolerance=1e-3),
    "feature-extraction, tensors": Subject(
        "feature-extraction", "feat", TEXTS, call={"return_tensors": True}, tolerance=1e-3
    ),
    "fill-mask": Subject(
        "fill-mask",
        "mlm",
        ("The [MASK] sleeps.", "[MASK]", "A [MASK] is a [MASK].", "The [MASK] sleeps.", f"{TEXTS[2]} [MASK]"),
    ),
    "zero-shot-classification": Subject(
        "zero-shot-classification",
        "nli",
        tuple(text for text in TEXTS if text),
        call={"candidate_labels": ["travel", "work", "a much longer label than the others"]},
    ),
    "question-answering": Subject(
        "question-answering",
        "qa",
        tuple(
            {"question": question, "context": context}
            for question, context in (
                ("Where is the mill?", CONTEXT),
                ("Who?", "Anna."),
                ("Who built the mill, and when did she build it?", CONTEXT),
                ("Where is the mill?", CONTEXT),
                ("When does it turn?", f"{CONTEXT} {CONTEXT}"),
            )
        ),
    ),
}


class Rows(torch.utils.data.Dataset):
    def __init__(self, items: Iterable[Any]) -> None:
        self.items = list(items)

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, position: int) -> Any:
        return self.items[position]


FORMS: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "list": list,
    "generator": lambda items: (item for item in items),
    "Dataset": Rows,
    "KeyDataset": lambda items: KeyDataset(Rows({"other": 0, "text": item} for item in items), "text"),
}


@pytest.fixture(scope="session")
def expected(ref: Callable[..., Any]) -> Callable[[str], list[Any]]:
    """What the installed transformers gives for each item of a subject, one call for each."""

    @cache
    def results(name: str) -> list[Any]:
        subject = SUBJECTS[name]
        pipe = ref(subject.task, subject.model, **subject.make)
        return [subject.one(pipe, item) for item in subject.items]

    return results


@pytest.fixture
def pipe(fp: Callable[..., Any], name: str, backend: str) -> Any:
    subject = SUBJECTS[name]
    pipe = fp(subject.task, subject.model, backend, **subject.make)
    assert pipe.plan.backend == backend
    assert pipe.plan.precision == "fp32"
    return pipe


every_subject = pytest.mark.parametrize("name", SUBJECTS)
every_backend = pytest.mark.parametrize("backend", BACKENDS)
every_batch_size = pytest.mark.parametrize("batch_size", BATCH_SIZES)


@every_batch_size
@pytest.mark.parametrize("form", FORMS)
@every_backend
@every_subject
def test_many_inputs_give_the_results_of_single_calls(
    pipe: Any, expected: Callable[[str], list[Any]], name: str, form: str, batch_size: int | None
) -> None:
    subject = SUBJECTS[name]
    results = pipe(FORMS[form](subject.items), batch_size=batch_size, **subject.call)
    assert isinstance(results, list) == (form == "list")
    assert_same(list(results), expected(name), subject.tolerance)


@every_batch_size
@every_backend
@every_subject
def test_a_single_input_gives_what_transformers_gives(
    pipe: Any, ref: Callable[..., Any], name: str, batch_size: int | None
) -> None:
    subject = SUBJECTS[name]
    reference = ref(subject.task, subject.model, **subject.make)
    for item in (subject.items[0], subject.items[1], subject.items[-1]):
        result = pipe(item, batch_size=batch_size, **subject.call)
        assert_same(result, reference(item, **subject.call), subject.tolerance)


@every_batch_size
@every_backend
@every_subject
def test_a_list_of_one_gives_what_transformers_gives(
    pipe: Any, ref: Callable[..., Any], name: str, batch_size: int | None
) -> None:
    subject = SUBJECTS[name]
    reference = ref(subject.task, subject.model, **subject.make)
    for item in (subject.items[0], subject.items[-1]):
        result = pipe([item], batch_size=batch_size, **subject.call)
        assert_same(result, reference([item], **subject.call), subject.tolerance)


@every_batch_size
@pytest.mark.parametrize("form", FORMS)
@every_backend
@every_subject
def test_no_inputs_give_no_results(pipe: Any, name: str, form: str, batch_size: int | None) -> None:
    assert list(pipe(FORMS[form](()), batch_size=batch_size, **SUBJECTS[name].call)) == []


@every_batch_size
@every_backend
@every_subject
def test_an_empty_list_gives_an_empty_list(pipe: Any, name: str, batch_size: int | None) -> None:
    assert pipe([], batch_size=batch_size, **SUBJECTS[name].call) == []


@every_batch_size
@every_backend
def test_pairs_in_every_form_that_transformers_takes(
    fp: Callable[..., Any], ref: Callable[..., Any], backend: str, batch_size: int | None
) -> None:
    pipe, reference = fp("text-classification", "seqcls", backend), ref("text-classification", "seqcls")
    mappings = [{"text": one, "text_pair": other} for one, other in PAIRS]
    wanted = [reference(mapping) for mapping in mappings]
    assert_same(pipe(mappings, batch_size=batch_size), wanted)
    keyed = KeyPairDataset(Rows(mappings), "text", "text_pair")
    assert_same(list(pipe(keyed, batch_size=batch_size)), wanted)
    # transformers tokenizes a tuple as two texts, which must be of equal length, and answers for the first.
    tuples = [("no", "yes"), ("yes", "no"), ("no", "yes")]
    assert_same(pipe(tuples, batch_size=batch_size), [reference(pair) for pair in tuples])
    for pairs_of_lists in ([["no", "yes"]], [["no", "yes"], ["yes", "no"]]):
        with pytest.raises(ValueError, match="text_pair"):
            reference(pairs_of_lists)
        with pytest.raises(ValueError, match="text_pair"):
            pipe(pairs_of_lists, batch_size=batch_size)


@every_batch_size
@every_backend
def test_questions_and_contexts_in_lists_of_their_own(
    fp: Callable[..., Any], expected: Callable[[str], list[Any]], backend: str, batch_size: int | None
) -> None:
    pipe, wanted = fp("question-answering", "qa", backend), expected("question-answering")
    items = SUBJECTS["question-answering"].items
    questions, contexts = ([item[part] for item in items] for part in ("question", "context"))
    assert_same(pipe(question=questions, context=contexts, batch_size=batch_size), wanted)
    assert_same(pipe(question=questions[0], context=contexts[0], batch_size=batch_size), wanted[0])
    assert_same(pipe(questions[0], contexts[0], batch_size=batch_size), wanted[0])
    about_one = [wanted[position] for position, context in enumerate(contexts) if context == CONTEXT]
    asked = [item["question"] for item in items if item["context"] == CONTEXT]
    assert_same(pipe(question=asked, context=CONTEXT, batch_size=batch_size), about_one)
    assert pipe(question=[], context=[], batch_size=batch_size) == []


@every_batch_size
@every_backend
def test_lists_of_words(fp: Callable[..., Any], ref: Callable[..., Any], backend: str, batch_size: int | None) -> None:
    texts = [["Maria", "Keller", "lives", "in", "Oslo"], ["no"], ["Jonas", "Petersen"], ["no"]]
    options = {"aggregation_strategy": "average"}
    reference = ref("token-classification", "ner", **options)
    wanted = [reference([words], is_split_into_words=True)[0] for words in texts]
    pipe = fp("token-classification", "ner", backend, **options)
    assert_same(pipe(texts, is_split_into_words=True, batch_size=batch_size), wanted)
    assert_same(pipe(texts[0], is_split_into_words=True, batch_size=batch_size), wanted[:1])


@every_backend
@every_subject
def test_a_batch_size_given_to_the_pipeline_changes_no_result(
    fp: Callable[..., Any], expected: Callable[[str], list[Any]], name: str, backend: str
) -> None:
    subject = SUBJECTS[name]
    pipe = fp(subject.task, subject.model, backend, batch_size=3, **subject.make)
    assert_same(pipe(list(subject.items), **subject.call), expected(name), subject.tolerance)
