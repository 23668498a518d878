"""Answers that pipelines are known to get wrong: wrong slot, wrong shape, wrong window, wrong pixels."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from transformers.pipelines.pt_utils import KeyDataset

import fastpipe
from tests.compare import assert_same
from tests.conftest import BACKENDS, ENGINES, V5
from tests.models import Models

Make = Callable[..., Any]
BATCH_SIZES = (None, 1, 2, 7, 8, 64)
every_backend = pytest.mark.parametrize("backend", BACKENDS)


class Rows(torch.utils.data.Dataset):
    def __init__(self, items: list[Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, position: int) -> Any:
        return self.items[position]


# FP-01


@pytest.fixture(scope="module")
def slots(ref: Make) -> Callable[[str], Any]:
    """What one text alone gives, each text run once."""
    reference, seen = ref("text-classification", "seqcls"), {}

    def result(text: str) -> Any:
        if text not in seen:
            seen[text] = reference(text, truncation=True, top_k=None)
        return seen[text]

    return result


@pytest.mark.parametrize("form", ["list", "generator", "KeyDataset"])
@pytest.mark.parametrize("batch_size", BATCH_SIZES)
@every_backend
def test_every_result_is_in_the_slot_of_its_input(
    fp: Make, slots: Callable[[str], Any], backend: str, batch_size: int | None, form: str
) -> None:
    """FP-01: sorting by length neither shuffles results nor the caller's list; equal texts get equal results."""
    texts = ["z " * n + "tail" for n in (40, 1, 7, 7, 90, 3, 1, 55)] * 9
    given_texts = list(texts)
    inputs = {
        "list": given_texts,
        "generator": (text for text in texts),
        "KeyDataset": KeyDataset(Rows([{"text": text} for text in texts]), "text"),
    }[form]
    pipe = fp("text-classification", "seqcls", backend)
    results = list(pipe(inputs, batch_size=batch_size, truncation=True, top_k=None))
    assert given_texts == texts
    assert_same(results, [slots(text) for text in texts])
    firsts = [results[texts.index(text)] for text in texts]
    # A list runs equal texts once. Equal texts in two windows of a generator run beside other texts, which may change
    # the last bits.
    assert_same(results, firsts, tolerance=0 if form == "list" else 1e-5)


@every_backend
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.sampled_from(["", "a", "b", "a b", "b a", "a b c", "c b a", "a b c d e f g h"]), max_size=20),
    batch_size=st.sampled_from([None, 1, 2, 3, 7]),
    lazily=st.booleans(),
)
def test_no_order_duplicates_or_ties_move_a_result(
    fp: Make, slots: Callable[[str], Any], backend: str, texts: list[str], batch_size: int | None, lazily: bool
) -> None:
    """FP-01: any list of short texts, most of them of equal length."""
    pipe = fp("text-classification", "seqcls", backend)
    inputs = (text for text in texts) if lazily else texts
    results = list(pipe(inputs, batch_size=batch_size, truncation=True, top_k=None))
    assert_same(results, [slots(text) for text in texts])


@every_backend
def test_equal_inputs_do_not_share_one_result(fp: Make, backend: str) -> None:
    """FP-01: what a caller does to one result stays with that result."""
    pipe = fp("feature-extraction", "feat", backend)
    results = pipe(["same", "other words", "same"], return_tensors=True)
    kept = results[2].clone()
    results[0].zero_()
    assert torch.equal(results[2], kept)
    labels = fp("text-classification", "seqcls", backend)(["same", "same"])
    labels[0]["label"] = "changed"
    assert labels[1]["label"] != "changed"


# FP-02


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
@every_backend
def test_token_features_carry_no_padding(fp: Make, ref: Make, backend: str, batch_size: int | None) -> None:
    """FP-02: shapes are those of single calls, with an explicit batch size too."""
    texts = ["a", "a b c d e f g", "", "a b", "word " * 60]
    pipe, reference = fp("feature-extraction", "feat", backend), ref("feature-extraction", "feat")
    results = pipe(texts, batch_size=batch_size)
    shapes = [np.array(result).shape for result in results]
    assert shapes == [(1, 3, 64), (1, 9, 64), (1, 2, 64), (1, 4, 64), (1, 62, 64)]
    assert type(results[0][0][0][0]) is float
    for result, text in zip(results, texts, strict=True):
        wanted = np.array(reference(text))
        np.testing.assert_allclose(np.array(result), wanted, atol=1e-3, rtol=0)
        np.testing.assert_allclose(np.array(result)[0, -1], wanted[0, -1], atol=1e-3, rtol=0)  # not a pad
    tensors = pipe(texts, batch_size=batch_size, return_tensors=True)
    assert [(type(t), tuple(t.shape), t.dtype) for t in tensors] == [(torch.Tensor, s, torch.float32) for s in shapes]


