"""What a user can say beyond transformers' arguments."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import pytest
import transformers
from transformers.pipelines.base import Pipeline

from fastpipe.errors import OptionError
from fastpipe.options import PRECISIONS, Accuracy, Options, reject_misspelt, resolve

NOTHING: dict[str, object] = {}


def test_nothing_said_leaves_the_defaults():
    assert resolve(NOTHING, {}) == Options()
    assert Options().backend == "auto"
    assert Options().precision is None


def test_the_environment_fills_what_was_left_out():
    environment = {"FASTPIPE_BACKEND": "onnxruntime", "FASTPIPE_PRECISION": "int8", "FASTPIPE_CACHE": "/some/where"}
    found = resolve(NOTHING, environment)
    assert (found.backend, found.precision, found.cache_dir) == ("onnxruntime", "int8", Path("/some/where"))


def test_an_argument_wins_over_the_environment():
    environment = {"FASTPIPE_BACKEND": "onnxruntime", "FASTPIPE_PRECISION": "int8", "FASTPIPE_CACHE": "/some/where"}
    said = {**NOTHING, "backend": "torch", "precision": "auto", "cache_dir": "/else/where"}
    found = resolve(said, environment)
    assert (found.backend, found.precision, found.cache_dir) == ("torch", "auto", Path("/else/where"))


def test_an_empty_variable_says_nothing():
    assert resolve(NOTHING, {"FASTPIPE_BACKEND": "", "FASTPIPE_PRECISION": "", "FASTPIPE_CACHE": ""}) == Options()


@pytest.mark.parametrize("folder", ["~/models", Path("~/models")])
def test_a_cache_folder_is_a_path_with_home_filled_in(folder, monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    assert resolve({**NOTHING, "cache_dir": folder}, {}).cache_dir == Path("/home/somebody/models")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_precision_there_is_passes(precision):
    assert Options(precision=precision).precision == precision


@pytest.mark.parametrize("precision", ["int9", "FP32", "", 8])
def test_a_precision_that_does_not_exist_is_named_with_those_that_do(precision):
    with pytest.raises(OptionError) as raised:
        Options(precision=precision)
    assert repr(precision) in str(raised.value)
    assert "int8" in str(raised.value)


def test_a_wrong_value_in_the_environment_is_named_too():
    with pytest.raises(OptionError, match="int9"):
        resolve(NOTHING, {"FASTPIPE_PRECISION": "int9"})


@pytest.mark.parametrize("accuracy", ["auto", None, 0.98, 1, Accuracy(worst=0.9), {"worst": 0.9, "drift": 0.2}])
def test_every_form_of_accuracy_is_understood(accuracy):
    found = resolve({"accuracy": accuracy}, {}).accuracy
    assert found == (Accuracy(**accuracy) if isinstance(accuracy, dict) else accuracy)


@pytest.mark.parametrize(
    ("accuracy", "named"),
    [
        (1.5, "1.5"),
        (-0.1, "-0.1"),
        (True, "True"),
        ("strict", "strict"),
        ({"wrost": 0.9}, "wrost"),
        ({"worst": 2}, "worst=2"),
        ({"drift": -1}, "drift=-1"),
        ({"agreement": "high"}, "agreement='high'"),
        (float("nan"), "nan"),
    ],
)
def test_an_accuracy_that_makes_no_sense_is_named(accuracy, named):
    with pytest.raises(OptionError, match=re.escape(named)) as raised:
        resolve({"accuracy": accuracy}, {})
    assert raised.value.remedy


def test_no_check_is_not_the_same_as_nothing_said():
    assert resolve({}, {}).accuracy == "auto"
    assert resolve({"accuracy": None}, {}).accuracy is None


def test_options_cannot_be_changed_or_given_by_position():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().backend = "torch"
    with pytest.raises(TypeError):
        Options("torch")


@pytest.mark.parametrize(
    ("misspelt", "right"),
    [
        ("backned", "backend"),
        ("bakend", "backend"),
        ("backends", "backend"),
        ("back_end", "backend"),
        ("Backend", "backend"),
        ("precison", "precision"),
        ("precission", "precision"),
        ("presicion", "precision"),
        ("precisions", "precision"),
        ("calibration", "calibration_data"),
        ("calibrationdata", "calibration_data"),
        ("calibration_dat", "calibration_data"),
        ("acuracy", "accuracy"),
        ("accurracy", "accuracy"),
        ("cachedir", "cache_dir"),
        ("chache_dir", "cache_dir"),
        ("cache_dirs", "cache_dir"),
    ],
)
def test_a_misspelt_option_raises_and_names_the_right_one(misspelt, right):
    with pytest.raises(OptionError) as raised:
        reject_misspelt(["top_k", misspelt])
    assert repr(misspelt) in str(raised.value)
    assert repr(right) in raised.value.remedy


def _pipeline_classes() -> list[type[Pipeline]]:
    found, waiting = [], [Pipeline]
    for name in dir(transformers):
        if name.endswith("Pipeline"):
            getattr(transformers, name)  # loaded on first use
    while waiting:
        kind = waiting.pop()
        found.append(kind)
        waiting += kind.__subclasses__()
    return found


def test_no_parameter_of_any_task_is_taken_for_a_misspelt_option():
    theirs = {
        name
        for kind in _pipeline_classes()
        for method in ("_sanitize_parameters", "preprocess", "postprocess", "__init__")
        for name in inspect.signature(getattr(kind, method)).parameters
    }
    assert {"top_k", "aggregation_strategy", "function_to_apply", "stride", "truncation"} <= theirs
    reject_misspelt(theirs)
    reject_misspelt(transformers.GenerationConfig().to_dict())
    reject_misspelt(["batch_size", "num_workers", "torch_dtype", "framework", "args_parser", "padding", "max_length"])


@pytest.mark.parametrize(
    ("environment", "threads"),
    [
        ({}, None),
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "4,2"}, 4),
        ({"OMP_NUM_THREADS": "many"}, None),
        ({"OMP_NUM_THREADS": "0"}, None),
        ({"OMP_NUM_THREADS": "3", "FASTPIPE_THREADS": "1"}, 1),
    ],
)
def test_threads_come_from_the_environment(environment, threads):
    assert resolve({}, environment).threads == threads
    assert resolve({"threads": 5}, environment).threads == 5


@pytest.mark.parametrize("threads", [0, -1, 1.5, 2.0, float("nan"), True, "2"])
def test_what_is_no_number_of_threads_is_refused(threads):
    with pytest.raises(OptionError, match="threads"):
        resolve({"threads": threads}, {})


def test_a_variable_of_ours_that_is_no_number_is_refused():
    with pytest.raises(OptionError, match="FASTPIPE_THREADS"):
        resolve({}, {"FASTPIPE_THREADS": "two"})
