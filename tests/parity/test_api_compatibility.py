"""Every way of calling `transformers.pipeline` that scripts use: what it gives there, it gives here."""

from __future__ import annotations

import http.server
import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
import transformers
from transformers import TextClassificationPipeline, TextIteratorStreamer
from transformers.utils import is_accelerate_available

import fastpipe
from fastpipe.errors import FallbackWarning
from tests.compare import assert_same
from tests.conftest import BACKENDS, ENGINES, V5
from tests.models import Models

Make = Callable[..., Any]
every_backend = pytest.mark.parametrize("backend", BACKENDS)
TEXTS = ["the old mill", "a small river runs past", "", "the mill still turns and turns"]


# FP-15

GREEDY = {"max_new_tokens": 4, "do_sample": False}
CHAT = [{"role": "user", "content": "the mill"}]
LONGER_CHAT = [{"role": "system", "content": "a river"}, *CHAT]


@pytest.fixture
def chats(fp: Make) -> Any:
    return fp("text-generation", "gpt2chat")


@pytest.fixture
def reference_chats(ref: Make) -> Any:
    return ref("text-generation", "gpt2chat")


@pytest.mark.parametrize("options", [{}, {"return_full_text": False}, {"return_full_text": True}])
def test_a_chat_is_one_input_and_a_list_of_chats_several(chats: Any, reference_chats: Any, options: dict) -> None:
    """FP-15: a list of messages is no batch; lists and generators of chats give a list for each."""
    options = {**GREEDY, **options}
    for chat in (CHAT, LONGER_CHAT):
        assert_same(chats(chat, **options), reference_chats(chat, **options))
    several = [CHAT, LONGER_CHAT, CHAT]
    assert_same(chats(several, **options), reference_chats(several, **options))
    assert_same(chats([CHAT], **options), reference_chats([CHAT], **options))
    lazily = chats((chat for chat in several), **options)
    assert_same(list(lazily), list(reference_chats((chat for chat in several), **options)))
    if options.get("return_full_text") is not False:
        assert chats(CHAT, **options)[0]["generated_text"][-1]["role"] == "assistant"
        assert [len(result[0]["generated_text"]) for result in chats(several, **options)] == [2, 3, 2]


def test_a_trailing_message_of_the_assistant_is_continued(chats: Any, reference_chats: Any) -> None:
    """FP-15: prefill."""
    begun = [*CHAT, {"role": "assistant", "content": "the "}]
    result = chats(begun, **GREEDY)
    assert_same(result, reference_chats(begun, **GREEDY))
    assert result[0]["generated_text"][-1]["content"].startswith("the ")
    assert len(result[0]["generated_text"]) == len(begun)
    assert begun[-1]["content"] == "the "
    assert_same(chats([begun, CHAT], **GREEDY), reference_chats([begun, CHAT], **GREEDY))


def test_a_chat_without_a_template_is_refused(fp: Make) -> None:
    """FP-15: the error names what is missing."""
    pipe = fp("text-generation", "gpt2")
    for inputs in (CHAT, [CHAT, CHAT]):
        with pytest.raises(ValueError, match="chat_template"):
            pipe(inputs, **GREEDY)


