"""Built models on disk: found again, never stale, never half there, and never anybody's problem but ours."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from huggingface_hub import constants
from transformers import BertForSequenceClassification

import fastpipe
from fastpipe.artifacts.store import MANIFEST
from fastpipe.backends import registry
from tests.compare import assert_same
from tests.conftest import ENGINES, V5
from tests.integration.jobs import Job, classify, classify_as_nobody, classify_without_a_network, in_process

TEXTS = ["a small river", "the old mill stands", "", "a small river", "runs " * 40]
# Where one engine is enough, the one whose exporter is the quicker of the two.
QUICK = "openvino" if V5 else "onnxruntime"


def entries(cache: Path, *, compiled: bool = False) -> set[str]:
    """What a cache holds of models, and what should not be there: not lock files, nor what was measured or hashed.

    What an engine compiled of a model is counted only where that is asked for.
    """
    found = list(cache.iterdir()) if cache.exists() else []
    found = [path for path in found if path.suffix != ".lock" and path.name not in ("digests", "uses")]
    found = [path for path in found if [file.name for file in path.iterdir()] != [MANIFEST]]
    return {path.name for path in found if bool(list(path.glob("compiled.*"))) is compiled}


def reference(task: str, model: Any, texts: list[str] = TEXTS, **options: Any) -> list[Any]:
    pipe = transformers.pipeline(task, model=model, device="cpu", **options)
    return [pipe([text])[0] for text in texts]


def fingerprint(folder: Path) -> dict[str, tuple[int, str]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="fastpipe-shared-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@dataclass(frozen=True)
class Built:
    """A cache that several processes filled at once with one artifact, and what each of them got."""

    cache: Path
    outcomes: list[tuple[list[Any], list[str]]]

    def copy_to(self, place: Path) -> Path:
        return Path(shutil.copytree(self.cache, place))

    @property
    def build_s(self) -> float:
        (key,) = entries(self.cache)
        return float(json.loads((self.cache / key / MANIFEST).read_text())["build_s"])


@pytest.fixture(scope="module")
def built(models: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Built]:
    """Build on an engine in six processes at once; later tests copy the cache."""

    @cache
    def make(backend: str) -> Built:
        place = tmp_path_factory.mktemp("built") / "cache"
        environment = {"FASTPIPE_CACHE": str(place)}
        jobs = [Job(classify, models["seqcls"], backend, TEXTS, environment=environment) for _ in range(6)]
        return Built(place, [job.result().value for job in jobs])

    return make


@pytest.fixture(scope="module")
def wanted(ref: Any) -> list[Any]:
    """What transformers makes of the texts."""
    return [ref("text-classification", "seqcls")([text])[0] for text in TEXTS]


@pytest.mark.parametrize("backend", ENGINES)
def test_a_second_construction_loads_no_torch_weights(models: Any, fp: Any, backend: str, monkeypatch: Any):
    wanted = fp("text-classification", "seqcls", backend)(TEXTS)

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("the torch model was loaded")

    monkeypatch.setattr(transformers.PreTrainedModel, "from_pretrained", refuse)
    monkeypatch.setattr(torch, "load", refuse)
    made = fastpipe.pipeline("text-classification", model=models["seqcls"], backend=backend)
    assert_same(made(TEXTS), wanted, 1e-5)
    with pytest.raises(AssertionError, match="loaded"):  # so that the check above can fail
        fastpipe.pipeline("text-classification", model=models["seqcls"], backend="torch")


@pytest.mark.parametrize("backend", ENGINES)
def test_nothing_is_written_beside_the_model(models: Any, empty_cache: Path, tmp_path: Path, backend: str):
    folder = tmp_path / "home" / "model"
    shutil.copytree(models["seqcls"], folder)
    before = fingerprint(folder.parent)
    fastpipe.pipeline("text-classification", model=str(folder), backend=backend, token="hf_never_stored")(TEXTS)
    assert fingerprint(folder.parent) == before
    (key,) = entries(empty_cache)
    manifest = (empty_cache / key / MANIFEST).read_text()
    assert "hf_never_stored" not in manifest
    assert str(folder) not in manifest
    assert json.loads(manifest)["build_s"] > 0
    shutil.move(folder, tmp_path / "moved")
    fastpipe.pipeline("text-classification", model=str(tmp_path / "moved"), backend=backend)
    assert entries(empty_cache) == {key}


@pytest.mark.parametrize("backend", ENGINES)
def test_cache_dir_wins_over_the_environment(models: Any, built: Any, wanted: Any, empty_cache: Path, backend: str):
    place = built(backend).cache
    made = fastpipe.pipeline("text-classification", model=models["seqcls"], backend=backend, cache_dir=str(place))
    assert_same(made(TEXTS), wanted)
    assert len(entries(place)) == 1
    assert entries(empty_cache) == set()


@pytest.mark.parametrize("backend", ENGINES)
def test_what_changes_under_the_same_name_is_seen(models: Any, empty_cache: Path, tmp_path: Path, backend: str):
    folder = models.save("seqcls", tmp_path / "model", seed=0)
    weights = folder / "model.safetensors"

    def check(task: str = "text-classification", **options: Any) -> Any:
        made = fastpipe.pipeline(task, model=folder, backend=backend, **options)
        assert made.plan.backend == backend
        return made

    first = check()(TEXTS)
    assert_same(first, reference("text-classification", str(folder)))

    # Other weights: same path, size and date.
    stat = weights.stat()
    models.save("seqcls", tmp_path / "other", seed=1)
    shutil.copyfile(tmp_path / "other" / "model.safetensors", weights)
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (weights.stat().st_size, weights.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)
    second = check()(TEXTS)
    assert_same(second, reference("text-classification", str(folder)))
    assert [one["label"] for one in first] != [one["label"] for one in second] or first != second
    assert len(entries(empty_cache)) == 2

    # Other names of the labels: the same graph.
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {"0": "blue", "1": "green", "2": "red"}
    config["label2id"] = {"blue": 0, "green": 1, "red": 2}
    (folder / "config.json").write_text(json.dumps(config))
    renamed = check()(TEXTS)
    assert_same(renamed, reference("text-classification", str(folder)))
    assert {one["label"] for one in renamed} <= {"blue", "green", "red"}
    assert len(entries(empty_cache)) == 2

    # Another vocabulary: "river" and "mill" trade places.
    tokenizer = folder / "tokenizer.json"
    text = tokenizer.read_text()
    vocabulary = json.loads(text)
    words = vocabulary["model"]["vocab"]
    words["river"], words["mill"] = words["mill"], words["river"]
    tokenizer.write_text(json.dumps(vocabulary))
    traded = check()(TEXTS)
    assert_same(traded, reference("text-classification", str(folder)))
    assert traded != renamed

    # Another precision, and back.
    quantized = check(precision="int8")
    assert quantized.plan.precision == "int8"
    assert quantized(TEXTS) != traded
    assert_same(check()(TEXTS), traded, 1e-5)

    # Another task.
    features = check("feature-extraction")
    assert_same(features(TEXTS), reference_features(folder), 1e-3)


def reference_features(folder: Path) -> list[Any]:
    pipe = transformers.pipeline("feature-extraction", model=str(folder), device="cpu")
    return [pipe(text) for text in TEXTS]


def test_another_version_of_the_engine_is_another_artifact(
    models: Any, built: Any, wanted: Any, tmp_path: Path, monkeypatch: Any
):
    place = built(QUICK).copy_to(tmp_path / "cache")
    installed = registry.version_of
    monkeypatch.setattr(registry, "version_of", lambda name: "999" if name == QUICK else installed(name))
    made = fastpipe.pipeline("text-classification", model=models["seqcls"], backend=QUICK, cache_dir=place)
    assert_same(made(TEXTS), wanted)
    assert len(entries(place)) == 2


def test_each_file_of_weights_in_one_folder_is_a_model_of_its_own(models: Any, empty_cache: Path, tmp_path: Path):
    folder = models.save("seqcls", tmp_path / "model", seed=0)
    models.make("seqcls", seed=1)[0].save_pretrained(folder, variant="other")
    torch.save(models.make("seqcls", seed=2)[0].state_dict(), folder / "pytorch_model.bin")
    results = []
    for model_kwargs in ({}, {"variant": "other"}, {"use_safetensors": False}):
        made = fastpipe.pipeline("text-classification", model=folder, backend=QUICK, model_kwargs=dict(model_kwargs))
        results.append(made(TEXTS))
        wanted = reference("text-classification", str(folder), model_kwargs=dict(model_kwargs))
        assert_same(results[-1], wanted)
    assert results[0] != results[1] != results[2]


class Negated(BertForSequenceClassification):
    """Has the weights of another model and the opposite opinion."""

    def forward(
        self, input_ids: Any = None, attention_mask: Any = None, token_type_ids: Any = None, **others: Any
    ) -> Any:
        output = super().forward(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids, **others)
        output.logits = -output.logits
        return output


def test_a_class_of_the_users_own_is_not_taken_for_its_base(models: Any, empty_cache: Path):
    model, tokenizer = models.make("seqcls")
    negated = Negated(copy.deepcopy(model.config)).eval()
    negated.load_state_dict(model.state_dict())
    for given in (model, negated):
        made = fastpipe.pipeline("text-classification", model=given, tokenizer=tokenizer, backend=QUICK)
        assert_same(made(TEXTS), reference("text-classification", given, tokenizer=tokenizer))


@pytest.mark.parametrize("backend", ENGINES)
def test_a_model_object_is_left_as_it_was(models: Any, empty_cache: Path, backend: str):
    model, tokenizer = models.make("seqcls")
    wanted = reference("text-classification", model, tokenizer=tokenizer)
    model.train()
    config, weights = model.config.to_dict(), {n: w.clone() for n, w in model.state_dict().items()}
    made = fastpipe.pipeline("text-classification", model=model, tokenizer=tokenizer, backend=backend)
    assert_same(made(TEXTS), wanted)
    assert model.training
    assert model.config.to_dict() == config
    for name, values in model.state_dict().items():
        assert torch.equal(values, weights[name])
    again = fastpipe.pipeline("text-classification", model=model, tokenizer=tokenizer, backend=backend)
    assert_same(again(TEXTS), made(TEXTS), 1e-5)
    assert len(entries(empty_cache)) == 1


@pytest.mark.parametrize("backend", ENGINES)
def test_six_processes_on_an_empty_cache_build_once(built: Any, wanted: Any, backend: str):
    for results, said in built(backend).outcomes:
        assert_same(results, wanted)
        assert said == []
    assert len(entries(built(backend).cache)) == 1


@pytest.mark.parametrize("backend", ENGINES)
def test_a_killed_build_is_in_nobodys_way(models: Any, built: Any, wanted: Any, tmp_path: Path, backend: str):
    place = tmp_path / "cache"
    environment = {"FASTPIPE_CACHE": str(place)}
    moments = random.Random(0)
    for _ in range(5):
        job = Job(classify, models["seqcls"], backend, TEXTS, environment=environment)
        while not entries(place):  # until it builds
            assert job.process.is_alive()
            time.sleep(0.01)
        time.sleep(built(backend).build_s * moments.uniform(0.0, 0.8))
        job.kill()
        keys = [path.name.partition(".")[0] for path in place.iterdir() if path.suffix != ".lock"]
        assert len(keys) == len(set(keys)), "litter of killed builds grows"
    results, said = in_process(classify, models["seqcls"], backend, TEXTS, environment=environment).value
    assert_same(results, wanted)
    assert said == []
    assert entries(place) == entries(built(backend).cache)


@pytest.mark.parametrize("backend", ENGINES)
@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "graph"])
def test_a_damaged_file_is_found_and_built_again(
    models: Any, built: Any, wanted: Any, tmp_path: Path, backend: str, compiled: bool
):
    place = built(backend).copy_to(tmp_path / "cache")
    environment = {"FASTPIPE_CACHE": str(place)}
    (key,) = entries(place, compiled=compiled)
    if not compiled:  # the graph is read only where there is nothing compiled
        for other in entries(place, compiled=True):
            shutil.rmtree(place / other)
    largest = max((place / key).iterdir(), key=lambda path: path.stat().st_size)
    with largest.open("r+b") as file:
        file.truncate(largest.stat().st_size // 2)
    results, said = in_process(classify, models["seqcls"], backend, TEXTS, environment=environment).value
    assert_same(results, wanted)
    assert len(said) == 1
    assert str(place / key) in said[0]
    assert in_process(classify, models["seqcls"], backend, TEXTS, environment=environment).value == (results, [])
    assert entries(place, compiled=compiled) == {key}


@pytest.mark.parametrize("backend", ENGINES)
def test_a_warm_cache_may_be_read_only(models: Any, built: Any, wanted: Any, shared: Path, backend: str):
    shutil.copytree(models["seqcls"], shared / "model")
    built(backend).copy_to(shared / "cache")
    for lock in (shared / "cache").glob("*.lock"):
        lock.unlink()
    for path in [shared, *shared.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    environment = {"FASTPIPE_CACHE": str(shared / "cache")}
    before = fingerprint(shared)
    try:
        job = in_process(classify_as_nobody, str(shared / "model"), backend, TEXTS, environment=environment)
    finally:
        for path in [shared, *shared.rglob("*")]:
            path.chmod(0o755)
    results, said = job.value
    assert_same(results, wanted)
    assert said == []
    assert fingerprint(shared) == before


@pytest.mark.parametrize("backend", ENGINES)
def test_an_unwritable_cache_costs_one_warning(models: Any, wanted: Any, tmp_path: Path, backend: str):
    (tmp_path / "file").write_text("")
    place = str(tmp_path / "file" / "x")  # below a file: root cannot write there either
    job = in_process(classify, models["seqcls"], backend, TEXTS, environment={"FASTPIPE_CACHE": place})
    results, said = job.value
    assert_same(results, wanted)
    assert len(said) == 1, said
    assert place in said[0]
    assert "FASTPIPE_CACHE" in said[0]


@pytest.mark.parametrize("backend", ENGINES)
def test_offline_nothing_is_tried(models: Any, built: Any, wanted: Any, tmp_path: Path, backend: str):
    repository = Path(constants.HF_HUB_CACHE) / "models--me--offline"
    commit = "0123456789abcdef0123456789abcdef01234567"
    if not repository.exists():
        shutil.copytree(models["seqcls"], repository / "snapshots" / commit)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(commit)
    job = in_process(
        classify_without_a_network,
        [models["seqcls"], "me/offline"],
        "nobody/nothing",
        backend,
        TEXTS,
        environment={"FASTPIPE_CACHE": str(built(backend).copy_to(tmp_path / "cache"))},
    )
    results, error, tried = job.value
    assert_same(results, [wanted, wanted])
    assert "nobody/nothing" in error
    assert "offline" in error.lower()
    assert tried == []