# FP-04


CLASSIFIED = ("hello world", "the old mill", "the old mill still turns, and the river runs past", "a", "hello world")


@every_backend
def test_a_decoder_without_a_pad_token_classifies(fp: Make, ref: Make, backend: str) -> None:
    """FP-04: transformers runs it one text at a time, so lists work here, whatever the batch size."""
    pipe, reference = fp("text-classification", "gpt2cls", backend), ref("text-classification", "gpt2cls")
    wanted = [reference(text, top_k=None) for text in CLASSIFIED]
    assert pipe.tokenizer.pad_token is None
    for batch_size in (None, 1, 2, 64):
        assert_same(pipe(list(CLASSIFIED), top_k=None, batch_size=batch_size), wanted)
    assert_same(pipe(CLASSIFIED[1], top_k=None), wanted[1])


@pytest.mark.parametrize("side", ["left", "right"])
@every_backend
def test_a_decoder_with_a_pad_token_reads_the_last_word_and_not_a_pad(models: Models, backend: str, side: str) -> None:
    """FP-04: batches give the results of single texts for both padding sides."""
    model, tokenizer = models.make("gpt2cls")
    tokenizer.add_special_tokens({"pad_token": "<pad>"})
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.config.pad_token_id = tokenizer.pad_token_id
    tokenizer.padding_side = side
    reference = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    wanted = [reference(text, top_k=None) for text in CLASSIFIED]
    pipe = fastpipe.pipeline("text-classification", model=model, tokenizer=tokenizer, backend=backend, device="cpu")
    for batch_size in (None, 2, 64):
        assert_same(pipe(list(CLASSIFIED), top_k=None, batch_size=batch_size), wanted)
    assert tokenizer.padding_side == side


# FP-05


@pytest.fixture(scope="module")
def waves() -> list[np.ndarray[Any, Any]]:
    noise = np.random.default_rng(0).standard_normal(48_000).astype("float32")
    return [noise, noise[:8_000], noise[:24_000], noise[8_000:11_000]]


@pytest.mark.parametrize("batch_size", [None, 1, 3])
def test_waveforms_are_not_padded_where_padding_changes_the_transcript(
    fp: Make, ref: Make, waves: list[np.ndarray[Any, Any]], batch_size: int | None
) -> None:
    """FP-05: three clips give three single calls' transcripts; no batch size is a licence to change them."""
    reference = ref("automatic-speech-recognition", "wav2vec2")
    wanted = [reference(wave.copy()) for wave in waves]
    assert len({result["text"] for result in wanted}) == len(waves)
    pipe = fp("automatic-speech-recognition", "wav2vec2")
    assert_same(pipe([wave.copy() for wave in waves], batch_size=batch_size), wanted)
    assert_same(list(pipe((wave.copy() for wave in waves), batch_size=batch_size)), wanted)


# FP-07


@pytest.mark.parametrize("backend", ENGINES)
def test_padding_and_truncation_stored_with_a_tokenizer_have_no_effect(fp: Make, backend: str) -> None:
    """FP-07: MiniLM's own tokenizer.json pads everything to 128 tokens and cuts the rest."""
    pipe = fp("feature-extraction", "minilm", backend)
    texts = ["word " * 300, "hello", "word " * 127, "word " * 129]
    shapes = [np.array(result).shape for result in pipe(texts)]
    assert shapes == [(1, 302, 384), (1, 3, 384), (1, 129, 384), (1, 131, 384)]
    assert np.array(pipe("hello")).shape == (1, 3, 384)
    assert np.array(pipe("word " * 700, truncation=True)).shape == (1, 512, 384)


