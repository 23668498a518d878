"""The way around per-item work gives exactly what the task's own steps give, and is left where it would not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import fastpipe
from fastpipe.errors import InputError
from fastpipe.pipelines import shortcuts
from fastpipe.pipelines.shortcuts import base
from fastpipe.precision.sample import TEXTS
from tests.conftest import BACKENDS, ENGINES
from tests.models import NER_LABELS, Models, bert_config, byte_pairs, wordpiece

Make = Callable[..., Any]
every_backend = pytest.mark.parametrize("backend", BACKENDS)
# The same text twice, an empty one, and one that is cut off.
MIXED = [*TEXTS[::4], "", "twice", "twice", "many words " * 100]

LABELS: list[dict[str, Any]] = [
    {},
    {"top_k": None},
    {"top_k": 2},
    {"top_k": 0},
    {"top_k": 1},
    {"function_to_apply": "sigmoid", "top_k": None},
    {"function_to_apply": "none", "top_k": None},
    {"function_to_apply": "softmax"},
    {"max_length": 12},
    {"add_special_tokens": True},
    {"padding": True},
    {"padding": "max_length", "max_length": 20},
]


def same(one: Any, other: Any) -> bool:
    """Equal to the last bit, and of the same types."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def both_ways(run: Callable[[], Any]) -> tuple[Any, Any]:
    """Run with the shortcut and without; the first must have been taken."""
    taken: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shortcuts, "_SHORTCUTS", tuple(_counting(one, taken) for one in shortcuts._SHORTCUTS))
        short = run()
        assert taken, "no shortcut was taken"
        patch.setattr(shortcuts, "_SHORTCUTS", ())
        return short, run()


def _counting(shortcut: Any, taken: list[int]) -> Any:
    def counted(pipe: Any, answered: Any, parameters: Any) -> Any:
        made = shortcut.decode(pipe, answered, parameters)
        taken.append(len(made))
        return made

    return replace(shortcut, decode=counted)


@pytest.mark.parametrize("options", LABELS, ids=str)
@pytest.mark.parametrize("model", ["seqcls", "roberta", "multilabel", "regr"])
@every_backend
def test_labels(fp: Make, backend: str, model: str, options: dict[str, Any]) -> None:
    pipe = fp("text-classification", model, backend)
    texts = MIXED if model != "roberta" else [text for text in MIXED if text]
    for items in (texts, texts[3]):
        assert same(*both_ways(lambda: pipe(items, **{"truncation": True, **options})))  # noqa: B023


@pytest.mark.parametrize("options", [{}, {"return_tensors": True}, {"tokenize_kwargs": {"max_length": 9}}], ids=str)
@every_backend
def test_features(fp: Make, backend: str, options: dict[str, Any]) -> None:
    pipe = fp("feature-extraction", "feat", backend)

    def again() -> dict[str, Any]:  # transformers writes into the mapping it is given
        return {"truncation": True, **{k: dict(v) if isinstance(v, dict) else v for k, v in options.items()}}

    for items in (MIXED, MIXED[0]):
        assert same(*both_ways(lambda: pipe(items, **again())))  # noqa: B023


def test_a_caller_may_change_what_it_got(fp: Make) -> None:
    """The same text twice in a list: no result shares memory with another."""
    pipe = fp("feature-extraction", "feat", "onnxruntime")
    first, second = pipe(["twice", "twice"], return_tensors=True)
    first.zero_()
    assert second.abs().sum() > 0
    labels = fp("text-classification", "seqcls", "onnxruntime")(["twice", "twice"], top_k=None)
    labels[0].clear()
    assert labels[1]


def counted(pipe: Any, step: str) -> list[Any]:
    """Replace a step of a pipeline by one that does the same, and give the list of its calls."""
    calls: list[Any] = []
    own = getattr(pipe, step)

    def replaced(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return own(*args, **kwargs)

    setattr(pipe, step, replaced)
    return calls


@pytest.mark.parametrize("step", ["preprocess", "_forward", "postprocess"])
def test_a_step_that_was_replaced_is_used(models: Models, step: str) -> None:
    pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], backend="onnxruntime")
    calls = counted(pipe, step)
    assert len(pipe(["one", "two"])) == len(calls) == 2


