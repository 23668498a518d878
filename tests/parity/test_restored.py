"""Tasks that transformers 5 dropped: the answers of 4.57, next to both versions."""

from __future__ import annotations

import base64
import copy
import json
import logging
import pickle
import shutil
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

import fastpipe
from fastpipe.errors import FallbackWarning, InputError
from fastpipe.pipelines import request, restored
from fastpipe.pipelines.standin import StandIn
from tests.compare import assert_same
from tests.conftest import BACKENDS, ENGINES, V5
from tests.golden.cases import ASKED, BEIJING, CASES, GENERATED, HERE, LONG, QUESTIONS, RESULTS, RIVER, TOWER
from tests.golden.models import GoldenModels
from tests.tasks import noted

ANSWERS = json.loads(RESULTS.read_text(encoding="utf-8"))
OF_MODELS = {
    "question-answering": "qa",
    "text2text-generation": "prefixed",
    "summarization": "summarizer",
    "translation": "translator",
    "visual-question-answering": "answerer",
    "image-to-text": "captioner",
    "image-to-image": "enlarger",
}
every_task = pytest.mark.parametrize("task", OF_MODELS)
only_next_to_5 = pytest.mark.skipif(not V5, reason="transformers 4 has these tasks itself")
only_next_to_4 = pytest.mark.skipif(V5, reason="transformers 5 does not say what 4 had")
Make = Callable[..., Any]


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> GoldenModels:
    return GoldenModels(tmp_path_factory.mktemp("golden"))


@cache
def _made(task: str, **options: Any) -> Any:
    return fastpipe.pipeline(task, **options)


def made(task: str, **options: Any) -> Any:
    """`fastpipe.pipeline`; those with equal arguments are made once."""
    return noted(_made(task, **options))


def assert_golden(got: Any, wanted: Any) -> None:
    """Numbers within 1e-4, text and offsets exactly, images within one step of a byte."""
    if isinstance(wanted, dict) and "bytes" in wanted:
        assert (got["mode"], got["size"]) == (wanted["mode"], wanted["size"])
        ours, theirs = (
            np.frombuffer(base64.b64decode(image["bytes"]), np.uint8).astype(int) for image in (got, wanted)
        )
        assert abs(ours - theirs).max() <= 1
    elif isinstance(wanted, list) and len(got) == len(wanted):
        for one, other in zip(got, wanted, strict=True):
            assert_golden(one, other)
    else:
        assert_same(got, wanted)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", CASES)
def test_the_answers_of_4_57(golden: GoldenModels, name: str) -> None:
    case = CASES[name]
    assert_golden(case.answer(made, golden[case.model], backend="torch"), ANSWERS[name])


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("backend", ENGINES)
def test_the_answers_of_4_57_on_engines(golden: GoldenModels, backend: str, name: str) -> None:
    """FP-12: in fp32, with the same candidates in the same order where their scores differ by more than engines do."""
    case = QUESTIONS[name]
    if (case.model, backend) == ("by words", "onnxruntime"):
        pytest.skip("one engine has shown that slow tokenizers need nothing of engines")
    wanted = ANSWERS[f"questions: {name}"]
    got = case.answer(made, golden[case.model], backend=backend, precision="fp32")
    if name == "more answers than there are":  # answers of probability 0 are in any order
        got, wanted = got[:3], wanted[:3]
    assert_golden(got, wanted)


@every_task
def test_classes_and_names(golden: GoldenModels, task: str) -> None:
    pipe = made(task, model=golden[OF_MODELS[task]], device="cpu", backend="torch")
    kind = {"qa": "QuestionAnswering", "prefixed": "Text2TextGeneration"}.get(OF_MODELS[task])
    kind = kind or "".join(word.title() if word != "to" else "To" for word in task.split("-"))
    assert isinstance(pipe, restored.by_name(f"{kind}Pipeline"))
    assert isinstance(pipe, transformers.Pipeline)
    assert type(pipe).__name__ == f"Fast{kind}Pipeline"
    assert getattr(restored, f"{kind}Pipeline") is restored.by_name(f"{kind}Pipeline")
    assert pipe.task == task
    assert pipe.framework == "pt"
    assert not hasattr(pipe.model.config, "custom_pipelines")