@pytest.mark.parametrize("backend", ENGINES)
def test_pooled_embeddings_are_those_of_sentence_transformers(fp: Make, models: Models, backend: str) -> None:
    """FP-07: mean-pooled and normalized, up to the length where sentence-transformers cuts."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    texts = [
        "hello",
        "",
        "北京欢迎你",
        "🙂🙂🙂",
        "def f(x): return x + 1",
        "The ferry leaves at nine. " * 30,
        "word " * 130,
    ]
    wanted = sentence_transformers.SentenceTransformer(models["minilm"], device="cpu").encode(
        texts, normalize_embeddings=True
    )
    hidden = fp("feature-extraction", "minilm", backend)(texts, return_tensors=True)
    for text, tokens, embedding in zip(texts, hidden, wanted, strict=True):
        pooled = tokens[0].mean(dim=0).numpy()
        cosine = float(pooled @ embedding / np.linalg.norm(pooled) / np.linalg.norm(embedding))
        assert cosine >= 0.99999, text


# FP-09


LABELLED = {
    "one text": "hello",
    "another text": "a longer text, with more words in it",
    "a list of one": ["hello"],
    "a list": ["hello", "no", ""],
    "a pair": {"text": "hello", "text_pair": "you"},
}


@pytest.mark.parametrize("options", [{}, {"top_k": 1}, {"top_k": 2}, {"top_k": None}, {"top_k": 99}])
@pytest.mark.parametrize("made_with", [{}, {"top_k": 1}, {"top_k": None}, {"function_to_apply": "none"}])
@pytest.mark.parametrize("model", ["seqcls", "regr", "multilabel"])
@pytest.mark.parametrize("backend", ["openvino", "torch"])
def test_nesting_and_activation_of_classification(
    fp: Make, ref: Make, backend: str, model: str, made_with: dict[str, Any], options: dict[str, Any]
) -> None:
    """FP-09: the same lists of lists, wherever `top_k` was given, and the activation of the head's problem type."""
    pipe = fp("text-classification", model, backend, **made_with)
    reference = ref("text-classification", model, **made_with)
    for name, inputs in LABELLED.items():
        assert_same(pipe(inputs, **options), reference(inputs, **options), where=name)


@pytest.mark.parametrize("activation", ["sigmoid", "softmax", "none"])
@pytest.mark.parametrize("model", ["seqcls", "regr", "multilabel"])
@every_backend
def test_an_activation_given_by_name(fp: Make, ref: Make, backend: str, model: str, activation: str) -> None:
    """FP-09: `function_to_apply` wins over what the head's problem type asks for."""
    pipe, reference = fp("text-classification", model, backend), ref("text-classification", model)
    wanted = reference("hello", top_k=None, function_to_apply=activation)
    assert_same(pipe("hello", top_k=None, function_to_apply=activation), wanted)
    assert_same(pipe(["hello"] * 2, top_k=None, function_to_apply=activation, batch_size=2), [wanted] * 2)


@every_backend
def test_shapes_of_classification_as_documented(fp: Make, backend: str) -> None:
    """FP-09: the table of shapes itself, without a look at what transformers does today."""
    pipe = fp("text-classification", "seqcls", backend)
    for result in (pipe("hello"), pipe(["hello"]), pipe("hello", top_k=1)):
        assert [set(entry) for entry in result] == [{"label", "score"}]
    flat = pipe("hello", top_k=None)
    assert [entry["label"] for entry in flat] != []
    assert [entry["score"] for entry in flat] == sorted((entry["score"] for entry in flat), reverse=True)
    assert sum(entry["score"] for entry in flat) == pytest.approx(1)
    assert pipe(["hello"], top_k=None) == [flat]
    assert pipe("hello", top_k=99) == flat
    assert fp("text-classification", "seqcls", backend, top_k=1)("hello") == [flat[:1]]
    one_label = fp("text-classification", "regr", backend)
    logit = one_label("hello", function_to_apply="none")[0]["score"]
    assert one_label("hello")[0]["score"] == pytest.approx(1 / (1 + np.exp(-logit)))
    independent = fp("text-classification", "multilabel", backend)("hello", top_k=None)
    assert sum(entry["score"] for entry in independent) != pytest.approx(1, abs=0.05)


# FP-11


LONG = "Angela Merkel-Schmidt lives in Paris and works in São Paulo. "


@pytest.mark.parametrize("strategy", ["none", "simple", "first", "average", "max"])
@every_backend
def test_entities_of_long_texts_in_overlapping_windows(fp: Make, ref: Make, backend: str, strategy: str) -> None:
    """FP-11: no entity is lost, doubled or handed to another text, whatever windows share a batch."""
    options = {"aggregation_strategy": strategy} if strategy == "none" else {
        "aggregation_strategy": strategy, "stride": 16,
    }  # fmt: skip
    texts = [LONG * 12, "Bob", LONG * 5, "Bob", LONG * 12, ""]
    pipe = fp("token-classification", "ner", backend, **options)
    reference = ref("token-classification", "ner", **options)
    wanted = [reference(text) for text in texts]
    for batch_size in (None, 1, 2, 4, 64):
        assert_same(pipe(texts, batch_size=batch_size), wanted)
    assert_same(list(pipe((text for text in texts), batch_size=4)), wanted)
    for entities, text in zip(wanted, texts, strict=True):
        assert all(0 <= entity["start"] < entity["end"] <= len(text) for entity in entities)
    if strategy != "none":
        assert max(entity["end"] for entity in pipe(texts)[0]) > len(LONG) * 9  # windows reach the end of the text


