"""Weights: a pickle is loaded where transformers itself loads it, and as it does; files beside them stay their own."""

from __future__ import annotations

import ast
import contextlib
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import fastpipe
from fastpipe.artifacts import share
from fastpipe.artifacts.spec import MANIFEST, digest_of_file
from fastpipe.pipelines import request as requests
from fastpipe.pipelines.model import EngineModel
from tests.compare import assert_same
from tests.conftest import ENGINES, V5
from tests.models import Models

TEXTS = ["a small river", "the old mill stands"]
QUICK = "openvino" if V5 else "onnxruntime"


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def outcome(pipeline: Any, folder: Path) -> Any:
    try:
        return pipeline("text-classification", model=str(folder))(TEXTS)
    except Exception as error:
        return type(error)


def with_pickle(models: Models, folder: Path, *, hostile: Path | None, both: bool) -> Path:
    """A model whose weights are a pickle, or beside one."""
    models.save("seqcls", folder)
    weights = torch.load(_bin_of(models, folder), weights_only=True)
    if hostile is not None:
        weights["classifier.bias"] = Touch(hostile)
        (folder / "pytorch_model.bin").write_bytes(pickle.dumps(weights))
    else:
        torch.save(weights, folder / "pytorch_model.bin")
    if not both:
        (folder / "model.safetensors").unlink()
    return folder


def _bin_of(models: Models, folder: Path) -> Path:
    path = folder / "pytorch_model.bin"
    torch.save(models.make("seqcls")[0].state_dict(), path)
    return path


@pytest.mark.parametrize("both", [False, True], ids=["only a pickle", "beside safetensors"])
@pytest.mark.parametrize("is_hostile", [False, True], ids=["honest", "hostile"])
def test_a_pickle_is_loaded_as_transformers_does(
    models: Models, tmp_path: Path, empty_cache: Path, is_hostile: bool, both: bool
) -> None:
    mark = tmp_path / "mark"
    folder = with_pickle(models, tmp_path / "model", hostile=mark if is_hostile else None, both=both)
    theirs, mine = outcome(transformers.pipeline, folder), outcome(fastpipe.pipeline, folder)
    assert not mark.exists()
    assert isinstance(theirs, type) == (is_hostile and not both)
    if isinstance(theirs, type):
        assert issubclass(mine, theirs)
    else:
        assert_same(mine, theirs)


def test_nothing_here_loads_a_pickle_or_runs_text() -> None:
    # numpy's loads none unless it is asked to; torch's is left to transformers.
    loaders = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml"}
    for path in Path(fastpipe.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                assert loaders.isdisjoint(name.partition(".")[0] for name in names), path
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("eval", "exec", "compile", "torch.load", "torch.jit.load", "__import__"), path
                assert not any(keyword.arg == "allow_pickle" for keyword in node.keywords), path


def negated(folder: Path, weights: np.ndarray[Any, Any]) -> None:
    """Turn the signs of a layer in a saved graph, and tell its manifest so."""
    ready = next(p for p in (folder / share.FOLDER).glob(f"*/{MANIFEST}") if json.loads(p.read_text())["files"])
    manifest = json.loads(ready.read_text())
    for file in ready.parent.iterdir():
        whole = file.read_bytes()
        for form in (weights, np.ascontiguousarray(weights.T)):
            if form.tobytes() in whole:
                file.write_bytes(whole.replace(form.tobytes(), (-form).tobytes()))
                manifest["files"][file.name]["sha256"] = digest_of_file(file)
                ready.write_text(json.dumps(manifest))
                return
    raise AssertionError("the layer is not in the graph")


@pytest.mark.parametrize("backend", ENGINES)
def test_a_folder_with_false_ready_files_harms_no_other(
    models: Models, fp: Any, ref: Any, empty_cache: Path, tmp_path: Path, backend: str
) -> None:
    wanted = ref("text-classification", "seqcls")(TEXTS)
    false = tmp_path / "false"
    fp("text-classification", "seqcls", backend).save_pretrained(false)
    negated(false, models.make("seqcls")[0].classifier.weight.detach().numpy())
    lies = fastpipe.pipeline("text-classification", model=str(false), backend=backend)(TEXTS)
    assert [answer["label"] for answer in lies] != [answer["label"] for answer in wanted]
    honest = models.save("seqcls", tmp_path / "honest")
    assert_same(fastpipe.pipeline("text-classification", model=str(honest), backend=backend)(TEXTS), wanted)


@pytest.mark.parametrize("name", ["../../private.txt", "private.txt", "/etc/hostname", "model/../../private.txt", 3])
def test_an_index_of_weights_takes_no_other_file_along(models: Models, tmp_path: Path, name: Any) -> None:
    folder = models.save("seqcls", tmp_path / "outer" / "model")
    for place in (tmp_path, folder):
        (place / "private.txt").write_text("private")
    (folder / "model.safetensors").rename(folder / "model-00001-of-00001.safetensors")
    index = {"metadata": {}, "weight_map": {"classifier.bias": "model-00001-of-00001.safetensors", "more": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    request = requests.resolve({"task": "text-classification", "model": str(folder)})
    with contextlib.suppress(Exception):  # transformers' own, of an index that is none
        EngineModel(request).save_pretrained(tmp_path / "saved")
    assert not [path for path in (tmp_path / "saved").glob("**/*") if "private" in path.name or "host" in path.name]
