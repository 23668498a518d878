"""The store where disks are full, folders read-only, users several, and processes killed at any moment."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import fastpipe
from fastpipe.artifacts import inventory
from fastpipe.artifacts.store import Store
from tests.compare import assert_same
from tests.conftest import ENGINES, V5
from tests.integration import jobs
from tests.integration.jobs import Job, in_process
from tests.models import Models

pytestmark = pytest.mark.once

TEXTS = ["a small river", "the old mill stands", "", "runs " * 40]
QUICK = "openvino" if V5 else "onnxruntime"
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
as_root = pytest.mark.skipif(not IS_ROOT, reason="only root mounts and changes users")


@pytest.fixture(scope="module")
def wanted(ref: Any) -> list[Any]:
    return [ref("text-classification", "seqcls")([text])[0] for text in TEXTS]


@dataclass(frozen=True)
class Warm:
    """A cache with one artifact, and how long it took to fill it."""

    cache: Path
    took_s: float

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.cache.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def warm(models: Models, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Warm]:
    made: dict[str, Warm] = {}

    def make(backend: str) -> Warm:
        if backend not in made:
            place = tmp_path_factory.mktemp("warm") / "cache"
            started = time.perf_counter()
            classify(models["seqcls"], backend, place)
            made[backend] = Warm(place, time.perf_counter() - started)
        return made[backend]

    return make


def classify(model: str, backend: str, cache: Path, function: Any = jobs.classify) -> Any:
    return in_process(function, model, backend, TEXTS, environment={"FASTPIPE_CACHE": str(cache)}).value


@pytest.fixture
def mount() -> Iterator[Callable[..., None]]:
    """Mount something, for the length of a test."""
    mounted: list[str] = []

    def make(place: Path, *arguments: str) -> None:
        place.mkdir(exist_ok=True)
        done = subprocess.run(["mount", *arguments, str(place)], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
        mounted.append(str(place))

    yield make
    for place in dict.fromkeys(reversed(mounted)):
        subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that other users can enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="fastpipe-shared-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def readable_copy(model: str, place: Path) -> str:
    shutil.copytree(model, place)
    for path in (place, *place.iterdir()):
        path.chmod(0o755)
    return str(place)


def litter(cache: Path) -> list[str]:
    """What should not be there once everybody is done."""
    known = {entry.key for entry in inventory.entries(Store(cache))}
    allowed = {*known, *(f"{key}.lock" for key in known), "store.lock", "digests", "uses"}
    return [path.name for path in cache.iterdir() if path.name not in allowed]


# Full disks


@as_root
@pytest.mark.parametrize("backend", ENGINES)
@pytest.mark.parametrize("share", [0.05, 0.3, 0.6])
def test_a_full_disk_is_an_error_that_says_so_and_is_not_remembered(
    models: Models, warm: Any, wanted: Any, mount: Any, tmp_path: Path, backend: str, share: float
) -> None:
    place = tmp_path / "disk"
    size = int(warm(backend).size * share)
    mount(place, "-t", "tmpfs", "-o", f"size={size}", "tmpfs")
    cache = place / "cache"
    kind, said = classify(models["seqcls"], backend, cache, jobs.attempt)
    assert kind == "ArtifactError", said
    assert str(cache) in said
    assert "no space" in said
    assert "FASTPIPE_CACHE" in said
    assert litter(cache) == []
    mount(place, "-o", f"remount,size={warm(backend).size * 4}")
    assert_same(classify(models["seqcls"], backend, cache), (wanted, []))


@as_root
@pytest.mark.parametrize("backend", ENGINES)
def test_a_warm_cache_on_a_full_disk_serves(
    models: Models, warm: Any, wanted: Any, mount: Any, tmp_path: Path, backend: str
) -> None:
    place = tmp_path / "disk"
    mount(place, "-t", "tmpfs", "-o", f"size={warm(backend).size * 2}", "tmpfs")
    shutil.copytree(warm(backend).cache, place / "cache")
    filling = os.open(place / "filling", os.O_CREAT | os.O_WRONLY)
    os.posix_fallocate(filling, 0, shutil.disk_usage(place).free)
    os.close(filling)
    assert shutil.disk_usage(place).free == 0
    assert_same(classify(models["seqcls"], backend, place / "cache"), (wanted, []))


# Kills


@pytest.mark.scenario
@pytest.mark.parametrize("batch", range(5))
def test_after_a_kill_at_any_moment_the_next_run_is_right(
    models: Models, warm: Any, wanted: Any, tmp_path: Path, batch: int
) -> None:
    """Fifty of them, ten at a time."""
    moments = random.Random(batch)
    for number in range(10):
        cache = tmp_path / str(number)
        job = Job(jobs.classify, models["seqcls"], QUICK, TEXTS, environment={"FASTPIPE_CACHE": str(cache)})
        time.sleep(moments.uniform(0.05, warm(QUICK).took_s))
        job.kill()
        assert [damage for _, damage in inventory.verify(Store(cache)) if damage] == []
        assert_same(classify(models["seqcls"], QUICK, cache), (wanted, []))
        assert litter(cache) == []


def test_a_kill_leaves_nothing_that_stays(models: Models, warm: Any, wanted: Any, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for share in (0.3, 0.6, 0.9):
        job = Job(jobs.classify, models["seqcls"], QUICK, TEXTS, environment={"FASTPIPE_CACHE": str(cache)})
        time.sleep(warm(QUICK).took_s * share)
        job.kill()
    # Another model: what is cleared away is not only what is in its way.
    classify(models["regr"], QUICK, cache)
    assert litter(cache) == []
    assert [damage for _, damage in inventory.verify(Store(cache)) if damage] == []
    assert len(list((cache / "uses").iterdir())) <= 1
    assert_same(classify(models["seqcls"], QUICK, cache), (wanted, []))


def test_temporary_stores_of_killed_processes_go(models: Models, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {"FASTPIPE_CACHE": str(tmp_path / "file" / "x")}
    given = (jobs.classify_with_temporary_files_in, str(temporary), models["seqcls"], QUICK, TEXTS)
    job = Job(*given, environment=environment)
    while not list(temporary.glob("fastpipe-store-*/*.tmp-*")):
        assert job.process.is_alive()
        time.sleep(0.01)
    job.kill()
    (left,) = temporary.glob("fastpipe-store-*")
    in_process(*given, environment=environment)
    assert not left.exists()


# Users


@as_root
@pytest.mark.parametrize("backend", ENGINES)
def test_a_cache_mounted_read_only_serves(
    models: Models, warm: Any, wanted: Any, mount: Any, tmp_path: Path, backend: str
) -> None:
    mount(tmp_path / "mounted", "--bind", str(warm(backend).cache))
    mount(tmp_path / "mounted", "-o", "remount,bind,ro")
    with pytest.raises(OSError, match="Read-only"):
        (tmp_path / "mounted" / "file").touch()
    assert_same(classify(models["seqcls"], backend, tmp_path / "mounted"), (wanted, []))


@as_root
def test_what_one_user_builds_another_reads(models: Models, wanted: Any, shared: Path) -> None:
    model = readable_copy(models["seqcls"], shared / "model")
    cache = shared / "cache"
    cache.mkdir(mode=0o755)
    classify(model, QUICK, cache)
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    assert_same(classify(model, QUICK, cache, jobs.classify_as_nobody), (wanted, []))
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before


@as_root
def test_several_users_may_fill_one_cache(models: Models, wanted: Any, shared: Path) -> None:
    model = readable_copy(models["seqcls"], shared / "model")
    cache = shared / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    environment = {"FASTPIPE_CACHE": str(cache)}
    two = [Job(f, model, QUICK, TEXTS, environment=environment) for f in (jobs.build_as_nobody, jobs.classify)]
    for job in two:
        assert_same(job.result().value, (wanted, []))
    assert_same(classify(model, QUICK, cache, jobs.classify_as_nobody), (wanted, []))
    assert [damage for _, damage in inventory.verify(Store(cache)) if damage] == []
    entries = inventory.entries(Store(cache))
    assert inventory.prune(Store(cache), 0) == entries[::-1]
    assert inventory.entries(Store(cache)) == []


@as_root
def test_without_a_home_it_runs_from_a_temporary_folder(models: Models, wanted: Any, shared: Path) -> None:
    model = readable_copy(models["seqcls"], shared / "model")
    results, said = in_process(jobs.classify_homeless, model, QUICK, TEXTS).value
    assert_same(results, wanted)
    assert len(said) == 1, said
    assert "FASTPIPE_CACHE" in said[0]


# Images


@pytest.mark.parametrize("backend", ENGINES)
def test_what_an_image_was_built_with_need_not_be_in_it(
    models: Models, warm: Any, wanted: Any, tmp_path: Path, backend: str
) -> None:
    cache = shutil.copytree(warm(backend).cache, tmp_path / "cache")
    before = {path.name for path in cache.iterdir()}
    results, said, tried = classify(models["seqcls"], backend, cache, jobs.classify_in_a_bare_image)
    assert_same(results, wanted)
    assert (said, tried) == ([], [])
    assert {path.name for path in cache.iterdir()} == before


# Limits


def test_a_pipeline_in_use_outlives_a_limit(models: Models, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("FASTPIPE_CACHE_SIZE", "1KB")
    cache = tmp_path / "cache"
    first = fastpipe.pipeline("text-classification", model=models["seqcls"], backend=QUICK, cache_dir=cache)
    wanted = first(TEXTS)
    fastpipe.pipeline("text-classification", model=models["regr"], backend=QUICK, cache_dir=cache)
    assert first.model._folder.is_dir()
    used = {entry.key for entry in inventory.entries(Store(cache)) if entry.in_use}
    assert first.model._folder.name in used
    assert_same(first(TEXTS), wanted, 1e-6)
    listed = {entry.model for entry in inventory.entries(Store(cache))}
    assert listed <= {"seqcls", "regr"}
