"""The object that `fastpipe.pipeline` gives: what transformers' own object is and does."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import fastpipe
from fastpipe.pipelines import restored
from tests.compare import assert_same
from tests.conftest import BACKENDS, ENGINES, V5
from tests.integration.jobs import deadline

TEXTS = ["a small river", "the old mill stands", "", "a small river", "runs " * 40]
ENCODERS = [
    ("text-classification", "seqcls", "TextClassificationPipeline"),
    ("zero-shot-classification", "nli", "ZeroShotClassificationPipeline"),
    ("token-classification", "ner", "TokenClassificationPipeline"),
    ("fill-mask", "mlm", "FillMaskPipeline"),
    ("feature-extraction", "feat", "FeatureExtractionPipeline"),
    ("question-answering", "qa", "QuestionAnsweringPipeline"),
]
Make = Callable[..., Any]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def pipe(fp: Make, backend: str) -> Any:
    return fp("text-classification", "seqcls", backend)


@pytest.mark.parametrize(("task", "name", "kind"), ENCODERS)
def test_it_is_an_instance_of_the_tasks_own_class(fp: Make, backend: str, task: str, name: str, kind: str):
    made = fp(task, name, backend)
    assert isinstance(made, restored.by_name(kind))
    assert isinstance(made, transformers.Pipeline)
    assert made.plan.backend == backend
    assert made.task == task


def test_a_task_without_an_engine_is_an_instance_of_its_class_too(models: Any):
    """Next to transformers 4 an engine generates."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", fastpipe.errors.FallbackWarning)
        made = fastpipe.pipeline("text-generation", model=models["gpt2"])
    ours = [warning for warning in said if issubclass(warning.category, fastpipe.errors.FallbackWarning)]
    assert len(ours) == (1 if V5 else 0)
    assert isinstance(made, transformers.TextGenerationPipeline)
    assert made.plan.backend == ("torch" if V5 else "openvino")


@pytest.mark.parametrize(
    "attribute",
    [
        "task",
        "device",
        "dtype",
        "torch_dtype",
        "framework",
        "feature_extractor",
        "image_processor",
        "processor",
        "modelcard",
        "binary_output",
        "default_input_names",
        "return_all_scores",
    ],
)
def test_its_attributes_are_those_of_transformers(pipe: Any, ref: Make, attribute: str):
    wanted = ref("text-classification", "seqcls")
    assert hasattr(pipe, attribute) == hasattr(wanted, attribute)
    if hasattr(wanted, attribute):
        assert getattr(pipe, attribute) == getattr(wanted, attribute)


def test_its_parts_are_those_of_transformers(pipe: Any, ref: Make):
    wanted = ref("text-classification", "seqcls")
    assert type(pipe.tokenizer) is type(wanted.tokenizer)
    assert pipe.tokenizer.get_vocab() == wanted.tokenizer.get_vocab()
    assert pipe.device == torch.device("cpu")
    assert pipe.dtype == torch.float32
    assert pipe.model.config.id2label == {0: "neg", 1: "neu", 2: "pos"}
    assert pipe.model.config.to_dict() == wanted.model.config.to_dict()
    assert (pipe.model.device, pipe.model.dtype) == (wanted.model.device, wanted.model.dtype)
    assert pipe.model.main_input_name == wanted.model.main_input_name
    assert pipe.model.name_or_path == wanted.model.name_or_path
    assert pipe.model.can_generate() is False
    assert pipe.model.training is False
    assert pipe.model.to("cpu") is pipe.model
    assert pipe.model.eval() is pipe.model


@pytest.mark.skipif(V5, reason="transformers 5 has no framework attribute")
def test_framework(pipe: Any):
    assert pipe.framework == "pt"


