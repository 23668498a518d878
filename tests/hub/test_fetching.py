"""Ready files on a hub: found, fetched, compared and checked; and nothing is ever worse for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import transformers
from transformers import BertForSequenceClassification

import fastpipe
from fastpipe.artifacts import inventory, share
from fastpipe.artifacts.store import Store
from fastpipe.backends import registry
from fastpipe.backends.onnxruntime import quantized, save
from fastpipe.precision.recipes import Weights
from tests.compare import assert_same
from tests.hub.job import TEXTS
from tests.hub.server import Hub, Repo, commit, files_in, serving
from tests.models import bert_config

ENGINES = ("onnxruntime", "openvino")
GRAPHS = {"onnxruntime": "onnx/model.onnx", "openvino": "openvino/openvino_model.xml"}
ROOT = Path(__file__).parents[2]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving(Hub()) as hub:
        yield hub


def run(hub: Hub, work: Path, *calls: dict[str, Any], **environment: str) -> list[dict[str, Any]]:
    """Make pipelines in a process of its own; give what came of each."""
    said = {**os.environ, **hub.environment(work), "FASTPIPE_PRECISION": "fp32", **environment}
    said.pop("HF_HUB_CACHE", None)
    command = [sys.executable, "-m", "tests.hub.job", json.dumps(calls)]
    done = subprocess.run(command, env=said, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (work / "log").write_text(done.stderr)
    found: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return found


def model(folder: Path, seed: int, *, words: str = "") -> Path:
    """A tiny classifier, whose weights and vocabulary are its own."""
    from tests.models import wordpiece

    torch.manual_seed(seed)
    names = {0: "neg", 1: "pos"}
    classifier = BertForSequenceClassification(bert_config(num_labels=2, id2label=names, num_hidden_layers=2))
    classifier.save_pretrained(folder)
    wordpiece().save_pretrained(folder)
    if words:  # another vocabulary: two words change places
        path = folder / "tokenizer.json"
        values = json.loads(path.read_text("utf-8"))
        vocabulary, (one, other) = values["model"]["vocab"], words.split()
        vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
        path.write_text(json.dumps(values), "utf-8")
        (folder / "vocab.txt").unlink(missing_ok=True)
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model(tmp_path_factory.mktemp("hub") / "tiny", 0)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the same kind, with other weights and another vocabulary."""
    return model(tmp_path_factory.mktemp("hub") / "other", 1, words="river mill")