class Recorder:
    """A streamer that keeps what it was given, and how often the model had run by then."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.tokens: list[list[int]] = []
        self.runs: list[int] = []
        self.ends = 0
        self._runs = 0
        model.register_forward_hook(self._count)

    def _count(self, *_: Any) -> None:
        self._runs += 1

    def put(self, value: torch.Tensor) -> None:
        self.tokens.append(value.flatten().tolist())
        self.runs.append(self._runs)

    def end(self) -> None:
        self.ends += 1


def test_a_streamer_receives_the_text_while_it_is_generated(models: Models) -> None:
    """FP-15: for one prompt and for lists of them, token by token."""
    made = {}
    on_torch = partial(fastpipe.pipeline, backend="torch")  # an engine runs no hook that counts
    for name, make in (("fastpipe", on_torch), ("transformers", transformers.pipeline)):
        model, tokenizer = models.make("gpt2")
        pipe = make("text-generation", model=model, tokenizer=tokenizer, device="cpu")
        recorder = Recorder(model)
        for prompts in ("the old mill", ["the old mill", "a river"]):
            pipe(prompts, streamer=recorder, **GREEDY)
        made[name] = recorder
    assert made["fastpipe"].tokens == made["transformers"].tokens
    assert made["fastpipe"].runs == made["transformers"].runs
    assert made["fastpipe"].ends == made["transformers"].ends == 3


def test_a_streamer_in_another_thread(fp: Make) -> None:
    """FP-15: text arrives in pieces, and the pieces are the result."""
    pipe = fp("text-generation", "gpt2")
    wanted = pipe("the old mill", return_full_text=False, **GREEDY)[0]["generated_text"]
    streamer = TextIteratorStreamer(pipe.tokenizer, skip_prompt=True, timeout=60)
    thread = threading.Thread(target=pipe, args=("the old mill",), kwargs={"streamer": streamer, **GREEDY})
    thread.start()
    pieces = list(streamer)
    thread.join()
    assert "".join(pieces) == wanted
    assert len(pieces) > 1


def test_stop_strings(fp: Make, ref: Make) -> None:
    """FP-15: they need the tokenizer, and the error says so."""
    pipe, reference = fp("text-generation", "gpt2"), ref("text-generation", "gpt2")
    with pytest.raises(ValueError, match="tokenizer"):
        pipe("the", stop_strings=["mill"], **GREEDY)
    continued = reference("the", max_new_tokens=8, do_sample=False, return_full_text=False)[0]["generated_text"]
    options = {"stop_strings": [continued[1:3]], "max_new_tokens": 8, "do_sample": False}
    for prompts in ("the", ["the", "a river"]):
        wanted = reference(prompts, tokenizer=reference.tokenizer, **options)
        assert_same(pipe(prompts, tokenizer=pipe.tokenizer, **options), wanted)


# FP-26


@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
def test_fp32_is_what_transformers_computes(fp: Make, ref: Make, backend: str) -> None:
    """FP-26: what computes can be read from the pipeline; the default is in tests/integration/test_gate.py."""
    pipe = fp("text-classification", "seqcls", backend)
    assert pipe.plan.precision == "fp32"
    assert "fp32" in str(pipe.plan)
    assert pipe.dtype == torch.float32
    assert_same(pipe(TEXTS), ref("text-classification", "seqcls")(TEXTS))


@pytest.mark.parametrize(
    ("asked", "precision", "dtype"),
    [
        ({"dtype": torch.float32}, "fp32", torch.float32),
        ({"torch_dtype": "float32"}, "fp32", torch.float32),
        ({"dtype": "auto"}, "fp32", torch.float32),
        ({"dtype": torch.bfloat16}, "bf16", torch.bfloat16),
        ({"dtype": "bfloat16"}, "bf16", torch.bfloat16),
        ({"torch_dtype": torch.bfloat16}, "bf16", torch.bfloat16),
        ({"model_kwargs": {"torch_dtype": torch.bfloat16}}, "bf16", torch.bfloat16),
        ({"torch_dtype": torch.float16}, "fp16", torch.float16),
        ({"dtype": "float16"}, "fp16", torch.float16),
        ({"model_kwargs": {"dtype": "float16"}}, "fp16", torch.float16),
    ],
    ids=str,
)
def test_a_dtype_is_obeyed(models: Models, asked: dict[str, Any], precision: str, dtype: torch.dtype) -> None:
    """FP-26: by any of its names, and what computes can be read from the pipeline."""
    pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], device="cpu", **asked)
    assert pipe.plan.precision == precision
    assert pipe.dtype == dtype
    reference = transformers.pipeline("text-classification", model=models["seqcls"], device="cpu", dtype=dtype)
    scores = [{entry["label"]: entry["score"] for entry in p(TEXTS[0], top_k=None)} for p in (pipe, reference)]
    # Low precisions differ from engine to engine, by less than they differ from one another's rounding step.
    assert scores[0] == pytest.approx(scores[1], abs=1e-4 if precision == "fp32" else 3e-2)


def test_low_precision_is_not_fp32_under_another_name(models: Models, fp: Make) -> None:
    """FP-26: bf16 that was asked for is bf16 that runs."""
    pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], device="cpu", dtype=torch.bfloat16)
    exact = fp("text-classification", "seqcls", "torch")
    assert any(abs(p["score"] - e["score"]) > 1e-5 for p, e in zip(pipe(TEXTS), exact(TEXTS), strict=True))


@pytest.mark.parametrize(
    "asked", [{"dtype": "float99"}, {"torch_dtype": "float99"}, {"model_kwargs": {"dtype": "float99"}}], ids=str
)
@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
def test_a_dtype_that_does_not_exist_is_named(models: Models, backend: str, asked: dict[str, Any]) -> None:
    """FP-26: not swallowed, and no AttributeError from within."""
    with pytest.raises((ValueError, TypeError), match="float99"):
        fastpipe.pipeline("text-classification", model=models["seqcls"], backend=backend, **asked)


@pytest.mark.parametrize("backend", ENGINES)
def test_a_checkpoint_in_bf16_runs_as_fp32_on_engines(models: Models, tmp_path: Path, backend: str) -> None:
    """FP-26: weights stored in bf16 do not decide what an engine computes in."""
    model, tokenizer = models.make("seqcls")
    model.to(torch.bfloat16).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    pipe = fastpipe.pipeline("text-classification", model=tmp_path, backend=backend)
    assert (pipe.plan.backend, pipe.plan.precision) == (backend, "fp32")
    reference = transformers.pipeline("text-classification", model=str(tmp_path), device="cpu", dtype=torch.float32)
    assert_same(pipe(TEXTS), reference(TEXTS))


def test_a_checkpoint_in_bf16_runs_on_torch_as_in_transformers(models: Models, tmp_path: Path) -> None:
    """FP-26: where transformers itself takes the stored dtype, the plan says which one runs."""
    model, tokenizer = models.make("seqcls")
    model.to(torch.bfloat16).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    pipe = fastpipe.pipeline("text-classification", model=tmp_path, backend="torch", device="cpu")
    reference = transformers.pipeline("text-classification", model=str(tmp_path), device="cpu")
    assert pipe.dtype == reference.dtype
    assert pipe.plan.precision == {torch.float32: "fp32", torch.bfloat16: "bf16"}[reference.dtype]
    assert_same([pipe(text) for text in TEXTS], [reference(text) for text in TEXTS])


# FP-27


class Numbered(TextClassificationPipeline):
    """A user's own pipeline class."""

    def postprocess(self, *args: Any, **kwargs: Any) -> Any:
        return {"mine": super().postprocess(*args, **kwargs)}


