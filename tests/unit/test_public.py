"""The public face: names, signature, what importing costs, and which keywords are refused."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers

import fastpipe
from fastpipe.errors import OptionError
from tests.conftest import V5

OURS = ["backend", "precision", "calibration_data", "accuracy", "cache_dir", "threads", "progress_bar"]


def test_the_public_names():
    assert fastpipe.__all__ == sorted(fastpipe.__all__)
    assert set(fastpipe.__all__) <= set(dir(fastpipe))
    for name in fastpipe.__all__:
        assert getattr(fastpipe, name) is not None
    with pytest.raises(AttributeError, match="pipelime"):
        _ = fastpipe.pipelime


def test_importing_loads_neither_torch_nor_transformers():
    code = (
        "import sys, fastpipe, fastpipe.errors;"
        "fastpipe.__version__; fastpipe.errors.FastpipeError; dir(fastpipe);"
        "print(sorted({'torch', 'transformers', 'numpy', 'openvino', 'onnxruntime', 'optimum'} & set(sys.modules)))"
    )
    where = Path(fastpipe.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=where, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert done.stderr == ""


def test_the_signature_is_that_of_transformers_and_then_ours():
    theirs = inspect.signature(transformers.pipeline).parameters
    mine = inspect.signature(fastpipe.pipeline).parameters
    positional = [name for name, parameter in theirs.items() if parameter.kind is not parameter.VAR_KEYWORD]
    assert list(mine) == [*positional, *OURS, "kwargs"]
    for name in positional:
        assert (mine[name].kind, mine[name].default) == (theirs[name].kind, theirs[name].default), name
    assert all(mine[name].kind is inspect.Parameter.KEYWORD_ONLY for name in OURS)
    assert [mine[name].default for name in OURS] == [None, None, None, "auto", None, None, None]
    assert mine["kwargs"].kind is inspect.Parameter.VAR_KEYWORD


def test_the_arguments_of_transformers_work_by_position(models):
    given = {"task": "text-classification", "model": models["seqcls"], "config": None, "tokenizer": models["seqcls"]}
    assert list(inspect.signature(transformers.pipeline).parameters)[: len(given)] == list(given)
    made = fastpipe.pipeline(*given.values(), backend="torch")
    assert made("hello")[0]["label"] in ("neg", "neu", "pos")


@pytest.mark.parametrize(
    ("misspelt", "right"),
    [
        ("backned", "backend"),
        ("precison", "precision"),
        ("calibration", "calibration_data"),
        ("acuracy", "accuracy"),
        ("cachedir", "cache_dir"),
    ],
)
def test_a_misspelt_option_raises_before_anything_is_loaded(misspelt, right):
    with pytest.raises(OptionError, match=right) as raised:
        fastpipe.pipeline("text-classification", model="/no/such/model", **{misspelt: "x"})
    assert misspelt in str(raised.value)
    assert isinstance(raised.value, TypeError)


def test_a_misspelt_argument_of_transformers_is_treated_as_transformers_treats_it(models):
    with pytest.raises(TypeError) as wanted:
        transformers.pipeline(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
    with pytest.raises(TypeError) as got:
        fastpipe.pipeline(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
    assert "positional" in str(wanted.value)
    assert "positional" in str(got.value)


@pytest.mark.parametrize(
    ("task", "name", "keywords"),
    [
        ("text-classification", "seqcls", {"top_k": None}),
        ("text-classification", "seqcls", {"top_k": 2, "batch_size": 2, "function_to_apply": "none"}),
        ("text-classification", "seqcls", {"torch_dtype": torch.float32, "num_workers": 1}),
        ("text-classification", "seqcls", {"truncation": True, "max_length": 16}),
        ("token-classification", "ner", {"aggregation_strategy": "simple", "stride": 4}),
        ("feature-extraction", "feat", {"return_tensors": True, "tokenize_kwargs": {"truncation": True}}),
        ("fill-mask", "mlm", {"top_k": 2, "targets": ["a", "the"]}),
    ],
)
def test_keywords_of_the_tasks_pass(models, task, name, keywords):
    text = "a [MASK] text" if task == "fill-mask" else "a text"
    made = fastpipe.pipeline(task, model=models[name], backend="torch", **keywords)
    plain = transformers.pipeline(task, model=models[name], device="cpu", **keywords)
    assert str(made(text)) == str(plain(text))


@pytest.mark.skipif(V5, reason="transformers 5 has no framework=")
def test_framework_passes(models):
    made = fastpipe.pipeline("text-classification", model=models["seqcls"], framework="pt", backend="torch")
    assert made.framework == "pt"


def test_the_environment_chooses_the_backend(models, monkeypatch):
    monkeypatch.setenv("FASTPIPE_BACKEND", "torch")
    assert fastpipe.pipeline("text-classification", model=models["seqcls"]).plan.backend == "torch"
    monkeypatch.setenv("FASTPIPE_BACKEND", "thorch")
    with pytest.raises(OptionError, match="thorch"):
        fastpipe.pipeline("text-classification", model=models["seqcls"])