def test_a_subclass_keeps_its_own_steps(models: Models) -> None:
    pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], backend="onnxruntime")

    class Shouting(type(pipe)):  # type: ignore[misc]
        def postprocess(self, *args: Any, **kwargs: Any) -> Any:
            result = super().postprocess(*args, **kwargs)
            return {**result, "label": result["label"].upper() + "!"}

    pipe.__class__ = Shouting
    assert all(result["label"].endswith("!") for result in pipe(["one", "two"]))


@pytest.mark.parametrize("backend", ENGINES)
def test_the_item_at_fault_is_named(fp: Make, backend: str) -> None:
    pipe = fp("text-classification", "seqcls", backend)
    with pytest.raises(InputError, match="item 2"):
        pipe(["fine", "fine too", "broken \ud800"])
    with pytest.raises(InputError, match="item 1"):
        pipe(["fine", None])
    with pytest.raises(InputError, match="item 1"):
        pipe(["fine", "too long " * 500])
    assert len(pipe(["fine", "still"])) == 2


def test_a_label_without_a_name_is_transformers_error(models: Models) -> None:
    pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], backend="onnxruntime")
    pipe.model.config.id2label = {}
    with pytest.raises(KeyError):
        pipe(["one", "two"])


def test_softmax_of_large_logits() -> None:
    logits = np.array([[1e4, 0, -1e4], [-1e4, -1e4, -1e4]], np.float32)
    assert np.allclose(base.softmax(logits), [[1, 0, 0], [1 / 3] * 3])


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many texts were encoded at once, call by call."""
    counts: list[int] = []

    def counting(shortcut: Any) -> Any:
        def counted(pipe: Any, texts: Any, parameters: Any) -> Any:
            rows = shortcut.encode(pipe, texts, parameters)
            if rows is not None:
                counts.append(len(texts))
            return rows

        return replace(shortcut, encode=counted)

    monkeypatch.setattr(shortcuts, "_SHORTCUTS", tuple(map(counting, shortcuts._SHORTCUTS)))
    return counts


def test_texts_are_tokenized_together(fp: Make, together: list[int]) -> None:
    pipe = fp("text-classification", "seqcls", "onnxruntime")
    pipe(MIXED, truncation=True)
    pipe("alone")
    list(pipe(text for text in MIXED[:10]))
    assert together == [len(MIXED), 1, 8, 2]
    pipe(["padded", "to the longest"], padding=True)
    pipe([{"text": "a", "text_pair": "b"}, "c"])
    assert together == [len(MIXED), 1, 8, 2], "what is unusual goes through `preprocess`"


STRATEGIES = ("none", "simple", "first", "average", "max")
# Long words, spaces of all kinds, and words with characters that no vocabulary has.
WORDS = [
    *TEXTS[::3],
    *("", " ", "🙂", "🙂🙂 Maria🙂Keller", "twice", "twice", "antidisestablishmentarianism unbelievably-hyphenated"),
    *("  spaces   around\tand\nlines  ", "Grüße aus Köln – 北京欢迎你 – привет", "a\u0301e\u0301", "x\u3000y\xa0z"),
    *("\u16a0\u16a1 runes \u16a2", "Maria Keller flew from Berlin to Lima, and Jonas stayed in Oslo. " * 20),
]


class Named:
    """Token classifiers by name: of WordPiece, of byte-level BPE, and ones whose labels are not B and I."""

    NAMES = ("ner", "bytes", "plain", "odd")

    def __init__(self, fp: Make, root: Path) -> None:
        self.fp, self.root = fp, root
        self.made: dict[Any, Any] = {}

    def __call__(self, name: str, backend: str) -> Any:
        if name == "ner":
            return self.fp("token-classification", "ner", backend)
        if (name, backend) not in self.made:
            folder = self.root / name
            if not folder.exists():
                self.save(name, folder)
            self.made[name, backend] = fastpipe.pipeline("token-classification", model=str(folder), backend=backend)
        return self.made[name, backend]

    @staticmethod
    def save(name: str, folder: Path) -> None:
        torch.manual_seed(1)
        labels = {"bytes": NER_LABELS, "plain": ("O", "PER", "LOC"), "odd": ("X-A", "B-A", "A", "I-B-C", "B-")}[name]
        named = {"num_labels": len(labels), "id2label": dict(enumerate(labels))}
        tokenizer = byte_pairs() if name == "bytes" else wordpiece()
        if name == "bytes":
            tokenizer.add_special_tokens({"pad_token": "<pad>"})
            tokenizer.model_input_names = ["input_ids", "attention_mask"]
        config = bert_config(vocab_size=len(tokenizer), **named)
        transformers.BertForTokenClassification(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module")
def taggers(fp: Make, tmp_path_factory: pytest.TempPathFactory) -> Named:
    return Named(fp, tmp_path_factory.mktemp("taggers"))


@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("name", "backend"), [*(("ner", backend) for backend in BACKENDS), *((n, "onnxruntime") for n in Named.NAMES[1:])]
)
def test_entities(taggers: Named, backend: str, name: str, strategy: str) -> None:
    pipe = taggers(name, backend)
    texts = [text for text in WORDS if text.strip()] if name == "bytes" else WORDS
    for items in (texts, texts[3], texts[-1]):
        for ignored in ([], None, ("O", "PER", "I-PER", "A")):
            options = {"aggregation_strategy": strategy, "ignore_labels": ignored}
            short, long = both_ways(lambda: pipe(items, **options))  # noqa: B023
            assert same(short, long)
            assert any(short) or ignored != []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_texts_without_tokens(taggers: Named, strategy: str) -> None:
    pipe = taggers("ner", "onnxruntime")
    assert pipe(["", " "], aggregation_strategy=strategy) == [[], []]
    assert pipe("", aggregation_strategy=strategy) == []


def test_a_tokenizer_without_words_is_said(taggers: Named) -> None:
    with pytest.warns(UserWarning, match="does not support real words"):
        taggers("bytes", "onnxruntime")(["one two", "three"], aggregation_strategy="first")


def test_entities_of_scores_made_up(fp: Make) -> None:
    """Ties, long words and long groups, which random models do not give: bit by bit what the task's own steps give."""
    pipe = fp("token-classification", "ner", "onnxruntime")
    random = np.random.default_rng(0)
    texts = ["unbelievableness " * 3, "antidisestablishmentarianism of pseudopseudohypoparathyroidism", "one " * 40]
    for _ in range(40):
        rows = base_rows(pipe, texts)
        shapes = [(1, row.tokens, len(NER_LABELS)) for row in rows]
        drawn = [(random.normal(size=s) * 2 + [3, 0, 2, 0, 0]).astype(np.float32) for s in shapes]
        drawn[0] = np.round(drawn[0])
        answers = [{"logits": values} for values in drawn]
        for strategy in transformers.pipelines.token_classification.AggregationStrategy:
            options = {"aggregation_strategy": strategy, "ignore_labels": []}
            made = shortcuts.tokens.ENTITIES.decode(pipe, [[one] for one in zip(rows, answers, strict=True)], options)
            for row, answer, result in zip(rows, answers, made, strict=True):
                kept = {**row.inputs, "logits": torch.from_numpy(answer["logits"])}
                assert same(result, pipe.postprocess([kept], **options))