@every_backend
def test_a_model_object_that_was_never_saved(models: Models, backend: str) -> None:
    """FP-27: works, and changed weights are seen by the next pipeline."""
    model, tokenizer = models.make("seqcls", seed=3)

    def both() -> tuple[Any, Any]:
        arguments = {"model": model, "tokenizer": tokenizer, "device": "cpu"}
        pipe = fastpipe.pipeline("text-classification", backend=backend, **arguments)
        assert pipe.plan.backend == backend
        wanted = transformers.pipeline("text-classification", **arguments)(TEXTS, top_k=None)
        assert_same(pipe(TEXTS, top_k=None), wanted)
        return pipe, wanted

    _, before = both()
    with torch.no_grad():
        model.classifier.weight.mul_(-1)
    pipe, after = both()
    assert before != after
    assert pipe.model.config.num_labels == 3
    assert not model.training


@every_backend
def test_a_model_in_train_mode(models: Models, backend: str) -> None:
    """FP-27: no dropout in the results, and the model is left in the mode it was in."""
    model, tokenizer = models.make("seqcls", seed=4)
    reference = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    wanted = reference(TEXTS)
    model.train()
    pipe = fastpipe.pipeline("text-classification", model=model, tokenizer=tokenizer, backend=backend, device="cpu")
    for _ in range(2):
        assert_same(pipe(TEXTS), wanted)
        assert_same(pipe(TEXTS[0]), wanted[:1])
    model.train()
    assert_same(pipe(TEXTS), wanted)
    assert model.training


@every_backend
def test_a_pipeline_class_of_the_users_own(models: Models, ref: Make, backend: str) -> None:
    """FP-27: it is the class of the result, and its methods run."""
    pipe = fastpipe.pipeline(
        "text-classification", model=models["seqcls"], pipeline_class=Numbered, backend=backend, device="cpu"
    )
    assert type(pipe) is Numbered
    wanted = ref("text-classification", "seqcls")(TEXTS)
    assert_same(pipe(TEXTS), [{"mine": result} for result in wanted])
    assert_same(pipe(TEXTS[0]), [{"mine": wanted[0]}])
    assert_same(list(pipe(text for text in TEXTS)), [{"mine": result} for result in wanted])