@every_backend
def test_without_stride_a_long_text_is_cut_where_transformers_cuts_it(fp: Make, ref: Make, backend: str) -> None:
    """FP-11: the model's maximum, special tokens included."""
    pipe, reference = fp("token-classification", "ner", backend), ref("token-classification", "ner")
    results = pipe([LONG * 30, "Bob"] * 2, batch_size=4)
    assert_same(results, [reference(LONG * 30), reference("Bob")] * 2)
    assert max(entity["index"] for entity in reference(LONG * 30)) <= 126


@pytest.mark.parametrize("stride", [128, 129, 1000])
@every_backend
def test_a_stride_as_long_as_the_window_is_refused_by_name(fp: Make, backend: str, stride: int) -> None:
    """FP-11: it would never get to the end of the text."""
    with pytest.raises(ValueError, match="stride"):
        fp("token-classification", "ner", backend, aggregation_strategy="simple", stride=stride)(LONG)


# FP-12


TOWER = "The tower is in Paris. " * 60


@pytest.mark.parametrize("batch_size", [None, 1, 2, 4, 64])
@every_backend
def test_answers_in_long_contexts(fp: Make, ref: Make, backend: str, batch_size: int | None) -> None:
    """FP-12: the best window wins, and offsets count from the start of the context."""
    options = {"max_seq_len": 64, "doc_stride": 16}
    contexts = [TOWER, "Paris", TOWER, "It is Paris. " * 30]
    pipe, reference = fp("question-answering", "qa", backend), ref("question-answering", "qa")
    for extra in ({}, {"top_k": 3}, {"top_k": 3, "handle_impossible_answer": True}, {"max_answer_len": 2}):
        wanted = [reference(question="Where?", context=context, **options, **extra) for context in contexts]
        got = pipe(question=["Where?"] * 4, context=contexts, batch_size=batch_size, **options, **extra)
        assert_same(got, wanted)
        for context, answers in zip(contexts, got, strict=True):
            for answer in answers if isinstance(answers, list) else [answers]:
                assert context[answer["start"] : answer["end"]] == answer["answer"]


@every_backend
def test_what_questions_cannot_be_answered(fp: Make, backend: str) -> None:
    """FP-12: an empty context, and a stride without room, are ordinary errors that name what is wrong."""
    pipe = fp("question-answering", "qa", backend)
    for empty in ({"question": "Where?", "context": ""}, {"question": ["Where?"] * 2, "context": ["Paris", ""]}):
        with pytest.raises(ValueError, match="`context` cannot be empty"):
            pipe(**empty)
    for doc_stride in (59, 60, 61, 100):
        with pytest.raises(ValueError, match="doc_stride"):
            pipe(question="Where?", context=TOWER, max_seq_len=64, doc_stride=doc_stride)
    for doc_stride in (62, 63):
        with pytest.raises(ValueError, match="stride"):  # the tokenizer's own error
            pipe(question="Where?", context=TOWER, max_seq_len=64, doc_stride=doc_stride)
    assert pipe(question="Where?", context="Paris")["answer"]


# FP-13


LABELS = [f"label number {number}" for number in range(60)]


@pytest.mark.parametrize("multi_label", [False, True])
@pytest.mark.parametrize("batch_size", [None, 1, 16, 64])
@every_backend
def test_many_labels_stay_with_their_sequence(
    fp: Make, ref: Make, backend: str, batch_size: int | None, multi_label: bool
) -> None:
    """FP-13: scores are normalized over one sequence's labels, however the pairs were batched."""
    sequences = ["x y z", "short", "a much longer sequence than the others, with many words", "short"]
    options = {"candidate_labels": LABELS, "multi_label": multi_label}
    pipe, reference = fp("zero-shot-classification", "nli", backend), ref("zero-shot-classification", "nli")
    results = pipe(sequences, batch_size=batch_size, **options)
    assert [result["sequence"] for result in results] == sequences
    for got, sequence in zip(results, sequences, strict=True):
        wanted = reference(sequence, **options)
        # Some of 60 scores are nearly equal: their order is free within the tolerance.
        assert_same(dict(zip(got["labels"], got["scores"], strict=True)) | {"": got["sequence"]},
                    {label: dict(zip(wanted["labels"], wanted["scores"], strict=True))[label]
                     for label in got["labels"]} | {"": sequence})  # fmt: skip
        assert sorted(got["labels"]) == sorted(LABELS)
        assert got["scores"] == sorted(got["scores"], reverse=True)
        if not multi_label:
            assert sum(got["scores"]) == pytest.approx(1)


