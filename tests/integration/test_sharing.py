"""Saved pipelines: a folder that transformers and fastpipe load, and that fastpipe builds nothing for."""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import onnx
import pytest
import transformers

import fastpipe
from fastpipe.artifacts import build, share
from fastpipe.artifacts.spec import MANIFEST, digest_of_file
from fastpipe.errors import CacheWarning
from fastpipe.pipelines.generators.selection import GeneratorSelection
from fastpipe.pipelines.request import Request
from fastpipe.precision import gate
from tests.compare import assert_same
from tests.conftest import ENGINES, V5
from tests.models import Models

TEXTS = ["a small river", "the old mill stands", "", "runs " * 40]
QUICK = "openvino" if V5 else "onnxruntime"


@pytest.fixture
def nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From when it is called, nothing may be exported, quantized, checked, or loaded by torch."""

    def forbid() -> None:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise AssertionError("something is built again")

        for owner, name in (
            (build, "export"),
            (build, "quantize"),
            (gate, "walk"),
            (GeneratorSelection, "_export"),
            (GeneratorSelection, "_quantize"),
            (Request, "torch_model"),
            (transformers.PreTrainedModel, "from_pretrained"),
        ):
            monkeypatch.setattr(owner, name, refuse)

    return forbid


def saved(pipe: Any, folder: Path) -> Path:
    pipe.save_pretrained(folder)
    return folder


def ready(folder: Path) -> list[Path]:
    return sorted((folder / share.FOLDER).glob(f"*/{MANIFEST}"))


@pytest.mark.parametrize("backend", ENGINES)
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_what_is_saved_serves_in_an_empty_cache(
    models: Models,
    fp: Any,
    ref: Any,
    nothing_is_built: Any,
    empty_cache: Path,
    tmp_path: Path,
    backend: str,
    precision: str,
) -> None:
    pipe = fp("text-classification", "seqcls", backend, precision=precision)
    wanted = pipe(TEXTS)
    folder = saved(pipe, tmp_path / "saved")
    theirs = transformers.pipeline("text-classification", model=str(folder), device="cpu")
    assert_same([theirs([text])[0] for text in TEXTS], [ref("text-classification", "seqcls")([t])[0] for t in TEXTS])
    shutil.move(folder, tmp_path / "moved")
    nothing_is_built()
    mine = fastpipe.pipeline("text-classification", model=tmp_path / "moved", backend=backend, precision=precision)
    assert_same(mine(TEXTS), wanted, 1e-5)
    assert (mine.plan.backend, mine.plan.precision) == (backend, precision)


def test_a_check_that_was_passed_is_saved_too(
    models: Models, nothing_is_built: Any, empty_cache: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.delenv("FASTPIPE_PRECISION")
    pipe = fastpipe.pipeline("text-classification", model=models["seqcls"])
    folder = saved(pipe, tmp_path / "saved")
    shutil.rmtree(empty_cache)
    nothing_is_built()
    again = fastpipe.pipeline("text-classification", model=folder)
    assert (again.plan.backend, again.plan.precision) == (pipe.plan.backend, pipe.plan.precision)
    assert again.report.candidates == pipe.report.candidates
    assert "saved" in again.report.reason
    assert_same(again(TEXTS), pipe(TEXTS), 1e-5)


def test_the_engine_that_served_serves_again(
    models: Models, fp: Any, nothing_is_built: Any, empty_cache: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.delenv("FASTPIPE_PRECISION")
    folder = saved(fp("text-classification", "seqcls", "onnxruntime", precision="fp32"), tmp_path)
    nothing_is_built()
    again = fastpipe.pipeline("text-classification", model=folder)
    assert (again.plan.backend, again.plan.precision) == ("onnxruntime", "fp32")


@pytest.mark.parametrize(
    ("task", "name", "inputs"),
    [("image-classification", "vit", "picture"), ("automatic-speech-recognition", "wav2vec2", "sound")],
)
def test_pictures_and_sounds(
    models: Models, fp: Any, nothing_is_built: Any, empty_cache: Path, tmp_path: Path, task: str, name: str, inputs: str
) -> None:
    from PIL import Image

    numbers = np.random.default_rng(0)
    given: Any = (
        Image.fromarray(numbers.integers(0, 255, (40, 50, 3), dtype=np.uint8))
        if inputs == "picture"
        else numbers.standard_normal(16000).astype(np.float32)
    )
    pipe = fp(task, name, QUICK)
    assert pipe.plan.backend == QUICK
    folder = saved(pipe, tmp_path)
    nothing_is_built()
    again = fastpipe.pipeline(task, model=folder, backend=QUICK)
    assert again.plan.backend == QUICK
    assert_same(again(given), pipe(given), 1e-5)


@pytest.mark.skipif(V5, reason="there is no exporter of generators for transformers 5")
@pytest.mark.parametrize(("task", "name"), [("text-generation", "llama"), ("summarization", "bart")])
def test_generators(
    models: Models, fp: Any, nothing_is_built: Any, empty_cache: Path, tmp_path: Path, task: str, name: str
) -> None:
    pipe = fp(task, name, "openvino")
    assert pipe.plan.backend == "openvino"
    wanted = pipe("a small river", max_new_tokens=5, do_sample=False)
    folder = saved(pipe, tmp_path)
    theirs = transformers.pipeline(task, model=str(folder), device="cpu")
    assert theirs("a small river", max_new_tokens=5, do_sample=False) == wanted
    nothing_is_built()
    again = fastpipe.pipeline(task, model=folder)
    assert again.plan.backend == "openvino"
    assert again("a small river", max_new_tokens=5, do_sample=False) == wanted


def test_a_pipeline_on_torch_is_saved_as_transformers_saves_it(fp: Any, tmp_path: Path) -> None:
    pipe = fp("text-classification", "seqcls", "torch")
    folder = saved(pipe, tmp_path)
    assert not (folder / share.FOLDER).exists()
    assert_same(transformers.pipeline("text-classification", model=str(folder), device="cpu")(TEXTS), pipe(TEXTS))


def test_a_model_object(models: Models, nothing_is_built: Any, empty_cache: Path, tmp_path: Path) -> None:
    model, tokenizer = models.make("seqcls", seed=5)
    pipe = fastpipe.pipeline("text-classification", model=model, tokenizer=tokenizer, backend=QUICK)
    folder = saved(pipe, tmp_path)
    nothing_is_built()
    assert_same(fastpipe.pipeline("text-classification", model=folder, backend=QUICK)(TEXTS), pipe(TEXTS), 1e-5)


def test_weights_are_copied_and_not_loaded(models: Models, fp: Any, nothing_is_built: Any, tmp_path: Path) -> None:
    pipe = fp("text-classification", "seqcls", QUICK)
    nothing_is_built()
    folder = saved(pipe, tmp_path)
    weights = "model.safetensors"
    assert (folder / weights).read_bytes() == Path(models["seqcls"], weights).read_bytes()
    before = (folder / weights).stat().st_mtime_ns
    fastpipe.pipeline("text-classification", model=folder, backend=QUICK).save_pretrained(folder)  # over itself
    assert (folder / weights).stat().st_mtime_ns == before
    assert len(ready(folder)) == 2


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"max_shard_size": "5GB"}, "model.safetensors"),
        ({"max_shard_size": "100KB"}, "model.safetensors.index.json"),
        pytest.param(
            {"safe_serialization": False}, "pytorch_model.bin", marks=pytest.mark.skipif(V5, reason="it has no such")
        ),
    ],
)
def test_transformers_own_arguments_are_kept(
    models: Models, fp: Any, nothing_is_built: Any, empty_cache: Path, tmp_path: Path, options: Any, found: str
) -> None:
    pipe = fp("text-classification", "seqcls", QUICK)
    pipe.save_pretrained(tmp_path / "saved", **options)
    assert (tmp_path / "saved" / found).is_file()
    nothing_is_built()
    again = fastpipe.pipeline("text-classification", model=tmp_path / "saved", backend=QUICK)
    assert_same(again(TEXTS), pipe(TEXTS), 1e-5)
    again.save_pretrained(tmp_path / "saved again") if "safe_serialization" not in options else None
    wanted = inspect.signature(transformers.Pipeline.save_pretrained)
    assert inspect.signature(type(pipe).save_pretrained) == wanted


def test_sharded_weights_replace_those_that_were_there(models: Models, empty_cache: Path, tmp_path: Path) -> None:
    models.save("seqcls", tmp_path / "saved", seed=1)
    model, tokenizer = models.make("seqcls", seed=2)
    model.save_pretrained(tmp_path / "sharded", max_shard_size="100KB")
    tokenizer.save_pretrained(tmp_path / "sharded")
    pipe = fastpipe.pipeline("text-classification", model=tmp_path / "sharded", backend=QUICK)
    folder = saved(pipe, tmp_path / "saved")
    assert not (folder / "model.safetensors").exists()
    assert_same(transformers.pipeline("text-classification", model=str(folder), device="cpu")(TEXTS), pipe(TEXTS))


def test_a_model_of_the_hub_is_saved_as_a_folder(
    models: Models, nothing_is_built: Any, empty_cache: Path, tmp_path: Path
):
    repository = Path(huggingface_hub.constants.HF_HUB_CACHE) / "models--me--saved"
    commit = "89abcdef0123456789abcdef0123456789abcdef"
    shutil.copytree(models["seqcls"], repository / "snapshots" / commit, dirs_exist_ok=True)
    (repository / "refs").mkdir(exist_ok=True)
    (repository / "refs" / "main").write_text(commit)
    pipe = fastpipe.pipeline("text-classification", model="me/saved", backend=QUICK)
    nothing_is_built()
    folder = saved(pipe, tmp_path)
    again = fastpipe.pipeline("text-classification", model=folder, backend=QUICK)
    assert_same(again(TEXTS), pipe(TEXTS), 1e-5)


@pytest.fixture
def folder(fp: Any, empty_cache: Path, tmp_path: Path) -> Path:
    """A saved pipeline, and an empty cache."""
    return saved(fp("text-classification", "seqcls", QUICK), tmp_path / "saved")


def test_changed_weights_are_never_served_by_old_files(models: Models, folder: Path) -> None:
    models.save("seqcls", folder, seed=7)
    with pytest.warns(CacheWarning, match="other weights"):
        mine = fastpipe.pipeline("text-classification", model=folder, backend=QUICK)
    assert_same(mine(TEXTS), transformers.pipeline("text-classification", model=str(folder), device="cpu")(TEXTS))


def test_a_changed_label_is_served(folder: Path, nothing_is_built: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {"0": "blue", "1": "green", "2": "red"}
    (folder / "config.json").write_text(json.dumps(config))
    nothing_is_built()
    mine = fastpipe.pipeline("text-classification", model=folder, backend=QUICK)
    assert {one["label"] for one in mine(TEXTS)} <= {"blue", "green", "red"}


def test_what_another_version_built_serves(folder: Path, nothing_is_built: Any) -> None:
    for path in ready(folder):
        manifest = json.loads(path.read_text())
        versions = manifest["spec"]["versions"]
        manifest["spec"]["config"] = "as it is read there"
        manifest["spec"]["versions"] = {**versions, "transformers": "4.99", "torch": "2.99", "nncf": ""}
        path.write_text(json.dumps(manifest))
    nothing_is_built()
    assert fastpipe.pipeline("text-classification", model=folder, backend=QUICK).plan.backend == QUICK


def test_what_a_newer_engine_built_is_built_again(folder: Path, nothing_is_built: Any) -> None:
    for path in ready(folder):
        manifest = json.loads(path.read_text())
        manifest["spec"]["versions"][QUICK] = "9999.1"
        path.write_text(json.dumps(manifest))
    nothing_is_built()
    with pytest.raises(AssertionError, match="built again"):
        fastpipe.pipeline("text-classification", model=folder, backend=QUICK)


def test_another_config_is_built(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["layer_norm_eps"] = 0.3
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.warns(CacheWarning, match="another config"):
        mine = fastpipe.pipeline("text-classification", model=folder, backend=QUICK)
    assert_same(mine(TEXTS), transformers.pipeline("text-classification", model=str(folder), device="cpu")(TEXTS))


def test_another_task_is_built(folder: Path) -> None:
    mine = fastpipe.pipeline("feature-extraction", model=folder, backend=QUICK)
    wanted = transformers.pipeline("feature-extraction", model=str(folder), device="cpu")
    assert_same(mine(TEXTS[0]), wanted(TEXTS[0]), 1e-3)


def _truncate(folder: Path) -> None:
    largest = max(folder.rglob("*"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:1000])


def _forge(name: str) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        for path in folder.glob(f"*/{MANIFEST}"):
            manifest = json.loads(path.read_text())
            manifest["files"] = dict.fromkeys([name], next(iter(manifest["files"].values()), {"size": 0, "sha256": ""}))
            path.write_text(json.dumps(manifest))

    return forge


def _garble(name: str, text: str) -> Callable[[Path], None]:
    def garble(folder: Path) -> None:
        for path in [*folder.glob(name), *folder.glob(f"*/{name}")]:
            path.write_text(text)

    return garble


def _make_hostile(folder: Path) -> None:
    """Let a graph ask for an operator from elsewhere, with a manifest that says that all is well."""
    for path in folder.glob(f"*/{MANIFEST}"):
        manifest = json.loads(path.read_text())
        for name, known in manifest["files"].items():
            file = path.parent / name
            if file.suffix == ".xml":
                file.write_text(file.read_text().replace('version="opset1"', 'version="extension"'))
            if file.suffix == ".onnx":
                model = onnx.load(file, load_external_data=False)
                model.graph.node[0].domain = "elsewhere"
                onnx.save(model, file)
            known.update(size=file.stat().st_size, sha256=digest_of_file(file))
        path.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _make_hostile,
        _forge("../../../escaped.bin"),
        _forge("/tmp/escaped.bin"),
        _garble("choice.json", "half a"),
        _garble("choice.json", '{"format": 1}'),
        _garble("choice.json", "[]"),
        _garble(MANIFEST, "half a"),
    ],
)
def test_damaged_ready_files_are_said_and_not_used(folder: Path, ref: Any, damage: Any, tmp_path: Path) -> None:
    damage(folder / share.FOLDER)
    with pytest.warns(CacheWarning, match=share.FOLDER):
        mine = fastpipe.pipeline("text-classification", model=folder, backend=QUICK)
    assert mine.plan.backend == QUICK
    assert_same(mine(TEXTS), [ref("text-classification", "seqcls")([text])[0] for text in TEXTS])
    assert not list(tmp_path.rglob("escaped*"))


def test_the_folder_is_only_read(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    fastpipe.pipeline("text-classification", model=folder, backend=QUICK)(TEXTS)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_without_the_graph_it_is_saved_without_ready_files(models: Models, empty_cache: Path, tmp_path: Path) -> None:
    pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], backend=QUICK)
    shutil.rmtree(empty_cache / pipe._served.graph.key)
    with pytest.warns(CacheWarning, match="without ready files"):
        pipe.save_pretrained(tmp_path / "saved")
    theirs = transformers.pipeline("text-classification", model=str(tmp_path / "saved"), device="cpu")
    assert_same(theirs(TEXTS), pipe(TEXTS))


def test_no_token_and_no_path_is_saved(models: Models, empty_cache: Path, tmp_path: Path) -> None:
    pipe = fastpipe.pipeline("text-classification", model=models["seqcls"], backend=QUICK, token="hf_never_stored")
    folder = saved(pipe, tmp_path / "saved")
    for path in folder.rglob("*.json"):
        text = path.read_text()
        assert "hf_never_stored" not in text
        assert str(models["seqcls"]) not in text
        assert str(folder) not in text


def test_push_to_hub_uploads_all_of_it(fp: Any, tmp_path: Path, monkeypatch: Any) -> None:
    uploads: list[tuple[dict[str, Any], set[str]]] = []

    def create_repo(*args: Any, **kwargs: Any) -> huggingface_hub.RepoUrl:
        return huggingface_hub.RepoUrl("https://huggingface.co/me/model")

    def upload_folder(self: Any, **kwargs: Any) -> str:
        folder = Path(kwargs["folder_path"])
        found = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
        wanted = huggingface_hub.utils.filter_repo_objects(found, allow_patterns=kwargs["allow_patterns"])
        uploads.append((kwargs, set(wanted)))
        shutil.copytree(folder, tmp_path / "hub")
        return "done"

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(transformers.utils.hub, "create_repo", create_repo, raising=False)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    monkeypatch.setattr(
        huggingface_hub.ModelCard, "load", lambda *args, **kwargs: huggingface_hub.ModelCard("---\n---\n")
    )
    pipe = fp("text-classification", "seqcls", QUICK)
    assert pipe.push_to_hub("me/model", private=True, token="hf_x", commit_message="ours") == "done"
    ((said, files),) = uploads
    assert (said["repo_id"], said["commit_message"]) == ("me/model", "ours")
    assert {"config.json", "model.safetensors", "tokenizer.json", "README.md", "fastpipe/choice.json"} <= files
    assert f"fastpipe/{ready(tmp_path / 'hub')[0].parent.name}/{MANIFEST}" in files
    assert len(files) == len([path for path in (tmp_path / "hub").rglob("*") if path.is_file()])