@every_backend
def test_what_scripts_read_from_a_pipeline(models: Models, fp: Make, tmp_path: Path, backend: str) -> None:
    """FP-27: the attributes exist and mean what they mean in transformers; what is saved loads anywhere."""
    pipe = fp("text-classification", "seqcls", backend)
    assert isinstance(pipe, TextClassificationPipeline)
    assert pipe.task == "text-classification"
    assert pipe.model.config.id2label == {0: "neg", 1: "neu", 2: "pos"}
    assert pipe.tokenizer("hello")["input_ids"][0] == pipe.tokenizer.cls_token_id
    assert pipe.device == torch.device("cpu")
    pipe.save_pretrained(str(tmp_path))
    wanted = pipe(TEXTS)
    assert_same(transformers.pipeline("text-classification", model=str(tmp_path), device="cpu")(TEXTS), wanted)
    again = fastpipe.pipeline("text-classification", model=str(tmp_path), backend=backend)
    assert_same(again(TEXTS), wanted)


@every_backend
def test_a_model_object_without_a_tokenizer(models: Models, backend: str) -> None:
    """FP-27: the error names what is missing; a tokenizer can be an object or a name."""
    model, tokenizer = models.make("seqcls")
    with pytest.raises(Exception, match="tokenizer"):
        fastpipe.pipeline("text-classification", model=model, backend=backend)
    by_object = fastpipe.pipeline("text-classification", model=model, tokenizer=tokenizer, backend=backend)
    by_name = fastpipe.pipeline("text-classification", model=model, tokenizer=models["seqcls"], backend=backend)
    assert_same(by_object(TEXTS), by_name(TEXTS))


# FP-28


@every_backend
def test_an_input_that_is_too_long_is_an_error_with_both_numbers(fp: Make, backend: str) -> None:
    """FP-28: no silent cut where transformers fails."""
    pipe = fp("text-classification", "seqcls", backend)
    long = "word " * 400
    for inputs in (long, [long], {"text": long}, {"text": "word " * 200, "text_pair": "word " * 199}):
        with pytest.raises((ValueError, RuntimeError), match=r"402.*128"):
            pipe(inputs)
    with pytest.raises(ValueError, match=r"item 1: .*402.*128"):
        pipe(["short", long])
    with pytest.raises(ValueError, match=r"129.*128"):
        pipe("word " * 127)
    assert pipe("word " * 126)
    for task, model in (("feature-extraction", "feat"), ("fill-mask", "mlm")):
        with pytest.raises((ValueError, RuntimeError), match=r"403.*128"):
            fp(task, model, backend)(f"{long} [MASK]")


@pytest.mark.parametrize("model", ["seqcls", "roberta", "distilbert", "gpt2cls"])
@every_backend
def test_truncation_cuts_where_transformers_cuts(fp: Make, ref: Make, backend: str, model: str) -> None:
    """FP-28: at the tokenizer's limit, or where the call says."""
    pipe, reference = fp("text-classification", model, backend), ref("text-classification", model)
    for options in ({}, {"max_length": 9}):
        texts = ["word " * 400, "the old mill", "the river " * 64]
        wanted = [reference(text, truncation=True, top_k=None, **options) for text in texts]
        assert_same(pipe(texts, truncation=True, top_k=None, **options), wanted)


@every_backend
def test_truncation_with_a_tokenizer_that_has_no_limit(fp: Make, ref: Make, backend: str) -> None:
    """FP-28: the model's positions are the limit then; transformers fails."""
    pipe, reference = fp("text-classification", "hugemax", backend), ref("text-classification", "hugemax")
    with pytest.raises(RuntimeError):
        reference("word " * 400, truncation=True)
    texts = ["word " * 400, "the old mill"]
    wanted = [reference(text, truncation=True, max_length=64) for text in texts]
    assert_same(pipe(texts, truncation=True), [result for [result] in wanted])
    with pytest.raises(ValueError, match=r"402.*64"):
        pipe("word " * 400)
    unlimited = transformers.AutoTokenizer.from_pretrained(pipe.model.config.name_or_path)
    with_object = fastpipe.pipeline(
        "text-classification", model=pipe.model.config.name_or_path, tokenizer=unlimited, backend=backend
    )
    assert_same(with_object(texts[0], truncation=True), wanted[0])
    assert unlimited.model_max_length > 10**9  # the caller's tokenizer is left alone


@every_backend
def test_truncation_leaves_room_for_positions_that_a_model_does_not_use(models: Models, backend: str) -> None:
    """FP-28: RoBERTa counts positions from behind the padding index."""
    model, tokenizer = models.make("roberta")
    tokenizer.model_max_length = 10**30
    pipe = fastpipe.pipeline("text-classification", model=model, tokenizer=tokenizer, backend=backend, device="cpu")
    reference = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    wanted = reference("the old mill " * 100, truncation=True, max_length=64)
    assert_same(pipe("the old mill " * 100, truncation=True), wanted)