def base_rows(pipe: Any, texts: list[str]) -> Any:
    return shortcuts.tokens.ENTITIES.encode(pipe, texts, {"is_split_into_words": False})


def test_what_is_unusual_for_entities_goes_through_preprocess(taggers: Named, together: list[int]) -> None:
    pipe = taggers("ner", "onnxruntime")
    pipe(WORDS)
    pipe("alone", aggregation_strategy="simple")
    assert together == [len(WORDS), 1]
    long = pipe(["many words " * 100, "few"], stride=8, aggregation_strategy="simple", ignore_labels=[])
    assert long[0][-1]["end"] > 1000
    pipe([["split", "already"]], is_split_into_words=True)
    assert together == [len(WORDS), 1]


def test_entities_may_be_changed(taggers: Named) -> None:
    first, second = taggers("ner", "onnxruntime")(["Maria Keller", "Maria Keller"], ignore_labels=[])
    assert same(first, second)
    first[0]["word"] = "changed"
    first.pop()
    assert second[0]["word"] == "maria"
    assert len(second) == len(first) + 1


@pytest.mark.parametrize("step", ["aggregate", "get_tag", "gather_pre_entities", "group_entities"])
def test_an_inner_step_that_was_replaced_is_used(models: Models, step: str) -> None:
    pipe = fastpipe.pipeline("token-classification", model=models["ner"], backend="onnxruntime")
    calls = counted(pipe, step)
    pipe(["one two three", "four five six"], aggregation_strategy="simple", ignore_labels=[])
    assert len(calls) >= 2