@every_task
def test_copies_and_pickles_answer_alike(golden: GoldenModels, task: str) -> None:
    case = next(case for case in CASES.values() if (case.task, case.model) == (task, OF_MODELS[task]))
    pipe = made(task, model=golden[case.model], device="cpu", backend="torch")
    wanted = case.call(pipe)
    for twin in (pickle.loads(pickle.dumps(pipe)), copy.deepcopy(pipe)):
        assert type(twin) is type(pipe)
        got = case.call(twin)
        assert got == wanted if task == "image-to-image" else assert_same(got, wanted) is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_line_says_that_a_task_is_restored(golden: GoldenModels, caplog: pytest.LogCaptureFixture, backend: str):
    caplog.set_level(logging.INFO, logger="fastpipe")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipe = fastpipe.pipeline("question-answering", model=golden["qa"], backend=backend, precision="fp32")
    assert pipe.plan.backend == backend
    said = [
        (r.levelname, r.getMessage()) for r in caplog.records if r.name == "fastpipe" and "restore" in r.getMessage()
    ]
    message = f"transformers {transformers.__version__} has dropped question-answering: fastpipe restores it"
    assert said == ([("INFO", message)] if V5 else [])


def test_the_plan_says_why_torch_runs_it(golden: GoldenModels) -> None:
    with pytest.warns(FallbackWarning, match="image-to-image has no engine path yet") as caught:
        pipe = fastpipe.pipeline("image-to-image", model=golden["enlarger"])
    assert len(caught) == 1
    assert pipe.plan.backend == "torch"


@only_next_to_5
@pytest.mark.parametrize("task", ["question-answering", "summarization", "translation_en_to_fr", "vqa"])
def test_transformers_own_pipeline_is_left_as_it_is(golden: GoldenModels, task: str) -> None:
    name = restored.find(task).name  # type: ignore[union-attr]
    fastpipe.pipeline(task, model=golden[OF_MODELS[name]], backend="torch")
    with pytest.raises(KeyError, match="has been removed"):
        transformers.pipeline(task, model=golden[OF_MODELS[name]])
    assert name not in transformers.pipelines.PIPELINE_REGISTRY.supported_tasks


@only_next_to_4
@every_task
def test_what_4_57_had(task: str) -> None:
    dropped = restored._TASKS[task]
    assert restored.find(task) is None
    theirs = transformers.pipelines.SUPPORTED_TASKS[task]
    assert dropped.class_name == theirs["impl"].__name__
    assert [dropped.auto_class] == [kind.__name__.replace("Vision2Seq", "ImageTextToText") for kind in theirs["pt"]]
    models = theirs["default"]
    if task == "translation":
        models = {f"translation_{a}_to_{b}": default["model"]["pt"] for (a, b), default in models.items()}
    else:
        models = {task: models["model"]["pt"]}
    assert dropped.defaults == models


@pytest.mark.parametrize("task", ["translation_en", "translation_en_fr", "translation_en_into_fr", "translations"])
def test_translations_that_are_named_wrongly(golden: GoldenModels, task: str) -> None:
    with pytest.raises(KeyError, match="translation"):
        fastpipe.pipeline(task, model=golden["translator"])


@pytest.mark.parametrize(
    ("task", "model"),
    [
        ("question-answering", "distilbert/distilbert-base-cased-distilled-squad"),
        ("summarization", "sshleifer/distilbart-cnn-12-6"),
        pytest.param("translation_en_to_ro", "google-t5/t5-base", marks=only_next_to_5),  # 4.57 does not name it
        ("vqa", "dandelin/vilt-b32-finetuned-vqa"),
    ],
)
def test_default_models(task: str, model: str) -> None:
    """None is here, and the error says which one was looked for."""
    with pytest.raises(OSError, match=model):
        fastpipe.pipeline(task)


@pytest.mark.parametrize("task", ["translation", "translation_fr_to_en"])
def test_translations_without_a_default_model(task: str) -> None:
    with pytest.raises(ValueError, match=r"translation|default"):
        fastpipe.pipeline(task)


@pytest.mark.parametrize(
    ("tag", "task"),
    [
        ("question-answering", "question-answering"),
        ("translation", "translation"),
        ("image-to-text", "image-to-text"),
        ("image-text-to-text", "image-text-to-text"),
        ("text-classification", "text-classification"),
    ],
)
def test_a_task_that_the_hub_names(monkeypatch: pytest.MonkeyPatch, tag: str, task: str) -> None:
    def get_task(model: str, token: Any) -> str:
        if V5 and tag == "image-to-text":  # what it stands for there, with a line that says so
            return "image-text-to-text"
        return transformers.pipelines._resolve_deprecated_task(tag) if V5 else tag

    monkeypatch.setattr(request, "get_task", get_task)
    monkeypatch.setattr(
        request, "model_info", lambda model, token: huggingface_hub.ModelInfo(id=model, pipeline_tag=tag)
    )
    assert request._inferred_task("me/tiny", None) == task