def test_the_model_answers_as_a_torch_model_does(pipe: Any, ref: Make):
    wanted = ref("text-classification", "seqcls")
    inputs = wanted.tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        theirs, mine = wanted.model(**inputs), pipe.model(**inputs)
        by_position, with_dict = (
            pipe.model(inputs["input_ids"], inputs["attention_mask"]),
            pipe.model(**inputs, return_dict=True),
        )
    assert_same(mine.logits, theirs.logits)
    assert_same(mine["logits"], theirs["logits"])
    assert_same(mine[0], theirs[0])
    assert_same(by_position.logits, theirs.logits)
    assert_same(with_dict.logits, theirs.logits)


@pytest.mark.parametrize("method", ["predict", "transform"])
def test_the_names_of_scikit_learn(pipe: Any, method: str):
    assert_same(getattr(pipe, method)(TEXTS), pipe(TEXTS), 1e-5)


@pytest.mark.parametrize(("task", "name", "kind"), ENCODERS)
def test_the_steps_by_hand_give_what_a_call_gives(fp: Make, backend: str, task: str, name: str, kind: str):
    made = fp(task, name, backend)
    text: Any = "a [MASK] river" if task == "fill-mask" else "a small river"
    if task == "zero-shot-classification":
        labels = {"candidate_labels": ["old", "new"], "hypothesis_template": "This is {}."}
        outputs = [made.forward(inputs) for inputs in made.preprocess(text, **labels)]
        assert_same(made.postprocess(outputs), made(text, **labels))
    elif task == "question-answering":
        question = {"question": "What?", "context": "a small river runs past the old mill"}
        (example,) = made._args_parser(**question)
        outputs = [made.forward(inputs) for inputs in made.preprocess(example)]
        assert_same(made.postprocess(outputs), made(**question))
    elif task == "token-classification":
        outputs = [made.forward(inputs) for inputs in made.preprocess(text, is_split_into_words=False)]
        assert_same(made.postprocess(outputs), made(text))
    else:
        output = made.postprocess(made.forward(made.preprocess(text)))
        assert_same([output] if task == "text-classification" else output, made(text))


def test_a_saved_pipeline_loads_in_transformers_and_here(pipe: Any, backend: str, tmp_path: Path):
    wanted = pipe(TEXTS, top_k=None)
    pipe.save_pretrained(str(tmp_path / "saved"))
    assert (tmp_path / "saved" / "config.json").is_file()
    theirs = transformers.pipeline("text-classification", model=str(tmp_path / "saved"), device="cpu")
    assert_same([theirs([text], top_k=None)[0] for text in TEXTS], wanted)
    mine = fastpipe.pipeline("text-classification", model=tmp_path / "saved", backend=backend)
    assert_same(mine(TEXTS, top_k=None), wanted, 1e-5)


@pytest.mark.parametrize(("task", "name", "kind"), ENCODERS)
def test_a_pickle_is_the_same_pipeline(fp: Make, backend: str, task: str, name: str, kind: str):
    made = fp(task, name, backend)
    twin = pickle.loads(pickle.dumps(made))
    assert type(twin) is type(made)
    assert str(twin.plan) == str(made.plan)
    text = "a [MASK] river" if task == "fill-mask" else "a small river"
    options: dict[str, Any] = {}
    if task == "zero-shot-classification":
        options = {"candidate_labels": ["old", "new"]}
    if task == "question-answering":
        assert_same(twin(question="What?", context=text), made(question="What?", context=text), 1e-5)
    else:
        assert_same(twin([text, text + " mill"], **options), made([text, text + " mill"], **options), 1e-5)


def test_a_pickle_holds_no_token(models: Any, backend: str):
    made = fastpipe.pipeline("text-classification", model=models["seqcls"], backend=backend, token="hf_not_for_files")
    assert b"hf_not_for_files" not in pickle.dumps(made)


def test_a_deep_copy_is_independent(models: Any, backend: str):
    pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], backend=backend)
    wanted = pipe(TEXTS)
    twin = copy.deepcopy(pipe)
    assert type(twin) is type(pipe)
    twin.tokenizer.add_tokens(["river"])
    twin._postprocess_params["top_k"] = 2
    twin.model.config.id2label[2] = "changed"
    assert_same(pipe(TEXTS), wanted, 1e-5)
    assert "river" in pipe.tokenizer.tokenize("river")
    again = copy.deepcopy(pipe)
    assert_same(again(TEXTS), wanted, 1e-5)