CANDIDATES: list[dict[str, Any]] = [
    {"candidate_labels": ["travel", "work", "a much longer label than the others"]},
    {"candidate_labels": ["travel", "work", "travel"], "multi_label": True},
    {"candidate_labels": ["same", "same", "same"]},
    {"candidate_labels": "travel"},
    {"candidate_labels": ["travel"], "multi_label": False},
    {"candidate_labels": "one, two,three , four"},
    {"candidate_labels": [f"label {i}" for i in range(40)]},
    {"candidate_labels": ["ja", "nein 🙂", "北京"], "hypothesis_template": "Es geht um {}."},
    {"candidate_labels": ["x", ""], "hypothesis_template": "{}", "multi_label": True},
]
PREMISES = [text for text in MIXED if text] + ["🙂 🙂", " ", "Grüße aus Köln – 北京欢迎你"]


@pytest.fixture(scope="module")
def judges(fp: Make, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Any]:
    """Zero-shot classifiers by name: WordPiece with token types, byte-level BPE without."""
    folder = tmp_path_factory.mktemp("judges") / "bytes"
    made: dict[str, Any] = {}

    def judge(name: str, backend: str) -> Any:
        if name == "nli":
            return fp("zero-shot-classification", "nli", backend)
        if not folder.exists():
            torch.manual_seed(1)
            tokenizer = byte_pairs(limit=64)
            tokenizer.add_special_tokens({"pad_token": "<pad>"})
            tokenizer.model_input_names = ["input_ids", "attention_mask"]
            tokenizer.init_kwargs["model_input_names"] = tokenizer.model_input_names
            tokenizer._tokenizer.post_processor = _roberta_pairs()
            names = {0: "ENTAILMENT", 1: "neutral", 2: "contradiction"}
            config = bert_config(
                vocab_size=len(tokenizer), num_labels=3, id2label=names, label2id={n: i for i, n in names.items()}
            )
            transformers.BertForSequenceClassification(config).save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        if backend not in made:
            made[backend] = fastpipe.pipeline("zero-shot-classification", model=str(folder), backend=backend)
        return made[backend]

    return judge


def _roberta_pairs() -> Any:
    from tokenizers.processors import RobertaProcessing

    return RobertaProcessing(("<end>", 0), ("<end>", 0))


@pytest.mark.parametrize("options", CANDIDATES, ids=lambda options: str(options)[:60])
@pytest.mark.parametrize(("name", "backend"), [("nli", "openvino"), ("nli", "torch"), ("bytes", "onnxruntime")])
def test_candidates(judges: Callable[[str, str], Any], backend: str, name: str, options: dict[str, Any]) -> None:
    pipe = judges(name, backend)
    many = len(options["candidate_labels"]) > 20
    for items in (PREMISES[-4:] if many else PREMISES, PREMISES[2], "many words " * 100):
        assert same(*both_ways(lambda: pipe(items, **options)))  # noqa: B023