def test_tokenizers_and_models_as_they_may_be_given(golden: GoldenModels) -> None:
    folder = golden["qa"]
    wanted = ANSWERS["questions: one"]
    ask = {"question": "Where is the mill?", "context": RIVER}
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForQuestionAnswering.from_pretrained(folder)
    for given in (folder, (folder, {"use_fast": True}), tokenizer):
        pipe = fastpipe.pipeline("question-answering", model=folder, tokenizer=given, backend="torch")
        assert_same(pipe(**ask), wanted)
    pipe = fastpipe.pipeline("question-answering", Path(folder), config=folder, backend="torch", framework="pt")
    assert_same(pipe(**ask), wanted)
    pipe = fastpipe.pipeline("question-answering", model=model, tokenizer=tokenizer, backend="torch")
    assert_same(pipe(**ask), wanted)
    assert not hasattr(model.config, "custom_pipelines")
    with pytest.raises(Exception, match="tokenizer"):
        fastpipe.pipeline("question-answering", model=model, backend="torch")


def test_a_class_of_the_users_own(golden: GoldenModels) -> None:
    class Loud(restored.by_name("QuestionAnsweringPipeline")):  # type: ignore[misc]
        def postprocess(self, *args: Any, **kwargs: Any) -> Any:
            return {**super().postprocess(*args, **kwargs), "loud": True}

    pipe = fastpipe.pipeline("question-answering", model=golden["qa"], pipeline_class=Loud, backend="torch")
    assert type(pipe) is Loud
    assert pipe(question="Where is the mill?", context=RIVER)["loud"]
    assert len(pipe(ASKED, batch_size=2, **LONG)) == 2


@pytest.mark.parametrize("options", [{"dtype": "bfloat16"}, {"model_kwargs": {"dtype": torch.bfloat16}}])
def test_dtypes(golden: GoldenModels, options: dict[str, Any]) -> None:
    for task in ("question-answering", "summarization", "image-to-image"):
        pipe = fastpipe.pipeline(task, model=golden[OF_MODELS[task]], backend="torch", **copy.deepcopy(options))
        assert pipe.dtype == torch.bfloat16
    answer = fastpipe.pipeline("question-answering", model=golden["qa"], backend="torch", **copy.deepcopy(options))(
        ASKED[0]
    )
    assert isinstance(answer["score"], float)
    assert answer["answer"] == RIVER[answer["start"] : answer["end"]]


def test_devices(golden: GoldenModels) -> None:
    for device in (-1, "cpu", torch.device("cpu")):
        pipe = fastpipe.pipeline("translation_en_to_fr", model=golden["translator"], device=device, backend="torch")
        assert pipe.device.type == "cpu"
    with pytest.raises(RuntimeError, match="cuda"):
        fastpipe.pipeline("translation_en_to_fr", model=golden["translator"], device="cuda:0", backend="torch")


@pytest.mark.parametrize("task", ["question-answering", "visual-question-answering"])
def test_everything_comes_from_the_revision(golden: GoldenModels, tmp_path: Path, task: str) -> None:
    repository = Path(huggingface_hub.constants.HF_HUB_CACHE, "models--me--dropped")
    name = OF_MODELS[task]
    asked = (ASKED[0],) if name == "qa" else ({"image": HERE, "question": "What?"},)
    try:
        for seed, (branch, commit) in enumerate({"main": "a" * 40, "v1": "b" * 40}.items()):
            folder = golden.save(name, tmp_path / branch, seed)
            shutil.copytree(folder, repository / "snapshots" / commit)
            (repository / "refs").mkdir(exist_ok=True)
            (repository / "refs" / branch).write_text(commit)
        for revision, branch in (("v1", "v1"), (None, "main"), ("b" * 40, "v1")):
            pipe = fastpipe.pipeline(task, model="me/dropped", revision=revision, token="hf_none", backend="torch")
            wanted = fastpipe.pipeline(task, model=str(tmp_path / branch), backend="torch")
            assert_same(pipe(*asked), wanted(*asked))
    finally:
        shutil.rmtree(repository)


@every_task
def test_a_saved_pipeline_is_loaded_by_both(golden: GoldenModels, tmp_path: Path, task: str) -> None:
    pipe = made(task, model=golden[OF_MODELS[task]], device="cpu", backend="torch")
    pipe.save_pretrained(tmp_path)
    assert "custom_pipelines" not in json.loads((tmp_path / "config.json").read_text())
    assert type(fastpipe.pipeline(task, model=str(tmp_path), backend="torch")) is type(pipe)


# Question answering


@pytest.fixture(params=BACKENDS)
def questions(request: pytest.FixtureRequest, golden: GoldenModels) -> Any:
    return made("question-answering", model=golden["qa"], backend=request.param, precision="fp32")