@pytest.fixture(scope="module")
def ready(tiny: Path, other: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """Graphs as others publish them, by whose they are: fp32 for both engines, and a good int8 one."""
    return {name: graphs(folder, tmp_path_factory.mktemp(name)) for name, folder in (("tiny", tiny), ("other", other))}


def graphs(folder: Path, work: Path) -> dict[str, bytes]:
    store = Store(work / "artifacts")
    for backend in ENGINES:
        fastpipe.pipeline("text-classification", str(folder), backend=backend, precision="fp32", cache_dir=store.root)
    built = {entry.backend: store.root / entry.key for entry in inventory.entries(store) if entry.kind == "graph"}
    graph = onnx.load(built["onnxruntime"] / "model.onnx")
    onnx.save(graph, work / "model.onnx")
    save(quantized(graph, Weights(method="per-token")), work / "int8.onnx")
    onnx.save(onnx.load(work / "int8.onnx"), work / "model_int8.onnx")
    found = {f"onnx/{name}": (work / name).read_bytes() for name in ("model.onnx", "model_int8.onnx")}
    for suffix in (".xml", ".bin"):
        path = built["openvino"] / f"openvino_model{suffix}"
        found[f"openvino/{path.name}"] = path.read_bytes()
    return found


def answers(folder: Path) -> Any:
    return transformers.pipeline("text-classification", str(folder), device="cpu")(TEXTS, top_k=None)


def origins(work: Path) -> dict[str, str]:
    """Where the fp32 graphs that were stored are from, by engine."""
    there = inventory.entries(Store(work / "artifacts"))
    return {entry.backend: entry.manifest["facts"]["exporter"] for entry in there if entry.kind == "graph"}


def test_two_revisions_are_two_models(hub: Hub, tiny: Path, other: Path, tmp_path: Path) -> None:
    """FP-32: weights, vocabulary and everything else come from the commit that was asked for."""
    one, two = commit("one"), commit("two")
    hub.repos["me/two"] = Repo(commits={one: files_in(tiny), two: files_in(other)}, branches={"main": two, "v1": one})
    calls = [{"model": "me/two", "revision": "v1"}, {"model": "me/two"}, {"model": "me/two", "revision": one}]
    found = run(hub, tmp_path, *calls)
    assert_same(found[0]["answers"], answers(tiny))
    assert_same(found[1]["answers"], answers(other))
    assert_same(found[2]["answers"], answers(tiny))
    wanted = [path for path in hub.paths() if "safetensors" in path and path.startswith("/large/")]
    assert sorted(path.split("/")[4] for path in wanted) == sorted([one, two])


def test_a_private_model_and_its_ready_files(
    hub: Hub, tiny: Path, ready: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    """The token opens what is private, also what is ready there, and never leaves for where large files are."""
    hub.add("me/private", {**files_in(tiny), **ready["tiny"]}, private=True)
    call = {"model": "me/private", "backend": "onnxruntime"}
    refused, found = run(hub, tmp_path, call, {**call, "token": hub.token})
    assert "OSError" in refused["error"]
    assert "me/private" in refused["error"]
    assert_same(found["answers"], answers(tiny))
    assert origins(tmp_path) == {"onnxruntime": f"me/private@{commit('me/private')}/onnx/model.onnx"}
    large = [asked for asked in hub.asked if asked.path.startswith("/large/")]
    assert large
    assert not any(asked.authorization for asked in large)
    assert any(asked.path.startswith("/api/") and hub.token in asked.authorization for asked in hub.asked)
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and hub.token.encode() in path.read_bytes()]
    assert kept == []


def test_ready_graphs_are_taken_and_asked_for_once(
    hub: Hub, tiny: Path, ready: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    hub.add("me/ready", {**files_in(tiny), **ready["tiny"]})
    calls = [{"model": "me/ready", "backend": backend} for backend in ENGINES]
    first = run(hub, tmp_path, *calls)
    assert [found["backend"] for found in first] == list(ENGINES)
    at = f"me/ready@{commit('me/ready')}"
    assert origins(tmp_path) == {backend: f"{at}/{GRAPHS[backend]}" for backend in ENGINES}
    hub.asked.clear()
    again = run(hub, tmp_path, *calls)
    assert not [path for path in hub.paths() if "/revision/" in path or path.startswith("/large/")]
    assert not [path for path in hub.paths() if "me/ready" not in path]
    hub.asked.clear()
    offline = run(hub, tmp_path, *calls, HF_HUB_OFFLINE="1")
    assert hub.asked == []
    for found in (*first, *again, *offline):
        assert_same(found["answers"], answers(tiny))


def test_a_ready_int8_graph_goes_through_the_check(
    hub: Hub, tiny: Path, ready: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    """A good one passes; one that is near chance, as some that were published, is found out, and is not used."""
    hub.add("me/good", {**files_in(tiny), "onnx/model_int8.onnx": ready["tiny"]["onnx/model_int8.onnx"]})
    hub.add("me/bad", {**files_in(tiny), "onnx/model_quantized.onnx": ready["other"]["onnx/model_int8.onnx"]})
    call = {"backend": "onnxruntime", "precision": "auto"}
    good, bad = run(hub, tmp_path, {**call, "model": "me/good"}, {**call, "model": "me/bad"})
    assert good["checked"]["int8-ready"]["passed"]
    assert not bad["checked"]["int8-ready"]["passed"]
    assert "agreement" in bad["checked"]["int8-ready"]["verdict"]
    labels = [max(rows, key=lambda row: row["score"])["label"] for rows in answers(tiny)]
    for found in (good, bad):
        assert [max(rows, key=lambda row: row["score"])["label"] for rows in found["answers"]] == labels
    assert "int8-ready runs" not in bad["plan"]


def test_graphs_that_answer_otherwise_or_may_not_run_are_left(
    hub: Hub, tiny: Path, ready: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    """A graph of other weights is found out beside torch; one with operators of its own, or cut, is not even run."""
    hub.add("me/wrong", {**files_in(tiny), **ready["other"]})
    graph = onnx.load_from_string(ready["tiny"]["onnx/model.onnx"])
    graph.graph.node[-1].domain = "own.operators"
    hostile = graph.SerializeToString()
    hub.add("me/hostile", {**files_in(tiny), "onnx/model.onnx": hostile})
    hub.add("me/cut", {**files_in(tiny), "onnx/model.onnx": ready["tiny"]["onnx/model.onnx"][:-5000]})
    calls = [{"model": "me/wrong", "backend": backend} for backend in ENGINES]
    calls += [{"model": name, "backend": "onnxruntime"} for name in ("me/hostile", "me/cut")]
    for found in run(hub, tmp_path, *calls):
        assert_same(found["answers"], answers(tiny))
    there = [entry.manifest["facts"]["exporter"] for entry in inventory.entries(Store(tmp_path / "artifacts"))
             if entry.kind == "graph"]  # fmt: skip
    assert len(there) == 4
    assert not any(name.startswith("me/") for name in there)
    assert "UnsafeFileError" in (tmp_path / "log").read_text()


def test_a_download_that_is_cut_off_goes_on(
    hub: Hub, tiny: Path, ready: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    graph = onnx.load_from_string(ready["tiny"]["onnx/model.onnx"])
    graph.doc_string = "as large as real ones are, of which clients write ten megabytes at a time. " * 400_000
    hub.add("me/slow", {**files_in(tiny), "onnx/model.onnx": graph.SerializeToString()})
    hub.cut, hub.slow = {"model.onnx": [12_000_000, 12_000_000]}, {"model.onnx": 0.5}
    (found,) = run(hub, tmp_path, {"model": "me/slow", "backend": "onnxruntime"})
    assert_same(found["answers"], answers(tiny))
    assert origins(tmp_path)["onnxruntime"].startswith("me/slow@")
    ranges = [asked.range for asked in hub.asked if asked.method == "GET" and asked.path.endswith("/model.onnx")]
    starts = [int(said.removeprefix("bytes=").partition("-")[0]) for said in ranges if said]
    assert len(starts) == 2
    assert 0 < starts[0] < starts[1] < 24_000_000


def test_a_hub_that_fails_is_one_with_nothing_ready(
    hub: Hub, tiny: Path, ready: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    """What cannot be fetched is built; and when it can be, later, nothing says that it could not."""
    hub.add("me/fails", {**files_in(tiny), **ready["tiny"]})
    hub.broken = {".onnx", ".xml"}
    call = {"model": "me/fails", "backend": "onnxruntime", "precision": "auto"}
    (found,) = run(hub, tmp_path, call)
    labels = [max(rows, key=lambda row: row["score"])["label"] for rows in answers(tiny)]
    assert [max(rows, key=lambda row: row["score"])["label"] for rows in found["answers"]] == labels
    assert "FetchError" in found["checked"]["int8-ready"]["verdict"]
    assert not origins(tmp_path)["onnxruntime"].startswith("me/")
    failed = [entry for entry in inventory.entries(Store(tmp_path / "artifacts")) if entry.kind == "failed"]
    assert failed == []


def test_publishers_are_believed_where_their_card_names_the_model(
    hub: Hub, tiny: Path, ready: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    onnx_files = {"onnx/model.onnx": ready["tiny"]["onnx/model.onnx"]}
    for name in ("named", "unnamed", "off", "mine"):
        hub.add(f"me/{name}", files_in(tiny))
    hub.add("onnx-community/named", onnx_files, card={"base_model": "me/named"})
    hub.add("onnx-community/unnamed-ONNX", onnx_files, card={"base_model": ["someone/unnamed"]})
    hub.add("onnx-community/off", onnx_files, card={"base_model": "me/off"})
    hub.add("us/mine-graphs", onnx_files)
    wanted = {
        "named": ("", "onnx-community/named@"),
        "unnamed": ("", ""),
        "off": ("none", ""),
        "mine": ("none, us/{name}-graphs", "us/mine-graphs@"),
    }
    calls = [
        {"model": f"me/{name}", "backend": "onnxruntime", "environment": {"FASTPIPE_ARTIFACT_REPOS": said}}
        for name, (said, _) in wanted.items()
    ]
    for found in run(hub, tmp_path, *calls):
        assert_same(found["answers"], answers(tiny))
    there = [entry for entry in inventory.entries(Store(tmp_path / "artifacts")) if entry.kind == "graph"]
    exporters = {entry.model.removeprefix("me/"): entry.manifest["facts"]["exporter"] for entry in there}
    own = registry.load("onnxruntime").exporters()
    for name, (_, origin) in wanted.items():
        assert exporters[name].startswith(origin) if origin else exporters[name] in own
    asked = [path for path in hub.paths() if path.startswith("/api/models/onnx-community/off")]
    assert asked == []


@pytest.mark.parametrize("where", ["own", "companion"])
def test_what_was_saved_and_pushed_serves_without_torch_weights(
    hub: Hub, tiny: Path, tmp_path: Path, where: str
) -> None:
    """The short first run: no weights are downloaded, nothing is exported, quantized or checked."""
    pipe = fastpipe.pipeline(
        "text-classification", str(tiny), backend="openvino", precision="auto", cache_dir=tmp_path / "builder"
    )
    pipe.save_pretrained(tmp_path / "saved")
    files = files_in(tmp_path / "saved")
    hub.add("me/saved", files if where == "own" else files_in(tiny))
    hub.add("us/saved", files)
    name = {"own": "", "companion": "us/{name}"}[where]
    call = {"model": "me/saved", "precision": "auto"}
    found, again = run(hub, tmp_path, call, call, FASTPIPE_ARTIFACT_REPOS=name)
    assert found["backend"] == "openvino"
    assert found["reason"].startswith("as it was saved")
    assert_same(found["answers"], pipe(TEXTS, top_k=None))
    assert_same(again["answers"], found["answers"])
    assert not [path for path in hub.paths() if path.endswith(".safetensors")]
    assert [path for path in hub.paths() if f"/{share.FOLDER}/" in path]


def test_what_was_saved_of_other_weights_is_left(hub: Hub, tiny: Path, other: Path, tmp_path: Path) -> None:
    pipe = fastpipe.pipeline(
        "text-classification", str(other), backend="openvino", precision="fp32", cache_dir=tmp_path / "builder"
    )
    pipe.save_pretrained(tmp_path / "saved")
    stale = {name: body for name, body in files_in(tmp_path / "saved").items() if name.startswith(share.FOLDER)}
    hub.add("me/stale", {**files_in(tiny), **stale})
    (found,) = run(hub, tmp_path, {"model": "me/stale"})
    assert_same(found["answers"], answers(tiny))


def test_names_of_repositories_that_cannot_be(hub: Hub, tiny: Path, tmp_path: Path) -> None:
    hub.add("me/tiny", files_in(tiny))
    (found,) = run(hub, tmp_path, {"model": "me/tiny"}, FASTPIPE_ARTIFACT_REPOS="us/{name}, ../x")
    assert found["error"].startswith("OptionError")
    assert "'../x'" in found["error"]
    assert "owner/name" in found["error"]