def test_a_prompt_beyond_the_models_positions(fp: Make) -> None:
    """FP-28: the error names the length and the limit, not an index somewhere inside."""
    pipe = fp("text-generation", "gpt2")
    prompt = "the old mill " * 100
    length = len(pipe.tokenizer(prompt)["input_ids"])
    for prompts in (prompt, ["the mill", prompt]):
        with pytest.raises((ValueError, RuntimeError, IndexError), match=rf"{length}.*64"):
            pipe(prompts, **GREEDY)
    assert pipe("the mill", **GREEDY)


def test_calls_that_fail_or_cut_write_nothing_to_stderr(models: Models, fp: Make) -> None:
    """FP-28: an engine's own complaint is in the exception; telling it twice helps nobody."""
    for backend in ENGINES:
        fp("text-classification", "seqcls", backend)  # so that the other process has nothing to build
    script = """
import sys, fastpipe
pipes = [fastpipe.pipeline("text-classification", model=sys.argv[1], backend=backend) for backend in sys.argv[2:]]
for pipe in pipes:
    sys.stderr.flush()
    print("calls begin", file=sys.stderr, flush=True)
    for inputs in ("word " * 400, ["short", "word " * 400]):
        try:
            pipe(inputs)
        except ValueError as error:
            print(error)
    print(pipe("word " * 400, truncation=True))
"""
    command = [sys.executable, "-c", script, models["seqcls"], *ENGINES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.count("402 > 128") == 2 * len(ENGINES)
    said = done.stderr.split("calls begin\n")[1:]
    assert len(said) == len(ENGINES)
    # What is written between two pipelines belongs to the calls before it: all of them are built by then.
    assert [text.strip() for text in said] == [""] * len(ENGINES)


# FP-30


@pytest.mark.parametrize(
    ("alias", "task", "model"),
    [("sentiment-analysis", "text-classification", "seqcls"), ("ner", "token-classification", "ner")],
)
@every_backend
def test_aliases_of_tasks(fp: Make, ref: Make, backend: str, alias: str, task: str, model: str) -> None:
    """FP-30: they work, and run on the same engine as the task's own name."""
    pipe = fp(alias, model, backend)
    assert pipe.task == ref(alias, model).task
    assert type(pipe) is type(fp(task, model, backend))
    assert pipe.plan.backend == backend
    assert_same(pipe(TEXTS), ref(alias, model)(TEXTS))


@pytest.mark.parametrize("task", ["text-clasification", "", "NER", "conversational"])
def test_tasks_that_transformers_does_not_have(models: Models, task: str) -> None:
    """FP-30: a typo or a task that 4.57 had no more raises what transformers raises: the list of tasks."""
    with pytest.raises(KeyError) as theirs:
        transformers.pipeline(task, model=models["seqcls"])
    with pytest.raises(KeyError) as ours:
        fastpipe.pipeline(task, model=models["seqcls"])
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("task", ["summarization", "translation_en_to_fr", "translation", "text2text-generation"])
def test_tasks_of_encoder_decoders(models: Models, ref: Make, task: str) -> None:
    """FP-30: they run through the same call."""
    pipe = fastpipe.pipeline(task, model=models["t5"], device="cpu", backend="torch")
    assert pipe.plan.task == task.partition("_")[0]
    options = {"max_new_tokens": 5, "do_sample": False}
    assert_same(pipe(TEXTS[:2], **options), [ref(task, "t5")(text, **options)[0] for text in TEXTS[:2]])


@pytest.mark.skipif(not V5, reason="next to transformers 4 it has an engine")
@pytest.mark.parametrize(
    ("task", "model", "inputs"),
    [
        ("text-generation", "gpt2", "the mill"),
    ],
)
def test_a_task_without_an_engine_says_so_once(models: Models, task: str, model: str, inputs: Any) -> None:
    """FP-30: it runs on torch, with one warning when it is made, and none when it was meant to be torch."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pipe = fastpipe.pipeline(task, model=models[model], device="cpu")
        if inputs is not None:
            pipe(inputs, **GREEDY)
    ours = [warning for warning in caught if issubclass(warning.category, FallbackWarning)]
    assert len(ours) == 1
    assert task in str(ours[0].message)
    assert ours[0].filename == __file__
    assert pipe.plan.backend == "torch"
    assert {choice.value for choice in pipe.plan.rejected} == set(ENGINES)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        fastpipe.pipeline(task, model=models[model], device="cpu", backend="torch")


def test_a_model_without_a_task_offline(models: Models) -> None:
    """FP-30: the task cannot be looked up, and the error says so as in transformers."""
    for make in (transformers.pipeline, fastpipe.pipeline):
        with pytest.raises(RuntimeError, match="You cannot infer task automatically"):
            make(model=models["seqcls"])
        with pytest.raises(RuntimeError, match="without either a task or a model"):
            make()


# FP-31

without_gpu = pytest.mark.skipif(
    torch.cuda.is_available() or torch.backends.mps.is_available() or torch.xpu.is_available(),
    reason="this machine has a GPU",
)


@without_gpu
@pytest.mark.parametrize("device", [-1, "cpu", torch.device("cpu"), "cpu:0", None], ids=str)
@every_backend
def test_names_of_the_cpu(models: Models, ref: Make, backend: str, device: Any) -> None:
    """FP-31: all of them run on it, without a word."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], backend=backend, device=device)
    assert pipe.device == torch.device("cpu")
    assert pipe.plan.device == "cpu"
    assert_same(pipe(TEXTS), ref("text-classification", "seqcls")(TEXTS))


@without_gpu
@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
def test_a_device_number_without_a_gpu(models: Models, ref: Make, backend: str, device: int) -> None:
    """FP-31: the CPU runs, as in transformers, but not without a word."""
    with pytest.warns(FallbackWarning, match=f"device={device}"):
        pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], backend=backend, device=device)
    assert pipe.device == torch.device("cpu")
    assert_same(pipe(TEXTS), ref("text-classification", "seqcls")(TEXTS))