@pytest.mark.parametrize(
    ("asked", "kind", "said"),
    [
        ({"question": "", "context": RIVER}, ValueError, "`question` cannot be empty"),
        ({"question": "Where?", "context": ""}, ValueError, "`context` cannot be empty"),
        ({"question": ["Where?", "Who?"], "context": [RIVER, ""]}, ValueError, "`context` cannot be empty"),
        ({"question": ["Where?", "Who?"], "context": [RIVER]}, ValueError, "uestions"),
        ({"question": "Where?", "context": RIVER, "top_k": 0}, ValueError, "top_k"),
        ({"question": "Where?", "context": RIVER, "max_answer_len": 0}, ValueError, "max_answer_len"),
        ({"question": "Where?", "context": TOWER, "max_seq_len": 64, "doc_stride": 65}, ValueError, "doc_stride"),
        ({"question": "Where?"}, ValueError, "question"),
        ({"question": "Where?", "context": None}, (ValueError, TypeError), "None"),
        ({"question": "Where?", "context": [RIVER]}, ValueError, ""),
    ],
)
def test_questions_that_cannot_be_asked(questions: Any, asked: dict[str, Any], kind: type, said: str) -> None:
    with pytest.raises(kind, match=said):
        questions(**asked)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_dicts_that_are_no_questions(questions: Any) -> None:
    with pytest.raises(KeyError, match="context"):
        questions([{"question": "Where?"}])
    with pytest.raises(ValueError, match=r"a text|SquadExample"):
        questions(["Where?", "Who?", "What?"])
    assert questions([]) == []


