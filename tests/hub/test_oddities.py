"""Hubs that answer strangely or not at all, and publishers who mean harm: models are built, and nothing stays."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fastpipe.artifacts import inventory, share
from fastpipe.artifacts.store import Store
from tests.compare import assert_same
from tests.conftest import V5
from tests.hub import test_fetching
from tests.hub.server import Hub, commit, files_in
from tests.hub.test_fetching import answers, origins, run

hub, tiny, other, ready = (getattr(test_fetching, name) for name in ("hub", "tiny", "other", "ready"))


def records(work: Path, part: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The records in the store whose facts have a part."""
    for path in (work / "artifacts").glob("*/manifest.json"):
        manifest = json.loads(path.read_text("utf-8"))
        if part in manifest["facts"]:
            yield path, manifest


def test_a_publisher_who_cannot_be_asked_is_asked_again(
    hub: Hub, tiny: Path, ready: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    """That the network fails is remembered by nobody; that there is no such repository is."""
    hub.add("me/model", files_in(tiny))
    graph = {"onnx/model.onnx": ready["tiny"]["onnx/model.onnx"]}
    hub.add("onnx-community/model", graph, card={"base_model": "me/model"})
    hub.busy = {"onnx-community/model"}
    run(hub, tmp_path, {"model": "me/model", "backend": "openvino"})
    hub.busy = set()
    (found,) = run(hub, tmp_path, {"model": "me/model", "backend": "onnxruntime"})
    assert_same(found["answers"], answers(tiny))
    assert origins(tmp_path)["onnxruntime"].startswith("onnx-community/model@")
    hub.asked.clear()
    run(hub, tmp_path, {"model": "me/model", "backend": "onnxruntime"})
    assert not [path for path in hub.paths() if "onnx-community" in path]


@pytest.mark.parametrize("own", [None, [], [{"repo": 1}], [{"repo": "a/b", "commit": "c", "made_of": 3, "files": []}]])
def test_a_damaged_record_of_what_there_is_is_asked_for_again(own: Any) -> None:
    from fastpipe.pipelines.published import _listed

    assert _listed({"own": own, "known": []}) is None
    assert _listed({"known": []}) is None


def test_a_damaged_record_is_written_again(hub: Hub, tiny: Path, tmp_path: Path) -> None:
    hub.add("me/model", files_in(tiny))
    call = {"model": "me/model", "backend": "onnxruntime"}
    run(hub, tmp_path, call)
    ((path, manifest),) = records(tmp_path, "known")
    path.write_text(json.dumps({**manifest, "facts": {"own": [{"files": "x"}], "known": 3}}))
    (offline,) = run(hub, tmp_path, call, HF_HUB_OFFLINE="1")
    (found,) = run(hub, tmp_path, call)
    for one in (offline, found):
        assert_same(one["answers"], answers(tiny))
    ((_, again),) = records(tmp_path, "known")
    assert again["facts"] == manifest["facts"]


STRANGE: dict[str, dict[str, Any]] = {
    "no-files": {"said": {"siblings": None}},
    "no-sizes": {"said": {"siblings": [{"rfilename": "onnx/model.onnx"}, {"rfilename": "model.safetensors"}]}},
    "odd-sizes": {"said": {"siblings": [{"rfilename": "onnx/model.onnx", "size": "1", "lfs": 3}]}},
    "odd-names": {"said": {"siblings": [{"rfilename": n, "size": 9} for n in ("/model.onnx", "../x", "\ud800", 7)]}},
    "no-commit": {"said": {"sha": None}},
    "text-card": {"card": "base_model: me/x"},
    "list-card": {"card": ["base_model"]},
    "number-base": {"card": {"base_model": 3}},
    "deep-base": {"card": {"base_model": [["me/x"], {"a": 1}, None]}},
}


def test_strange_answers_are_those_of_a_hub_with_nothing_ready(hub: Hub, tiny: Path, tmp_path: Path) -> None:
    for name, said in STRANGE.items():
        hub.add(f"me/{name}", files_in(tiny), **said)
    for found in run(hub, tmp_path, *({"model": f"me/{name}", "backend": "onnxruntime"} for name in STRANGE)):
        assert_same(found["answers"], answers(tiny))
    assert not [path for path in hub.paths() if path.endswith(".onnx")]


@pytest.mark.skipif(V5, reason="transformers 5 itself hands its tokenizers this option twice, and fails")
def test_local_files_only_asks_nothing(
    hub: Hub, tiny: Path, ready: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    """Not even for what is known to be there."""
    hub.add("me/model", {**files_in(tiny), **ready["tiny"], "fastpipe/choice.json": b"{}"})
    run(hub, tmp_path, {"model": "me/model", "backend": "onnxruntime"})
    shutil.rmtree(next((tmp_path / "hub").rglob("fastpipe")))
    hub.asked.clear()
    call = {"model": "me/model", "backend": "openvino", "model_kwargs": {"local_files_only": True}}
    (found,) = run(hub, tmp_path, call)
    assert_same(found["answers"], answers(tiny))
    assert hub.asked == []
    assert not origins(tmp_path)["openvino"].startswith("me/")


def test_what_did_not_come_is_tried_again(
    hub: Hub, tiny: Path, ready: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    """A report without the ready graph is of that time; one that chose it serves on where it is gone."""
    hub.add("me/model", {**files_in(tiny), "onnx/model_int8.onnx": ready["tiny"]["onnx/model_int8.onnx"]})
    hub.broken = {".onnx"}
    call = {"model": "me/model", "backend": "onnxruntime", "precision": "auto"}
    (first,) = run(hub, tmp_path, call)
    assert "FetchError" in first["checked"]["int8-ready"]["verdict"]
    hub.broken = set()
    (second,) = run(hub, tmp_path, call)
    assert second["checked"]["int8-ready"]["passed"]
    for path, manifest in records(tmp_path, "report"):
        report = manifest["facts"]["report"]
        if any(candidate["recipe"] == "int8-ready" for candidate in report["candidates"]):
            path.write_text(json.dumps({**manifest, "facts": {"report": {**report, "chosen": "int8-ready"}}}))
    for entry in inventory.entries(Store(tmp_path / "artifacts")):
        if entry.precision != "fp32" and entry.kind != "record":
            shutil.rmtree(tmp_path / "artifacts" / entry.key, ignore_errors=True)
    shutil.rmtree(tmp_path / "hub" / "hub" / "models--me--model" / "snapshots" / commit("me/model") / "onnx")
    (third,) = run(hub, tmp_path, call, HF_HUB_OFFLINE="1")
    assert "int8-ready" not in third["plan"].split(":")[0]
    assert [len(rows) for rows in third["answers"]] == [2, 2, 2, 2]


def test_hostile_ready_files_of_fastpipe_are_left(hub: Hub, tiny: Path, tmp_path: Path) -> None:
    many = {f"{share.FOLDER}/{number}/manifest.json": b"{}" for number in range(300)}
    choices = {"many": (b"{}", many), "deep": (b"[" * 100_000, {}), "links": (b"{}", {f"{share.FOLDER}/../../x": b""})}
    for name, (choice, beside) in choices.items():
        hub.add(f"me/{name}", {**files_in(tiny), f"{share.FOLDER}/{share.CHOICE}": choice, **beside})
    for found in run(hub, tmp_path, *({"model": f"me/{name}", "backend": "onnxruntime"} for name in choices)):
        assert_same(found["answers"], answers(tiny))
    assert not [path for path in hub.paths() if "manifest.json" in path]
