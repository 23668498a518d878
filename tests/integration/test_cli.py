"""The command line: what it prints for people and for programs, and how it fails. `tune` is in test_tune.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import fastpipe
from fastpipe import diagnosis
from fastpipe.artifacts import inventory
from fastpipe.artifacts.store import Store
from fastpipe.cli import app
from fastpipe.cli.shown import readable
from fastpipe.plan import Engine
from tests.conftest import ENGINES, V5
from tests.models import MINILM

QUICK = "openvino" if V5 else "onnxruntime"
TASK = "text-classification"
HOW = ("--backend", QUICK, "--precision", "fp32")


def run(*arguments: Any, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


@pytest.fixture
def built(models: Any, tmp_path: Path) -> Path:
    """A cache in which a model was built by the command line."""
    said = json.loads(
        run("build", models["seqcls"], "--task", "text-classification", *HOW, "--cache-dir", tmp_path, "--json")
    )
    assert (said["plan"]["backend"], said["plan"]["precision"], said["report"]["chosen"]) == (QUICK, "fp32", "fp32")
    return tmp_path


def test_what_was_built_is_listed_shown_whole_and_removed(built: Path, models: Any) -> None:
    listed = json.loads(run("cache", "list", "--cache-dir", built, "--json"))
    graph = next(entry for entry in listed["entries"] if entry["kind"] == "graph")
    assert (graph["model"], graph["task"], graph["backend"]) == ("seqcls", "text-classification", QUICK)
    assert listed["size_bytes"] == sum(entry["size_bytes"] for entry in listed["entries"]) > 0
    assert graph["key"][:8] in run("cache", "list", "--cache-dir", built)
    shown = json.loads(run("cache", "show", graph["key"][:8], "--cache-dir", built))
    assert shown["manifest"]["key"] == graph["key"]

    assert "whole" in run("cache", "verify", "--cache-dir", built)
    file = max((built / graph["key"]).iterdir(), key=lambda path: path.stat().st_size)
    file.write_bytes(file.read_bytes()[:100])
    assert file.name in run("cache", "verify", "--cache-dir", built, code=1)

    would = json.loads(run("cache", "prune", "--dry-run", "--cache-dir", built, "--json"))
    assert {entry["key"] for entry in would["entries"]} == {entry.key for entry in inventory.entries(Store(built))}
    run("cache", "prune", "--limit", "1TB", "--cache-dir", built)
    assert (built / graph["key"]).is_dir()
    run("cache", "prune", "--cache-dir", built)
    assert not inventory.entries(Store(built))


def test_what_a_pipeline_uses_stays(built: Path, models: Any) -> None:
    pipe = fastpipe.pipeline(
        "text-classification", model=models["seqcls"], backend=QUICK, precision="fp32", cache_dir=built
    )
    run("cache", "prune", "--cache-dir", built)
    assert any(entry.in_use for entry in inventory.entries(Store(built)))
    assert pipe("a small river")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("build", "/nowhere/at/all", "--task", "text-classification"), "/nowhere/at/all"),
        (("build", MINILM, "--task", "no-such-task"), "no-such-task"),
        (("cache", "show", "zz"), "zz"),
        (("cache", "prune", "--limit", "much"), "much"),
    ],
)
def test_errors_are_one_line(arguments: tuple[str, ...], said: str) -> None:
    output = run(*arguments, code=1)
    assert output.startswith("error: ")
    assert said in output
    assert "Traceback" not in output


@pytest.mark.parametrize("arguments", [(), ("build", "--help"), ("cache", "--help"), ("doctor", "--help")])
def test_help(arguments: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == (0 if arguments else 2)
    assert "Usage" in result.output


def test_wrong_usage() -> None:
    run("build", code=2)
    run("cache", "list", "--no-such-option", code=2)


def test_the_doctor_finds_what_is_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FASTPIPE_CACHE", str(tmp_path / "cache"))
    found = json.loads(run("doctor", "--json"))
    assert all(found["engines"][name] for name in ENGINES)
    assert found["faults"] == []
    assert found["cache"] == str(tmp_path / "cache")
    assert "hardware" in run("doctor")


def test_the_doctor_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FASTPIPE_CACHE", str(tmp_path / "file" / "cache"))

    def broken(name: str) -> Any:
        raise OSError("libfoo.so is missing")

    monkeypatch.setattr(diagnosis.importlib, "import_module", broken)
    output = run("doctor", code=1)
    assert "libfoo.so is missing" in output
    assert "FASTPIPE_CACHE" in output


def test_what_is_not_installed_is_advised() -> None:
    engines = [
        Engine(name="openvino", version="", remedy="pip install this", precisions=()),
        Engine(name="torch", version="2", remedy="pip install torch", precisions=()),
    ]
    on_4, on_5 = (
        diagnosis.advice(engines, {"optimum-intel": "", "transformers": version}) for version in ("4.57.6", "5.24.0")
    )
    assert on_4[0] == on_5[0] == "pip install this  # openvino"
    assert "environment of its own" in on_5[1]
    assert "environment of its own" not in on_4[1]
    assert diagnosis.advice(engines[1:], {"optimum-intel": "1.27", "transformers": "4.57.6"}) == ()


@pytest.mark.parametrize(
    ("size", "said"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_500_000_000, "1.5 GB"), (10**16, "10000.0 TB")]
)
def test_sizes(size: int, said: str) -> None:
    assert readable(size) == said


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(f"the mill turns {number} times" for number in range(6)))
    return path


def test_verify_compares_with_fp32(models: Any, texts: Path) -> None:
    found = json.loads(run("verify", models["seqcls"], "--task", TASK, "--data", texts, *HOW, "--json"))
    assert (found["task"], found["candidate"], found["samples"]) == ("text-classification", "fp32", 6)
    assert found["agreement"] == 1.0


def test_bench_times_all_contenders(models: Any, texts: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "rates.png"
    found = json.loads(run("bench", models["seqcls"], "--task", TASK, "--data", texts, *HOW, "--plot", plot, "--json"))
    assert (found["task"], found["samples"], found["runs"]) == ("text-classification", 6, f"{QUICK} fp32")
    assert {"fastpipe", "transformers, 1 thread"} <= set(found["rounds"])
    assert all(len(took) == 3 and min(took) > 0 for took in found["rounds"].values())
    assert found["ratio"] == pytest.approx(found["rates"]["fastpipe"] / found["rates"][found["reference"]])
    assert plot.read_bytes().startswith(b"\x89PNG")