def test_a_stride_without_room_is_an_ordinary_error(questions: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """FP-12: the tokenizer would panic, which `except Exception` does not catch."""
    for stride in (59, 60, 61):
        with pytest.raises(InputError, match=f"doc_stride={stride}.*59 tokens"):
            questions(question="Where?", context=TOWER, max_seq_len=64, doc_stride=stride)
    with pytest.raises(InputError, match="doc_stride") as raised:
        questions(question=["Where?"] * 3, context=["Paris", TOWER, RIVER], max_seq_len=64, doc_stride=60)
    assert raised.value.index == 1
    assert "item 1" in str(raised.value)
    long_question = "Where is the tower, and how high is it? " * 8
    with pytest.raises(InputError, match="doc_stride=64"):  # by default, half of what the model takes
        questions(question=long_question, context=TOWER)
    assert "panicked" not in capfd.readouterr().err
    # Where the context fits into one window there is nothing to overlap.
    assert questions(question="Where?", context="Paris", max_seq_len=64, doc_stride=60)["answer"] == "Paris"
    assert questions(question="Where?", context=TOWER, max_seq_len=64, doc_stride=58)["answer"]


def test_the_topk_of_old(questions: Any) -> None:
    with pytest.warns(UserWarning, match="topk"):
        old = questions(question="Where?", context=RIVER, topk=2)
    assert_same(old, questions(question="Where?", context=RIVER, top_k=2))


def test_answers_are_parts_of_their_contexts(questions: Any) -> None:
    for context in (RIVER, TOWER, BEIJING, BEIJING * 6):
        for answer in questions(question="在哪里？ Where?", context=context, top_k=4, **LONG):
            assert context[answer["start"] : answer["end"]] == answer["answer"]


@pytest.mark.parametrize("backend", ["openvino", "torch"])
def test_a_model_without_token_types(golden: GoldenModels, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """The task's default model is one: no batch has token types, and each row is answered by its batch."""
    pipe = made("question-answering", model=golden["distilled"], backend=backend, precision="fp32")
    contexts, answered = [RIVER, TOWER, "Paris"], []
    alone = [pipe(question="Where?", context=context, **LONG) for context in contexts]
    output = StandIn._output
    monkeypatch.setattr(StandIn, "_output", lambda self: answered.append(self) or output(self))
    assert_same(pipe(question=["Where?"] * 3, context=contexts, **LONG), alone, 1e-5)
    assert len(answered) > 3


def test_chunks_share_batches(questions: Any) -> None:
    """FP-18: with any batch size, and whatever else is asked."""
    asked = {
        "question": ["Where?", "How high?", "Who?", "在哪里？"],
        "context": [TOWER, TOWER, RIVER, BEIJING * 4],
        **LONG,
    }
    alone = [questions(question=q, context=c, **LONG) for q, c in zip(asked["question"], asked["context"], strict=True)]
    for batch_size in (None, 1, 3, 64):
        assert_same(questions(**asked, batch_size=batch_size), alone, 1e-5)


# Texts


def test_texts_that_are_none(golden: GoldenModels) -> None:
    pipe = made("summarization", model=golden["summarizer"], device="cpu", backend="torch")
    for wrong in (None, 5, {"text": "the mill"}):
        with pytest.raises(TypeError):
            pipe(wrong)
    assert pipe([]) == []


def test_a_stop_sequence_of_several_tokens(golden: GoldenModels) -> None:
    pipe = made("text2text-generation", model=golden["prefixed"], device="cpu", backend="torch")
    with pytest.warns(UserWarning, match="first"):
        pipe("the mill", stop_sequence="xyz mill", max_new_tokens=3)


def test_languages_reach_the_tokenizer(golden: GoldenModels, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def build(text: str, **options: Any) -> Any:
        seen.append((text, options["src_lang"], options["tgt_lang"]))
        return pipe.tokenizer(text, return_tensors=options["return_tensors"], truncation=options["truncation"])

    pipe = fastpipe.pipeline("translation_en_to_fr", model=golden["translator"], backend="torch")
    pipe.tokenizer._build_translation_inputs = build
    pipe("the mill", max_new_tokens=2)
    pipe(["the mill"], src_lang="de_DE", tgt_lang="ro_RO", max_new_tokens=2)
    assert seen == [("the mill", "en", "fr"), ("the mill", "de_DE", "ro_RO")]


def test_the_translation_that_a_config_knows(golden: GoldenModels) -> None:
    with pytest.warns(UserWarning, match="translation_en_to_fr"):
        pipe = fastpipe.pipeline("translation", model=golden["prefixed"], backend="torch")
    assert pipe.task == "translation_en_to_fr"
    assert pipe.prefix == "translate English to French: "
    assert pipe.generation_config.num_beams == 2
    if V5:  # 4.57 takes it out of the config
        assert pipe.model.config.task_specific_params["translation_en_to_fr"]["prefix"] == pipe.prefix


def test_settings_of_a_call_replace_all_others(golden: GoldenModels) -> None:
    pipe = made("summarization", model=golden["summarizer"], device="cpu", backend="torch")
    settings = transformers.GenerationConfig(max_new_tokens=3, num_beams=1, do_sample=False)
    ids = pipe("the old mill", generation_config=settings, return_tensors=True)[0]["summary_token_ids"]
    assert len(ids) == 4
    assert pipe.generation_config.num_beams == 4
    assert pipe.model.generation_config.num_beams == 2


def test_an_assistant_drafts(golden: GoldenModels) -> None:
    folder = golden["summarizer"]
    options = {"num_beams": 1, "max_new_tokens": 6, "min_length": 0}
    wanted = made("text2text-generation", model=folder, device="cpu", backend="torch")("the old mill", **options)
    pipe = fastpipe.pipeline("text2text-generation", model=folder, assistant_model=folder, backend="torch")
    assert pipe.assistant_model is not None
    assert pipe("the old mill", **options) == wanted


# Images


def test_images_that_are_none(golden: GoldenModels) -> None:
    captions = made("image-to-text", model=golden["captioner"], device="cpu", backend="torch")
    for call, kind, said in (
        (lambda: captions(None), ValueError, ""),
        (lambda: captions("/no/such.png"), ValueError, "such.png"),
        (lambda: captions(HERE, prompt="a picture of"), ValueError, "vision-encoder-decoder"),
        (lambda: captions(HERE, prompt=["a", "b"]), ValueError, ""),
        (lambda: captions(HERE, max_new_tokens=3, generate_kwargs={"max_new_tokens": 4}), ValueError, "max_new_tokens"),
    ):
        with pytest.raises(kind, match=said):
            call()
    assert captions([]) == []


def test_images_by_path(golden: GoldenModels, tmp_path: Path) -> None:
    path = str(tmp_path / "here.png")
    HERE.save(path)
    captions = made("image-to-text", model=golden["captioner"], device="cpu", backend="torch")
    assert captions(path, max_new_tokens=4) == captions(HERE, max_new_tokens=4)
    larger = made("image-to-image", model=golden["enlarger"], device="cpu", backend="torch")
    assert larger([path])[0] == larger(HERE)
    answers = made("vqa", model=golden["answerer"], device="cpu", backend="torch")
    assert answers.task == "vqa"
    assert_same(answers(image=path, question="What?"), answers(HERE, "What?"))


def test_the_cases_cover_every_task() -> None:
    assert {task.name for task in restored._TASKS.values()} == set(OF_MODELS)
    assert {case.task for case in GENERATED.values()} >= {"summarization", "translation", "text2text-generation"}
    assert set(ANSWERS) == set(CASES)