@every_backend
def test_forms_of_zero_shot_calls(fp: Make, ref: Make, backend: str) -> None:
    """FP-13: one sequence gives a dict and a list gives a list; labels in one string are split at the comma."""
    pipe, reference = fp("zero-shot-classification", "nli", backend), ref("zero-shot-classification", "nli")
    for sequences in ("x y z", ["x y z"], ["x y z", "short"]):
        for labels in ("sport, politics", ["sport", "politics"], "sport", ["sport"]):
            for template in ("This example is {}.", "{}"):
                options = {"candidate_labels": labels, "hypothesis_template": template}
                assert_same(pipe(sequences, **options), reference(sequences, **options))
    assert isinstance(pipe("x y z", candidate_labels="sport, politics"), dict)
    assert isinstance(pipe(["x y z", "short"], candidate_labels="sport, politics"), list)


@every_backend
def test_zero_shot_calls_without_labels_or_their_place(fp: Make, backend: str) -> None:
    """FP-13: both are named."""
    pipe = fp("zero-shot-classification", "nli", backend)
    for sequences in ("x y z", ["x y z", "short"]):
        for labels in ([], ""):
            with pytest.raises(ValueError, match="label"):
                pipe(sequences, candidate_labels=labels)
        with pytest.raises(ValueError, match="hypothesis_template"):
            pipe(sequences, candidate_labels=["sport"], hypothesis_template="no place for the label")


# FP-17


@pytest.fixture(scope="module")
def image() -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def _variants(image: Image.Image) -> Iterator[Image.Image]:
    yield image
    yield image.convert("L")
    yield image.convert("RGBA")
    yield image.convert("RGBA").resize((10, 200))
    yield image.convert("P")
    yield image.convert("1")
    yield image.convert("CMYK")
    yield image.convert("LA").resize((300, 7))


@pytest.mark.parametrize("batch_size", [None, 1, 4, 64])
def test_images_of_every_mode_and_size_in_one_call(
    fp: Make, ref: Make, image: Image.Image, batch_size: int | None
) -> None:
    """FP-17: greyscale, palette and transparent images neither crash nor shift channels."""
    pipe, reference = fp("image-classification", "vit"), ref("image-classification", "vit")
    images = list(_variants(image))
    wanted = [reference(one.copy()) for one in images]
    assert_same(pipe(images, batch_size=batch_size), wanted)
    assert_same(list(pipe((one for one in images), batch_size=batch_size)), wanted)
    assert_same(wanted[2], wanted[0], tolerance=0)  # an opaque RGBA image is the RGB image
    assert not np.allclose(wanted[0][0]["score"], wanted[1][0]["score"], atol=1e-4)


def test_images_from_files_and_arrays(fp: Make, ref: Make, image: Image.Image, tmp_path: Path) -> None:
    """FP-17: a path is opened, a missing file is named, and an array does what it does in transformers."""
    pipe, reference = fp("image-classification", "vit"), ref("image-classification", "vit")
    path = str(tmp_path / "image.png")
    image.save(path)
    assert_same(pipe(path), reference(image))
    assert_same(pipe([path, image]), [reference(image)] * 2)
    for inputs in ("/no/such.png", ["/no/such.png"], [path, "/no/such.png"]):
        with pytest.raises(ValueError, match=r"/no/such\.png"):
            pipe(inputs)
    array = np.asarray(image)
    if V5:
        assert_same(pipe(array), reference(array))
        assert_same(pipe([array, image]), [reference(array), reference(image)])
    else:
        with pytest.raises(TypeError):
            pipe(array)


def test_permuted_images_keep_their_results(fp: Make, ref: Make, image: Image.Image) -> None:
    """FP-17: an image's result does not depend on its neighbours in a batch."""
    pipe, reference = fp("image-classification", "vit"), ref("image-classification", "vit")
    images = list(_variants(image))[1:5]
    wanted = [reference(one) for one in images]
    for order in itertools.permutations(range(4)):
        assert_same(pipe([images[i] for i in order], batch_size=4), [wanted[i] for i in order])