def test_a_forked_process_may_use_it(pipe: Any):
    dropped = pickle.loads(pickle.dumps(pipe))
    wanted = dropped(TEXTS)
    del dropped  # engines keep the threads of a model that is gone for the next one
    gc.collect()
    pipe(TEXTS)  # its threads run in this process now, and do not in the child
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:  # nothing of the test runner may run here
        code = 1
        try:
            os.close(reading)
            os.write(writing, json.dumps([pipe(TEXTS), pipe(TEXTS[0])]).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with deadline(child, timeout_s=20), os.fdopen(reading) as answer:
        said = answer.read()
        _, status = os.waitpid(child, 0)
    assert not os.WIFSIGNALED(status), "the child hung"
    assert os.WEXITSTATUS(status) == 0
    many, one = json.loads(said)
    assert_same(many, wanted, 1e-5)
    assert_same(one, pipe(TEXTS[0]), 1e-5)
    assert_same(pipe(TEXTS), wanted, 1e-5)


def test_it_prints(pipe: Any, backend: str):
    assert type(pipe).__name__ in repr(pipe)
    assert type(pipe.model).__name__ in repr(pipe.model)
    assert str(pipe.plan).startswith("Plan for text-classification\n")
    assert backend in str(pipe.plan)
    assert pipe.plan._repr_html_().startswith("<table>")
    assert backend in pipe.plan._repr_html_()
    assert pipe.plan.precision == "fp32"
    json.dumps(pipe.plan.to_dict())


def test_what_only_the_torch_model_can_do_says_so(fp: Make):
    made = fp("text-classification", "seqcls", ENGINES[0])
    with pytest.raises(AttributeError, match="named_parameters") as raised:
        made.model.named_parameters()
    assert "backend='torch'" in str(raised.value)
    with pytest.raises(fastpipe.errors.UnsupportedOnEngineError, match="cuda"):
        made.model.to("cuda")
    with pytest.raises(fastpipe.errors.UnsupportedOnEngineError, match="output_attentions"):
        made.model(torch.tensor([[101, 102]]), output_attentions=True)
    assert not hasattr(made.model, "hf_device_map")


_FRESH = """
import json, pickle, sys
folder, texts = sys.argv[1], json.loads(sys.argv[2])
results = {}
for backend in sys.argv[4:]:
    with open(f"{sys.argv[3]}/{backend}.pickle", "rb") as file:
        pipe = pickle.load(file)
    results[backend] = [pipe(texts)]
import torch, fastpipe
for backend in sys.argv[4:]:
    pipe = fastpipe.pipeline("text-classification", model=folder, backend=backend)
    results[backend].append(pipe(texts))
    assert pipe("one") and pipe([]) == [] and list(pipe(t for t in texts))
    for number in range(20):
        pipe(f"text {number}")
    for long in ("word " * 400, ["one", "word " * 400]):
        try:
            pipe(long)
        except ValueError as error:
            assert "402" in str(error), error
        else:
            raise AssertionError("a text of 402 tokens passed")
    str(pipe.plan), repr(pipe)
print(json.dumps(results))
"""


def test_a_fresh_process_loads_pickles_and_says_nothing(fp: Make, models: Any, tmp_path: Path):
    wanted = {backend: fp("text-classification", "seqcls", backend) for backend in ENGINES}
    for name, made in wanted.items():
        (tmp_path / f"{name}.pickle").write_bytes(pickle.dumps(made))
    command = [sys.executable, "-c", _FRESH, models["seqcls"], json.dumps(TEXTS), str(tmp_path), *ENGINES]
    root = Path(fastpipe.__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for name, (unpickled, built) in json.loads(done.stdout).items():
        assert_same(unpickled, wanted[name](TEXTS), 1e-5)
        assert_same(built, wanted[name](TEXTS), 1e-5)