@without_gpu
@pytest.mark.parametrize("device", ["cuda:0", "cuda", "cuda:7", "mps", "xpu", "gpu", "CPU!", torch.device("cuda:0")])
@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
def test_a_named_device_that_is_not_there(models: Models, backend: str, device: Any) -> None:
    """FP-31: an error that names it and what could be used instead, never the CPU in silence."""
    name = device if isinstance(device, str) else device.type
    with pytest.raises((RuntimeError, ValueError), match=name) as caught:
        fastpipe.pipeline("text-classification", model=models["seqcls"], backend=backend, device=device)
    assert "cpu" in str(caught.value)


@without_gpu
def test_a_task_without_an_engine_obeys_the_device_too(models: Models) -> None:
    """FP-31: the same for what runs on torch."""
    with pytest.raises((RuntimeError, ValueError), match="cuda:0"):
        fastpipe.pipeline("text-generation", model=models["gpt2"], device="cuda:0")
    with pytest.warns(FallbackWarning, match="device=0"):
        assert fastpipe.pipeline("text-generation", model=models["gpt2"], device=0).device == torch.device("cpu")


@pytest.mark.skipif(is_accelerate_available(), reason="accelerate is installed")
@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_a_device_map_needs_accelerate(models: Models, backend: str) -> None:
    """FP-31: the error names it."""
    for device in ({}, {"device": -1}):
        with pytest.raises((ImportError, ValueError), match="accelerate"):
            fastpipe.pipeline(
                "text-classification", model=models["seqcls"], backend=backend, device_map="auto", **device
            )


# FP-32

MAIN, V1, V2 = "1" * 40, "a" * 40, "b" * 40
TOKEN = "hf_ThisTokenStaysSecret"


def swap_words(folder: Path) -> None:
    """Exchange the numbers of some tokens: the same words, another vocabulary."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text("utf-8"))
    vocabulary = tokenizer["model"]["vocab"]
    for one, other in ("ae", "ot", "il", "hr", "ms"):
        vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    path.write_text(json.dumps(tokenizer), "utf-8")


def in_cache(cache: Path, repository: str) -> Path:
    return cache / f"models--{repository.replace('/', '--')}"


@pytest.fixture(scope="module")
def revisions(models: Models, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of three revisions of one model that differ in weights, two of them in vocabulary too."""
    root = tmp_path_factory.mktemp("revisions")
    folders = {commit: models.save("roberta", root / commit, seed) for seed, commit in enumerate((MAIN, V1, V2))}
    swap_words(folders[V1])
    return folders


