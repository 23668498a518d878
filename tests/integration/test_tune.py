"""`fastpipe.tune`: what it measures, and that the next pipeline follows it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from typer.testing import CliRunner

import fastpipe
from fastpipe import contest, tuning
from fastpipe.artifacts import build
from fastpipe.artifacts.store import Store
from fastpipe.backends import registry
from fastpipe.cli import app
from fastpipe.errors import CacheWarning, ExportError, InputError, OptionError
from fastpipe.hardware import detect_hardware
from fastpipe.pipelines import request as requests
from fastpipe.pipelines.tuned import question
from fastpipe.timing import Timing
from tests.compare import assert_same
from tests.conftest import ENGINES
from tests.models import Models

TASK = "text-classification"
SECRET = "Zanzibar-7731"  # in every sample
TEXTS = [f"{SECRET}: the mill turns {number} times " * (1 + number % 5) for number in range(20)]
# OpenVINO comes first where nothing else is known.
OTHER = "onnxruntime int8"
STATIC = "onnxruntime int8-static"
ON_TORCH = "torch fp32"
Rig = Callable[[str], None]


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def cache(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """One cache for all, so that each model is built once; a test leaves no choice behind."""
    monkeypatch.delenv("FASTPIPE_PRECISION")
    monkeypatch.setenv("FASTPIPE_CACHE", str(shared_cache))
    yield shared_cache
    for manifest in shared_cache.glob("*/manifest.json"):
        if "choice" in manifest.read_text("utf-8", errors="replace") and "contenders" in manifest.read_text():
            shutil.rmtree(manifest.parent)


@pytest.fixture
def wins(monkeypatch: pytest.MonkeyPatch) -> Rig:
    """Let a contender be the fastest of those timed."""

    def rig(winner: str) -> None:
        def side_by_side(calls: Any, items: Any, *, budget_s: float) -> dict[str, Timing]:
            for call in calls.values():
                call(items[:2])
            return {n: Timing(rate=100.0 if n == winner else 10.0, items=len(items), rounds=3) for n in calls}

        timed = (winner, "openvino fp32", "onnxruntime fp32")
        monkeypatch.setattr(tuning, "side_by_side", side_by_side)
        monkeypatch.setattr(contest, "finalists", lambda found: [c for c in found if c.passed and c.name in timed])

    return rig


@pytest.fixture
def without_openvino(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = registry.engines
    monkeypatch.setattr(
        registry, "engines", lambda h: tuple(replace(e, version="") if e.name == "openvino" else e for e in engines(h))
    )


def make(model: str, **options: Any) -> Any:
    return fastpipe.pipeline(TASK, model, **options)


def runs(pipe: Any) -> str:
    return f"{pipe.plan.backend} {pipe.plan.precision}"


def is_tuned(pipe: Any) -> bool:
    return "tuned on" in str(pipe.plan)


def record(model: str) -> Path:
    """The folder of what is remembered of a model."""
    resolved = requests.resolve({"task": TASK, "model": model})
    store = Store(Path(os.environ["FASTPIPE_CACHE"]))
    return store.root / question(resolved, detect_hardware(), store).key


def test_engines_and_recipes_are_measured_on_the_inputs(models: Models, ref: Any) -> None:
    """Nothing is rigged here: whatever wins, the record says why, and the next pipeline follows."""
    pipe = make(models["seqcls"], backend="openvino", precision="fp32")
    plan, before = str(pipe.plan), pipe(TEXTS)
    found = fastpipe.tune(pipe, TEXTS, seconds=2)

    assert (str(pipe.plan), pipe(TEXTS)) == (plan, before), "the pipeline given stays as it is"
    assert (found.task, found.samples) == (TASK, len(TEXTS))
    assert {c.backend for c in found.contenders} == {"openvino", "onnxruntime", "torch"}
    by_name = {c.name: c for c in found.contenders}
    assert {"openvino fp32", STATIC, OTHER, ON_TORCH} <= set(by_name)
    assert all(c.reason for c in found.contenders), found
    assert all(by_name[name].passed for name in ("openvino fp32", "onnxruntime fp32", ON_TORCH))
    assert by_name[found.chosen.name] == found.chosen
    assert found.chosen.passed
    timed = [c for c in found.contenders if c.rate]
    assert {c.backend for c in timed} == {"openvino", "onnxruntime", "torch"}
    assert found.chosen.rate * 1.05 >= max(c.rate for c in timed if "left out" not in c.reason)
    assert f"* {found.chosen.backend}" in str(found)
    assert "<table>" in found._repr_html_()
    json.dumps(found.to_dict())

    again = make(models["seqcls"])
    assert runs(again) == runs(found.pipe) == found.chosen.name
    assert (again.plan, again.report) == (found.pipe.plan, found.pipe.report)
    assert again.dtype == torch.float32
    assert_same(again(TEXTS[:4]), ref(TASK, "seqcls")(TEXTS[:4]), 0.1)


def test_the_next_pipeline_takes_a_choice_that_differs_from_the_default(models: Models, wins: Rig) -> None:
    pipe = make(models["seqcls"])
    assert pipe.plan.backend == "openvino"
    wins(OTHER)
    found = fastpipe.tune(pipe, TEXTS)
    assert found.chosen.name == OTHER
    again = make(models["seqcls"])
    assert runs(again) == OTHER
    assert again(TEXTS) == found.pipe(TEXTS)
    assert pipe.plan.backend == "openvino"
    reason = next(c.reason for c in again.plan.choices if c.what == "backend")
    assert reason.startswith("tuned on 20 inputs: 100 samples/s")
    assert any(c.value == "openvino" and "10 samples/s" in c.reason for c in again.plan.rejected)
    assert again.report.reason.startswith("tuned on 20 inputs")
    assert again.report[again.report.chosen].verdict == "used"


def test_a_new_process_takes_it_and_a_second_tuning_replaces_it(models: Models, wins: Rig) -> None:
    pipe = make(models["seqcls"], precision="fp32")
    wins(OTHER)
    fastpipe.tune(pipe, TEXTS)
    wins("openvino fp32")
    assert fastpipe.tune(pipe, TEXTS[:10]).chosen.name == "openvino fp32"
    assert "tuned on 10 inputs" in str(make(models["seqcls"]).plan)
    wins(STATIC)
    answers = fastpipe.tune(pipe, TEXTS).pipe(["a text", "another"])
    code = (
        "import json, sys, fastpipe; pipe = fastpipe.pipeline(sys.argv[1], sys.argv[2]);"
        "print(json.dumps([pipe.plan.backend, pipe.plan.precision, str(pipe.plan), pipe(['a text', 'another'])]))"
    )
    command = [sys.executable, "-W", "error::UserWarning:fastpipe", "-c", code, TASK, models["seqcls"]]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=dict(os.environ))
    backend, precision, plan, there = json.loads(done.stdout.splitlines()[-1])
    assert f"{backend} {precision}" == STATIC
    assert "tuned on 20 inputs" in plan
    assert_same(there, answers, 1e-6)


def test_torch_may_win_and_be_tuned_again(models: Models, wins: Rig) -> None:
    wins(ON_TORCH)
    fastpipe.tune(make(models["seqcls"], precision="fp32"), TEXTS)
    with warnings.catch_warnings():
        warnings.simplefilter("error", fastpipe.errors.FastpipeWarning)
        again = make(models["seqcls"])
    assert runs(again) == ON_TORCH
    assert is_tuned(again)
    assert "tuned on" in again.report.reason
    wins(OTHER)
    assert fastpipe.tune(again, TEXTS).chosen.name == OTHER
    assert runs(make(models["seqcls"])) == OTHER


def test_what_is_said_wins(models: Models, wins: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    wins(OTHER)
    fastpipe.tune(make(models["seqcls"], precision="fp32"), TEXTS)

    def took(**options: Any) -> tuple[str, bool]:
        pipe = make(models["seqcls"], **options)
        return runs(pipe), is_tuned(pipe)

    assert took(backend="auto", precision="auto") == (OTHER, True)
    assert took(backend="onnxruntime") == (OTHER, True), "it agrees"
    assert took(precision="int8") == (OTHER, True), "it agrees"
    assert took(precision="fp32") == ("openvino fp32", False)
    assert took(dtype=torch.float32) == ("openvino fp32", False)
    assert took(backend="torch") == (ON_TORCH, False)
    assert took(backend="onnxruntime", accuracy=fastpipe.Accuracy(drift=1e-9)) == ("onnxruntime fp32", False)
    assert not took(backend="openvino")[1]
    assert not took(backend="onnxruntime", calibration_data=TEXTS[:4])[1]
    monkeypatch.setenv("FASTPIPE_BACKEND", "openvino")
    assert took()[0].startswith("openvino")


def test_looking_it_up_reads_the_weights_once(models: Models, wins: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    wins(OTHER)
    fastpipe.tune(make(models["seqcls"], precision="fp32"), TEXTS)
    read: list[Path] = []
    digest = requests.digest_of_folder
    monkeypatch.setattr(
        requests, "digest_of_folder", lambda folder, **how: read.append(folder) or digest(folder, **how)
    )
    assert is_tuned(make(models["seqcls"]))
    assert len(read) == 1
    make(models["seqcls"], backend="torch")
    make(models["seqcls"], dtype=torch.float16)
    assert len(read) == 1, "torch needs no digest"


def test_it_is_about_weights_and_not_about_a_path(models: Models, wins: Rig, tmp_path: Path) -> None:
    wins(OTHER)
    fastpipe.tune(make(models["seqcls"], precision="fp32"), TEXTS)
    copied = shutil.copytree(models["seqcls"], tmp_path / "copied")
    assert is_tuned(make(str(copied)))
    other = models.save("seqcls", tmp_path / "other", seed=9)
    assert not is_tuned(make(str(other), accuracy="auto", precision="auto"))


@pytest.mark.usefixtures("without_openvino")
def test_a_model_object_is_tuned(models: Models, wins: Rig) -> None:
    wins(OTHER)
    model, tokenizer = models.make("seqcls", seed=3)
    fastpipe.tune(make(model, tokenizer=tokenizer, precision="fp32"), TEXTS)
    assert runs(make(model, tokenizer=tokenizer)) == OTHER
    with torch.no_grad():
        model.classifier.bias += 1.0
    assert not is_tuned(make(model, tokenizer=tokenizer))


@pytest.mark.parametrize("damage", ["{", '{"format": 1, "files": {}, "facts": {}}', '{"format": 0}'])
def test_a_damaged_record_is_ignored(models: Models, wins: Rig, damage: str) -> None:
    wins(OTHER)
    fastpipe.tune(make(models["seqcls"], precision="fp32"), TEXTS)
    (record(models["seqcls"]) / "manifest.json").write_text(damage)
    with pytest.warns(CacheWarning, match="ignored"):
        pipe = make(models["seqcls"])
    assert pipe.plan.backend == "openvino"
    assert not is_tuned(pipe)
    shutil.rmtree(record(models["seqcls"]))


@pytest.mark.parametrize("backend", ENGINES)
def test_a_static_winner_needs_no_data_and_the_cache_keeps_no_sample(
    models: Models, wins: Rig, cache: Path, backend: str
) -> None:
    winner = f"{backend} int8-static"
    wins(winner)
    found = fastpipe.tune(make(models["seqcls"], precision="fp32"), TEXTS)
    again = make(models["seqcls"])
    assert runs(again) == winner
    assert again(TEXTS) == found.pipe(TEXTS)
    kept = [path for path in cache.rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if SECRET.encode() in path.read_bytes()]

    static = [m.parent for m in cache.glob("*/manifest.json") if json.loads(m.read_text())["spec"]["calibration"]]
    graphs = [path for folder in static for path in folder.iterdir() if path.name != "manifest.json"]
    assert graphs
    for graph in graphs:
        graph.write_bytes(b"damaged")
    with pytest.warns(CacheWarning, match="ignored"):
        assert not is_tuned(make(models["seqcls"]))
    for folder in static:
        shutil.rmtree(folder)
    assert not is_tuned(make(models["seqcls"])), "gone"
    assert runs(make(models["seqcls"], backend=backend)) != winner


def test_an_artifact_that_can_be_built_again_is(models: Models, wins: Rig, cache: Path) -> None:
    wins(OTHER)
    fastpipe.tune(make(models["seqcls"], precision="fp32"), TEXTS)
    for manifest in cache.glob("*/manifest.json"):
        if json.loads(manifest.read_text())["spec"]["weights_as"].get("method") == "per-token":
            shutil.rmtree(manifest.parent)
    assert runs(make(models["seqcls"])) == OTHER


def test_an_engine_that_was_removed_is_not_asked_for(
    models: Models, wins: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    wins(OTHER)
    fastpipe.tune(make(models["seqcls"], precision="fp32"), TEXTS)
    engines = registry.engines
    monkeypatch.setattr(
        registry,
        "engines",
        lambda hardware: tuple(replace(e, version="") if e.name == "onnxruntime" else e for e in engines(hardware)),
    )
    pipe = make(models["seqcls"])
    assert pipe.plan.backend == "openvino"
    assert not is_tuned(pipe)


def test_an_engine_that_cannot_take_the_model_is_in_the_table(
    models: Models, wins: Rig, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = build.export

    def fails(folder: Path, **given: Any) -> Any:
        if given["backend"].name == "openvino":
            raise ExportError("openvino has no such operator")
        return export(folder, **given)

    monkeypatch.setattr(build, "export", fails)
    wins(OTHER)
    found = fastpipe.tune(make(models["seqcls"], backend="torch"), TEXTS)
    refused = [c for c in found.contenders if c.backend == "openvino"]
    assert [(c.precision, c.passed, c.reason) for c in refused] == [("", False, "openvino has no such operator")]
    assert found.chosen.name == OTHER
    assert "no such operator" in str(make(models["seqcls"]).plan)


@pytest.mark.usefixtures("without_openvino")
def test_what_does_not_pass_is_not_timed(models: Models) -> None:
    """int8 breaks this model."""
    found = fastpipe.tune(
        make(models["outliers"], precision="fp32"), [f"a quiet little town {n}" for n in range(20)], seconds=1
    )
    by_name = {c.name: c for c in found.contenders}
    assert not by_name[OTHER].passed
    assert "drift" in by_name[OTHER].reason
    assert by_name[OTHER].rate == 0
    assert found.chosen.precision == "fp32"
    assert "not installed" in by_name["openvino"].reason


@pytest.mark.parametrize(
    ("task", "model", "options"),
    [
        ("token-classification", "ner", {}),
        ("feature-extraction", "feat", {"return_tensors": True}),
        ("fill-mask", "mlm", {}),
        ("zero-shot-classification", "nli", {"candidate_labels": ["food", "sports"]}),
        ("question-answering", "qa", {}),
    ],
)
@pytest.mark.usefixtures("without_openvino")
def test_every_task_is_tuned(models: Models, task: str, model: str, options: dict[str, Any]) -> None:
    samples: list[Any] = [f"The mill by the [MASK] turns {n} times." for n in range(16)]
    if task == "question-answering":
        samples = [{"question": "How often does it turn?", "context": text} for text in samples]
    found = fastpipe.tune(fastpipe.pipeline(task, models[model], precision="fp32"), samples, seconds=1, **options)
    again = fastpipe.pipeline(task, models[model])
    assert runs(again) == found.chosen.name
    assert is_tuned(again)


def test_what_cannot_be_tuned_is_named(models: Models, fp: Any, ref: Any, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="not from fastpipe"):
        fastpipe.tune(ref(TASK, "seqcls"), TEXTS)
    with pytest.raises(OptionError, match="no engine takes"):
        fastpipe.tune(fastpipe.pipeline("text-generation", models["gpt2"], backend="torch"), TEXTS)
    pipe = fp(TASK, "seqcls", "torch")
    with pytest.raises(OptionError, match="seconds=0"):
        fastpipe.tune(pipe, TEXTS, seconds=0)
    for samples in ([], "a text", [None], tmp_path / "none.txt"):
        with pytest.raises(OptionError, match="samples"):
            fastpipe.tune(pipe, samples)
    with pytest.raises(InputError, match="bytes are not text"):
        fastpipe.tune(pipe, ["a text", b"bytes"])


def test_the_command_line(models: Models, tmp_path: Path, wins: Rig) -> None:
    wins(OTHER)
    samples = tmp_path / "samples.txt"
    samples.write_text("\n".join(TEXTS), encoding="utf-8")
    done = CliRunner().invoke(app, ["tune", models["seqcls"], str(samples), "--task", TASK, "--seconds", "1"])
    assert done.exit_code == 0, done.output
    assert "tuned on 20 inputs" in done.output
    assert "onnxruntime" in done.output
    assert runs(make(models["seqcls"])) == OTHER


@pytest.mark.parametrize(
    ("model", "samples", "task", "said"),
    [
        ("seqcls", "none.txt", TASK, "is not a file"),
        ("seqcls", "empty.txt", TASK, "is an empty file"),
        ("seqcls", "fine.txt", "text-clasification", "text-clasification"),
        (None, "fine.txt", TASK, "neither a folder nor in the local cache"),
    ],
)
def test_errors_on_the_command_line_are_one_message(
    models: Models, tmp_path: Path, model: str | None, samples: str, task: str, said: str
) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "fine.txt").write_text("fine")
    where = models[model] if model else "no/such-model"
    done = CliRunner().invoke(app, ["tune", where, str(tmp_path / samples), "--task", task])
    assert done.exit_code == 1
    assert done.output.strip().splitlines()[-1].startswith("error: ")
    assert said in done.output
    assert "Traceback" not in done.output


def test_help_needs_no_torch() -> None:
    code = "import sys, fastpipe.cli; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    done = subprocess.run([sys.executable, "-m", "fastpipe", "--help"], capture_output=True, text=True, check=True)
    assert "tune" in done.stdout


def test_pipelines_on_torch_still_pickle(models: Models) -> None:
    import pickle

    pipe = pickle.loads(pickle.dumps(make(models["seqcls"], backend="torch", token="hf_secret")))
    assert pipe._request.arguments["token"] is None
    assert isinstance(pipe, transformers.TextClassificationPipeline)