def test_pairs_are_the_tokenizers_own(judges: Callable[[str, str], Any]) -> None:
    """Row by row the tensors that `preprocess` makes, truncation included."""
    for name in ("nli", "bytes"):
        pipe = judges(name, "onnxruntime")
        options = {"candidate_labels": ["travel", "a much longer label"], "hypothesis_template": "On {}."}
        rows = shortcuts.entailment.CANDIDATES.encode(pipe, PREMISES, options)
        own = [inputs for text in PREMISES for inputs in pipe.preprocess(text, **options)]
        assert len(rows) == len(own)
        for row, inputs in zip(rows, own, strict=True):
            assert row.inputs.keys() == inputs.keys()
            assert all(same(row.inputs[key], inputs[key]) for key in inputs)


def test_scores_of_many_texts_are_those_of_each(judges: Callable[[str, str], Any]) -> None:
    random = np.random.default_rng(0)
    pipe = judges("nli", "onnxruntime")
    for labels in (1, 2, 3, 7, 8, 9, 16, 17, 33, 100):
        options = {"candidate_labels": [f"{n}" for n in range(labels)]}
        rows = shortcuts.entailment.CANDIDATES.encode(pipe, [f"text {n}" for n in range(5)], options)
        answered = [(row, {"logits": random.normal(size=(1, 3)).astype(np.float32) * 4}) for row in rows]
        owned = [answered[start : start + labels] for start in range(0, len(answered), labels)]
        for multi in ({}, {"multi_label": True}, {"multi_label": False}):
            made = shortcuts.entailment.CANDIDATES.decode(pipe, owned, multi)
            for parts, result in zip(owned, made, strict=True):
                outputs = [{**row.inputs, "logits": torch.from_numpy(answer["logits"])} for row, answer in parts]
                assert same(result, pipe.postprocess(outputs, **multi))


def test_each_text_is_tokenized_once(judges: Callable[[str, str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = judges("nli", "onnxruntime")
    calls: list[Any] = []
    own = type(pipe.tokenizer).__call__

    def counted(self: Any, text: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(text)
        return own(self, text, *args, **kwargs)

    pipe(["warm", "up"], candidate_labels=["a", "b"])
    monkeypatch.setattr(type(pipe.tokenizer), "__call__", counted)
    pipe(["one text", "two", "one text"], candidate_labels=["travel", "work"])
    hypotheses = [f"This example is {label}." for label in ("travel", "work")]
    assert sorted(calls[0]) == sorted(["one text", "two", *hypotheses])
    assert calls[1:] == [[["one text", hypotheses[0]]]]


def test_a_hypothesis_longer_than_the_limit(judges: Callable[[str, str], Any], together: list[int]) -> None:
    """Where no cut of the text makes room for the hypothesis, nothing is cut; the model may have places for it."""
    pipe = judges("bytes", "onnxruntime")
    rows = pipe(["fine " * 10, "short"], candidate_labels=["q w " * 13, "mill"])
    assert [row["sequence"] for row in rows] == ["fine " * 10, "short"]
    assert not together
    with pytest.raises(InputError, match="item 0"):
        judges("nli", "onnxruntime")(["fine", "short"], candidate_labels=["x", "long " * 121])


def test_candidates_at_fault(fp: Make) -> None:
    pipe = fp("zero-shot-classification", "nli", "onnxruntime")
    with pytest.raises(ValueError, match="item 1: You must include"):
        pipe(["fine", ""], candidate_labels=["a", "b"])
    with pytest.raises(ValueError, match="hypothesis_template"):
        pipe(["fine", "too"], candidate_labels=["a", "b"], hypothesis_template="no place for one")


def test_rankings_may_be_changed(fp: Make) -> None:
    pipe = fp("zero-shot-classification", "nli", "onnxruntime")
    first, second = pipe(["twice", "twice"], candidate_labels=["a", "b"])
    assert same(first, second)
    first["labels"].clear()
    first["scores"].clear()
    assert len(second["labels"]) == len(second["scores"]) == 2


def test_a_truncated_pair_is_shared_by_no_other(fp: Make, together: list[int]) -> None:
    pipe = fp("zero-shot-classification", "nli", "onnxruntime")
    results = pipe(PREMISES, candidate_labels=["a", "b"], batch_size=3)
    assert together == [len(PREMISES)]
    assert [result["sequence"] for result in results] == PREMISES
    assert list(pipe((text for text in PREMISES), candidate_labels=["a", "b"])) == results