@pytest.fixture
def hub(revisions: dict[str, Path]) -> Iterator[Path]:
    """A repository in the local hub cache: `main`, `v1`, and no network."""
    repository = in_cache(Path(huggingface_hub.constants.HF_HUB_CACHE), "me/tiny")
    for commit, folder in revisions.items():
        shutil.copytree(folder, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(MAIN)
    (repository / "refs" / "v1").write_text(V1)
    yield repository
    shutil.rmtree(repository)


PROMPTS = ["the old mill", "a small river runs past the mill", "still", "the mill turns"]


def answers(folder: Path, tokenizer: Path | None = None) -> Any:
    pipe = transformers.pipeline(
        "text-classification", model=str(folder), tokenizer=str(tokenizer or folder), device="cpu"
    )
    return [pipe(text, top_k=None) for text in PROMPTS]


@pytest.mark.parametrize("backend", ["openvino", "torch"])
def test_everything_comes_from_the_revision_asked_for(hub: Path, revisions: dict[str, Path], backend: str) -> None:
    """FP-32: weights, config and tokenizer; a branch, a tag and a commit; main before, after and in between."""
    wanted = {commit: answers(folder) for commit, folder in revisions.items()}
    mixed = answers(revisions[V1], tokenizer=revisions[MAIN])
    for other in (wanted[MAIN], wanted[V1]):
        with pytest.raises(AssertionError):
            assert_same(mixed, other)
    for revision, commit in ((None, MAIN), ("v1", V1), ("main", MAIN), (V1, V1), (V2, V2), (MAIN, MAIN), ("v1", V1)):
        pipe = fastpipe.pipeline(
            "text-classification", model="me/tiny", revision=revision, token=TOKEN, backend=backend, device="cpu"
        )
        assert pipe.plan.backend == backend
        assert_same(pipe(PROMPTS, top_k=None), wanted[commit], where=f"revision {revision}")
    with pytest.raises(OSError, match="me/tiny"):
        fastpipe.pipeline("text-classification", model="me/tiny", revision="v9", backend=backend)


@pytest.mark.parametrize("backend", ["openvino", "torch"])
def test_a_branch_that_moved_is_followed(hub: Path, revisions: dict[str, Path], backend: str) -> None:
    """FP-32: what is kept belongs to the commit, not to the name."""
    make = {"task": "text-classification", "model": "me/tiny", "backend": backend, "device": "cpu"}
    assert_same(fastpipe.pipeline(**make)(PROMPTS, top_k=None), answers(revisions[MAIN]))
    (hub / "refs" / "main").write_text(V2)
    assert_same(fastpipe.pipeline(**make)(PROMPTS, top_k=None), answers(revisions[V2]))


@pytest.mark.parametrize("backend", ["openvino", "torch"])
def test_the_token_is_neither_logged_nor_kept(
    hub: Path, empty_cache: Path, caplog: pytest.LogCaptureFixture, backend: str
) -> None:
    """FP-32: not in logs, not in the cache, not in a pickle."""
    caplog.set_level(logging.DEBUG)
    pipe = fastpipe.pipeline(
        "text-classification", model="me/tiny", revision="v1", token=TOKEN, backend=backend, device="cpu"
    )
    pipe(PROMPTS)
    kept = [path for path in empty_cache.rglob("*") if path.is_file()]
    assert bool(kept) == (backend != "torch")
    assert [path.name for path in kept if TOKEN.encode() in path.read_bytes()] == []
    assert TOKEN not in caplog.text
    assert TOKEN not in f"{pipe.plan} {pipe.model!r} {pipe.plan.to_dict()}"
    assert TOKEN.encode() not in pickle.dumps(pipe)


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of the hub as a private model needs: no token, no file."""

    folder: Path
    seen: list[tuple[str, str]]

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        self.seen.append((path, self.headers.get("Authorization", "")))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._send(401, b"", {"X-Error-Code": "RepoNotFound"})
        resolved = path.removeprefix("/me/tiny/resolve/")
        if resolved != path:
            file = self.folder / resolved.partition("/")[2]
            if not file.is_file():
                return self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": V1})
            return self._send(200, file.read_bytes(), {"ETag": f'"{file.name}"', "X-Repo-Commit": V1})
        if path.startswith("/api/models/me/tiny/tree/"):
            return self._send(200, b"[]", {})
        if path.startswith("/api/models/me/tiny"):
            files = [{"rfilename": file.name} for file in self.folder.iterdir()]
            facts = {"id": "me/tiny", "sha": V1, "pipeline_tag": "text-classification", "siblings": files}
            facts["library_name"] = "transformers"
            return self._send(200, json.dumps({**facts, "tags": [], "private": True}).encode(), {})
        return self._send(404, b"", {})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def without_token(seen: list[tuple[str, str]]) -> set[str]:
    return {path.replace(V1, "v1") for path, authorization in seen if authorization != f"Bearer {TOKEN}"}


def ask_the_hub(folder: Path, work: Path, make: str, **options: str) -> tuple[list[tuple[str, str]], Any]:
    """Make a pipeline in a process of its own, from a hub of its own; give the requests, and the process."""
    handler = type("TinyHub", (Hub,), {"folder": folder, "seen": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        script = f"""
import json, logging, sys
logging.basicConfig(level=logging.INFO)
logging.getLogger("fastpipe").setLevel(logging.DEBUG)
from {make} import pipeline
options = json.loads(sys.argv[2])
pipe = pipeline(model="me/tiny", revision="v1", token=sys.argv[1], device="cpu", **options)
print(json.dumps([pipe(text, top_k=None) for text in sys.argv[3:]]))
"""
        environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_CACHE"} | {
            "HF_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}",
            "HF_HUB_OFFLINE": "0",
            "HF_HOME": str(work / "hub"),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "FASTPIPE_CACHE": str(work / "artifacts"),
            "NO_PROXY": "*",
            "no_proxy": "*",
        }
        command = [sys.executable, "-c", script, TOKEN, json.dumps(options), *PROMPTS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        server.shutdown()
    assert done.returncode == 0, done.stderr
    return handler.seen, done


@pytest.fixture(scope="module")
def asked_by_transformers(revisions: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What transformers itself asks for without the token: listings that it can do without."""
    seen, _ = ask_the_hub(revisions[V1], tmp_path_factory.mktemp("transformers"), "transformers")
    return without_token(seen)


@pytest.mark.parametrize("backend", ["openvino", "torch"])
def test_every_request_to_the_hub_carries_the_token(
    revisions: dict[str, Path], asked_by_transformers: set[str], tmp_path: Path, backend: str
) -> None:
    """FP-32: a private model at a revision loads from a hub that answers nobody without the token."""
    seen, done = ask_the_hub(revisions[V1], tmp_path, "fastpipe", backend=backend)
    assert without_token(seen) - asked_by_transformers == set()
    assert any(path.endswith("model.safetensors") for path, _ in seen)
    assert not any("/resolve/main/" in path for path, _ in seen)
    assert TOKEN not in done.stdout + done.stderr
    assert_same(json.loads(done.stdout.splitlines()[-1]), answers(revisions[V1]))
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert kept == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_path_object_is_a_model(models: Models, ref: Make, backend: str) -> None:
    """FP-32: as a string would be."""
    pipe = fastpipe.pipeline("text-classification", model=Path(models["seqcls"]), backend=backend)
    assert_same(pipe(TEXTS), ref("text-classification", "seqcls")(TEXTS))


@pytest.mark.parametrize("where", ["folder", "hub"])
@pytest.mark.parametrize("backend", ["openvino", "torch"])
def test_a_subfolder(hub: Path, revisions: dict[str, Path], tmp_path: Path, backend: str, where: str) -> None:
    """FP-32: weights, config and tokenizer come from it, not from the folder above it."""
    root = hub / "snapshots" / MAIN if where == "hub" else tmp_path / "model"
    if where == "folder":
        shutil.copytree(revisions[MAIN], root)
    shutil.copytree(revisions[V1], root / "inner")
    model = "me/tiny" if where == "hub" else str(root)
    arguments = {"model": model, "model_kwargs": {"subfolder": "inner"}, "device": "cpu"}
    reference = transformers.pipeline("text-classification", **arguments)
    assert_same([reference(text, top_k=None) for text in PROMPTS], answers(revisions[V1]))
    pipe = fastpipe.pipeline("text-classification", backend=backend, **arguments)
    assert pipe.plan.backend == backend
    assert_same(pipe(PROMPTS, top_k=None), answers(revisions[V1]))


@pytest.mark.parametrize("backend", BACKENDS)
def test_exported_files_beside_the_weights_are_not_preferred_wrongly(
    revisions: dict[str, Path], tmp_path: Path, backend: str
) -> None:
    """FP-32: a graph of other weights, in the root or in a folder, is not what the model is."""
    folder = tmp_path / "model"
    shutil.copytree(revisions[MAIN], folder)
    for name in ("model.onnx", "onnx/model.onnx", "openvino_model.xml", "openvino/openvino_model.bin"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"a graph that does not belong to these weights")
    before = sorted(path for path in folder.rglob("*"))
    pipe = fastpipe.pipeline("text-classification", model=folder, backend=backend)
    assert pipe.plan.backend == backend
    assert_same(pipe(PROMPTS, top_k=None), answers(revisions[MAIN]))
    assert sorted(path for path in folder.rglob("*")) == before
