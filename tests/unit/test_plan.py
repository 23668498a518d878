"""What runs where, by tables: no engine is needed to decide."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fastpipe.errors import DeviceError, FastpipeError, MissingBackendError, OptionError
from fastpipe.hardware import Gpu, Hardware
from fastpipe.plan import Engine, Plan, as_run, as_tuned, choose, decided, place, precision_of
from fastpipe.tasks import TASKS

CPU = Hardware(
    architecture="x86_64",
    cpu_model="EPYC <&> friends",
    isa=("avx2", "avx512_bf16", "avx512_vnni"),
    cores=6,
    memory_bytes=8 * 2**30,
    gpus=(),
)
OLD_CPU = dataclasses.replace(CPU, isa=("avx2",))
GPUS = dataclasses.replace(
    CPU,
    gpus=tuple(
        Gpu(name="H200", memory_bytes=140 * 2**30, compute_capability=(9, 0), index=index, kind="cuda")
        for index in (0, 1)
    ),
)


def engines(hardware: Hardware = CPU, missing: tuple[str, ...] = ()) -> tuple[Engine, ...]:
    """The three backends of the registry, as they describe themselves."""
    table = {
        "openvino": ("fp32", "bf16", "int8") if hardware.has_bf16 else ("fp32", "int8"),
        "onnxruntime": ("fp32", "int8"),
        "torch": ("fp32", "bf16", "fp16", "float64", "double"),
    }
    return tuple(
        Engine(name=name, version="" if name in missing else "1.0", remedy=f"pip install {name}", precisions=precisions)
        for name, precisions in table.items()
    )


def plan(hardware: Hardware = CPU, missing: tuple[str, ...] = (), obstacle: str = "", **options: Any) -> Plan:
    task = options.pop("task", "text-classification")
    return choose(
        task,
        task=TASKS.get(task),
        obstacle=obstacle,
        hardware=hardware,
        engines=engines(hardware, missing),
        **options,
    )


def rejected(made: Plan) -> dict[str, str]:
    return {choice.value: choice.reason for choice in made.rejected}


@pytest.mark.parametrize(
    ("situation", "backend", "precision"),
    [
        ({}, "openvino", "auto"),
        ({"precision": "auto"}, "openvino", "auto"),
        ({"precision": "fp32"}, "openvino", "fp32"),
        ({"precision": "int8"}, "openvino", "int8"),
        ({"precision": "bf16"}, "openvino", "bf16"),
        ({"precision": "int8", "hardware": OLD_CPU}, "openvino", "int8"),
        ({"missing": ("openvino",)}, "onnxruntime", "auto"),
        ({"missing": ("openvino",), "precision": "int8"}, "onnxruntime", "int8"),
        ({"failed": {"openvino": "no such operator"}}, "onnxruntime", "auto"),
        ({"backend": "onnxruntime"}, "onnxruntime", "auto"),
        ({"backend": "onnxruntime", "precision": "int8"}, "onnxruntime", "int8"),
        ({"backend": "openvino", "precision": "bf16"}, "openvino", "bf16"),
        ({"backend": "torch"}, "torch", "fp32"),
        ({"backend": "torch", "precision": "bf16"}, "torch", "bf16"),
        ({"backend": "torch", "precision": "bf16", "hardware": OLD_CPU}, "torch", "bf16"),
        ({"precision": "fp16"}, "torch", "fp16"),
        ({"precision": "float64"}, "torch", "float64"),
        ({"hardware": GPUS, "device": "cuda:0"}, "torch", "fp32"),
        ({"hardware": GPUS, "device": "cuda:1", "precision": "fp16"}, "torch", "fp16"),
        ({"hardware": GPUS, "device": "cpu"}, "openvino", "auto"),
    ],
)
def test_what_was_asked_for_runs_without_a_warning(situation, backend, precision):
    made = plan(**situation)
    assert (made.backend, made.precision, made.warning) == (backend, precision, "")
    assert made.device == situation.get("device", "cpu")


@pytest.mark.parametrize(
    ("situation", "said"),
    [
        ({"missing": ("openvino", "onnxruntime")}, ("pip install openvino", "not installed")),
        ({"obstacle": "it is a PEFT adapter"}, ("PEFT adapter",)),
        ({"obstacle": "it is a PEFT adapter", "backend": "onnxruntime"}, ("PEFT adapter",)),
        ({"obstacle": "it is a PEFT adapter", "precision": "int8"}, ("PEFT adapter",)),
        ({"task": "text-generation"}, ("no engine path", "text-generation")),
        ({"task": "text-generation", "precision": "int8"}, ("no engine path", "text-generation")),
        ({"failed": {"openvino": "no operator A", "onnxruntime": "no operator B"}}, ("operator A", "operator B")),
        ({"failed": {"onnxruntime": "no operator B"}, "backend": "onnxruntime"}, ("operator B",)),
        ({"precision": "bf16", "hardware": OLD_CPU}, ("bf16",)),
    ],
)
def test_torch_in_place_of_an_engine_is_said_once_with_the_reason(situation, said):
    made = plan(**situation)
    assert made.backend == "torch"
    assert made.precision == ("bf16" if situation.get("precision") == "bf16" else "fp32")
    for words in said:
        assert words in made.warning
        assert any(words in choice.reason for choice in made.rejected)
    assert "\n" not in made.warning
    assert made.warning.count(said[0]) == 1


def test_reasons_of_backends_that_were_not_asked_for_stay_out_of_the_warning():
    made = plan(failed={"openvino": "no operator A"}, backend="openvino")
    assert "operator A" in made.warning
    assert "was asked for" not in made.warning


@pytest.mark.parametrize("name", ["openvinno", "", "OpenVINO", "tensorrt"])
def test_an_unknown_backend_raises_and_lists_those_there_are(name):
    with pytest.raises(OptionError) as raised:
        plan(backend=name)
    for words in (f"{name!r}", "auto", "openvino", "onnxruntime", "torch"):
        assert words in str(raised.value)


@pytest.mark.parametrize("name", ["openvino", "onnxruntime"])
def test_a_backend_that_is_not_installed_raises_and_says_how_to_install_it(name):
    with pytest.raises(MissingBackendError, match=f"pip install {name}"):
        plan(backend=name, missing=(name,))


@pytest.mark.parametrize(
    ("situation", "precision"),
    [
        ({"backend": "torch", "precision": "int8"}, "int8"),
        ({"precision": "int8", "missing": ("openvino", "onnxruntime")}, "int8"),
        ({"precision": "int8", "hardware": GPUS, "device": "cuda:0"}, "int8"),
        ({"backend": "onnxruntime", "precision": "bf16"}, "bf16"),
        ({"backend": "openvino", "precision": "bf16", "hardware": OLD_CPU}, "bf16"),
        ({"backend": "openvino", "precision": "fp16"}, "fp16"),
    ],
)
def test_a_precision_that_cannot_run_as_asked_raises_and_names_it(situation, precision):
    with pytest.raises(OptionError, match=precision):
        plan(**situation)


def test_the_remedy_names_engines_that_run_the_precision():
    with pytest.raises(OptionError) as raised:
        plan(backend="torch", precision="int8")
    assert "openvino" in raised.value.remedy
    assert "onnxruntime" in raised.value.remedy


_situations = st.fixed_dictionaries(
    {
        "hardware": st.sampled_from([CPU, OLD_CPU, GPUS]),
        "missing": st.sets(st.sampled_from(["openvino", "onnxruntime"])).map(tuple),
        "task": st.sampled_from(["text-classification", "feature-extraction", "text-generation"]),
        "obstacle": st.sampled_from(["", "the model has no config"]),
        "backend": st.sampled_from(["auto", "openvino", "onnxruntime", "torch"]),
        "precision": st.sampled_from([None, "auto", "fp32", "bf16", "fp16", "int8"]),
        "device": st.sampled_from(["cpu", "cuda:0"]),
        "failed": st.dictionaries(st.sampled_from(["openvino", "onnxruntime"]), st.just("no such operator")),
    }
)


@given(_situations)
def test_nothing_is_taken_away_in_silence(situation):
    try:
        made = plan(**situation)
    except FastpipeError:
        return
    asked = situation["precision"] or "auto"
    left_open = asked == "auto" and (made.backend, made.precision) in [("torch", "fp32")]
    if (situation["backend"] not in ("auto", made.backend)) or (made.precision != asked and not left_open):
        assert made.warning
    installed = {engine.name for engine in engines(situation["hardware"], situation["missing"]) if engine.version}
    assert made.backend in installed
    assert made.device == situation["device"]
    order = ["openvino", "onnxruntime", "torch"]
    for passed_over in order[: order.index(made.backend)]:
        assert rejected(made)[passed_over]
    assert made.backend not in rejected(made) or made.warning


def test_every_choice_has_a_reason():
    made = plan(missing=("openvino",), precision="int8")
    assert [choice.what for choice in made.choices] == ["backend", "precision", "device", "threads", "streams"]
    assert all(choice.reason for choice in (*made.choices, *made.rejected))
    assert (made.threads, made.streams) == (6, 1)
    assert "asked for" in made.choices[1].reason
    assert plan(backend="torch").threads == 0  # torch's own setting belongs to the user


def test_a_plan_prints_as_a_table():
    made = plan(missing=("openvino",))
    lines = str(made).splitlines()
    assert lines[0] == "Plan for text-classification"
    for words in ("backend", "onnxruntime 1.0", "precision", "auto", "threads", "not backend", "pip install openvino"):
        assert words in str(made)
    assert len(lines) == 1 + len(made.choices) + len(made.rejected)
    assert all(line == line.rstrip() for line in lines)


def test_the_html_escapes_what_it_shows():
    html = plan(obstacle="<script>alert('x')</script>")._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "EPYC &lt;&amp;&gt; friends" in html
    assert html.count("<tr>") == html.count("</tr>") > 5
    assert "<b>" not in dataclasses.replace(plan(), task="<b>")._repr_html_()


def test_the_dictionary_is_what_json_gives_back():
    made = plan(missing=("openvino",), precision="int8")
    values = json.loads(json.dumps(made.to_dict()))
    assert values["backend"] == "onnxruntime"
    assert values["rejected"][0]["value"] == "openvino"
    assert values.keys() == {field.name for field in dataclasses.fields(Plan)}


def test_a_plan_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan().backend = "torch"


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [
        (None, None),
        ("auto", None),
        (torch.float32, "fp32"),
        ("float32", "fp32"),
        ("torch.float32", "fp32"),
        ("float", "fp32"),
        (torch.bfloat16, "bf16"),
        ("bfloat16", "bf16"),
        (torch.float16, "fp16"),
        ("half", "fp16"),
        (torch.float64, "float64"),
        ("double", "double"),
    ],
)
def test_precision_of(dtype, precision):
    assert precision_of(dtype) == precision


@pytest.mark.parametrize("dtype", ["float99", torch.int8, "", 32, "bf 16"])
def test_a_dtype_that_no_model_runs_in_is_named(dtype):
    with pytest.raises(OptionError) as raised:
        precision_of(dtype)
    assert repr(dtype) in str(raised.value)


@pytest.mark.parametrize(
    ("device", "hardware", "name"),
    [
        (None, CPU, "cpu"),
        (-1, CPU, "cpu"),
        ("cpu", CPU, "cpu"),
        ("cpu:0", CPU, "cpu"),
        (torch.device("cpu"), CPU, "cpu"),
        (None, GPUS, "cuda:0"),
        (-1, GPUS, "cpu"),
        (0, GPUS, "cuda:0"),
        (1, GPUS, "cuda:1"),
        ("cuda", GPUS, "cuda:0"),
        ("cuda:1", GPUS, "cuda:1"),
        (torch.device("cuda", 1), GPUS, "cuda:1"),
        (torch.device("cpu"), GPUS, "cpu"),
    ],
)
def test_place(device, hardware, name):
    assert place(device, hardware) == (name, "")


@pytest.mark.parametrize("device", [0, 3])
def test_a_gpu_number_without_a_gpu_runs_on_the_cpu_and_says_so(device):
    name, warning = place(device, CPU)
    assert name == "cpu"
    assert f"device={device}" in warning


@pytest.mark.parametrize(
    ("device", "hardware", "here"),
    [
        ("cuda:0", CPU, "cpu"),
        ("cuda", CPU, "cpu"),
        (torch.device("cuda", 0), CPU, "cpu"),
        ("gpu", CPU, "cpu"),
        ("gpu", GPUS, "cuda:1"),
        ("", CPU, "cpu"),
        (2, GPUS, "cuda:0"),
        ("cuda:2", GPUS, "cuda:0"),
        ("cuda:x", GPUS, "cuda:0"),
        ("cuda:-1", GPUS, "cuda:0"),
        ("mps", GPUS, "cuda:0"),
    ],
)
def test_a_device_that_is_not_there_is_named_with_those_that_are(device, hardware, here):
    with pytest.raises(DeviceError) as raised:
        place(device, hardware)
    assert repr(device) in str(raised.value)
    assert here in raised.value.remedy


def test_a_plan_for_torch_names_the_dtype_that_runs():
    made = plan(backend="torch")
    assert as_run(made, torch.float32) is made
    changed = as_run(made, torch.bfloat16)
    assert changed.precision == "bf16"
    assert next(choice for choice in changed.choices if choice.what == "precision").value == "bf16"
    assert as_run(plan(), torch.bfloat16).precision == "auto"  # an engine runs what was planned


def test_what_was_measured_takes_the_place_of_what_was_open():
    made = decided(plan(), "int8", "it passed")
    assert made.precision == "int8"
    found = next(choice for choice in made.choices if choice.what == "precision")
    assert (found.value, found.reason) == ("int8", "it passed")
    assert made.streams == 1


@pytest.mark.parametrize("name", ["onnxruntime", "torch"])
def test_an_engine_that_was_measured_comes_first(name):
    found = plan(first=name)
    assert (found.backend, found.warning) == (name, "")
    told = as_tuned(found, "tuned on 9 inputs", {"openvino": "slower", name: "itself"})
    assert next(c.reason for c in told.choices if c.what == "backend") == "tuned on 9 inputs"
    assert [(c.value, c.reason) for c in told.rejected] == [("openvino", "slower")]


def test_an_engine_that_was_measured_and_is_gone_does_not_stand_in_the_way():
    found = plan(missing=("onnxruntime",), first="onnxruntime")
    assert (found.backend, found.warning) == ("openvino", "")
    assert plan(first="onnxruntime", backend="openvino").backend == "openvino"


def test_streams_that_were_measured_are_told():
    made = decided(plan(), "int8", "it passed", streams=4)
    assert made.streams == 4
    found = next(choice for choice in made.choices if choice.what == "streams")
    assert found.value == "4"
    assert "measured" in found.reason


def test_a_number_of_threads_that_was_said_wins():
    made = plan(threads=3)
    assert made.threads == 3
    assert "threads=" in next(choice.reason for choice in made.choices if choice.what == "threads")
    assert plan(threads=3, backend="torch").threads == 0
