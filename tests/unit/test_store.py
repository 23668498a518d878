"""The store: an artifact is complete or absent, and made once."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import stat
import tempfile
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import filelock
import pytest

from fastpipe.artifacts import locks
from fastpipe.artifacts.spec import ArtifactSpec
from fastpipe.artifacts.store import Store
from fastpipe.errors import ArtifactError, CacheWarning, ExportError

SPEC = ArtifactSpec(
    weights="w",
    config="c",
    architecture="a",
    task="t",
    inputs=("input_ids",),
    backend="engine",
    versions={"engine": "1"},
)
OTHER = dataclasses.replace(SPEC, weights="v")


class Builder:
    """Writes two files and counts how often it was asked to."""

    def __init__(self, failure: BaseException | None = None, wait_s: float = 0.0) -> None:
        self.built = 0
        self.failure = failure
        self.wait_s = wait_s

    def __call__(self, folder: Path) -> dict[str, Any]:
        assert list(folder.iterdir()) == []
        self.built += 1
        (folder / "graph.xml").write_text("<graph/>")
        (folder / "parts").mkdir()
        (folder / "parts" / "weights.bin").write_bytes(bytes(range(256)) * 16)
        time.sleep(self.wait_s)
        if self.failure is not None:
            raise self.failure
        return {"max_tokens": 128}


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "deep" / "cache")


def contents(root: Path) -> set[str]:
    """What a store's folder holds, without locks and marks of use, which are empty."""
    found = root.iterdir() if root.exists() else ()
    return {path.name for path in found if path.suffix != ".lock" and path.name != locks.FOLDER}


@pytest.fixture(autouse=True)
def no_unexpected_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)
        yield


def test_the_second_call_finds_what_the_first_built(store):
    build = Builder()
    assert store.find(SPEC.key) is None
    first = store.obtain(SPEC, build)
    second = Store(store.root).obtain(SPEC, build)
    found = store.find(SPEC.key)
    assert build.built == 1
    assert found is not None
    assert first.folder == second.folder == found.folder == store.root / SPEC.key
    assert first.facts == second.facts == {"max_tokens": 128}
    assert (found.folder / "graph.xml").read_text() == "<graph/>"
    assert contents(store.root) == {SPEC.key}


def test_another_spec_is_another_artifact(store):
    build = Builder()
    assert store.obtain(SPEC, build).folder != store.obtain(OTHER, build).folder
    assert build.built == 2
    assert contents(store.root) == {SPEC.key, OTHER.key}


def test_what_built_it_need_not_be_installed(store):
    first = dataclasses.replace(SPEC, versions={"engine": "1", "exporter": "2"})
    built = store.obtain(first, Builder())
    gone = dataclasses.replace(SPEC, versions={"engine": "1", "exporter": ""})
    build = Builder()
    assert store.obtain(gone, build).folder == built.folder
    for other in (
        dataclasses.replace(gone, versions={"engine": "2", "exporter": ""}),
        dataclasses.replace(gone, weights="v"),
        dataclasses.replace(gone, versions={"engine": "1", "exporter": "3"}),
    ):
        assert store.obtain(other, build).folder != built.folder
    assert build.built == 3


def test_the_manifest_says_what_was_built(store):
    artifact = store.obtain(SPEC, Builder())
    manifest = json.loads((artifact.folder / "manifest.json").read_text())
    assert manifest == json.loads(json.dumps(artifact.manifest))
    assert manifest["key"] == SPEC.key
    assert manifest["spec"] == json.loads(json.dumps(SPEC.to_dict()))
    assert manifest["facts"] == {"max_tokens": 128}
    assert manifest["build_s"] >= 0
    assert set(manifest["files"]) == {"graph.xml", str(Path("parts", "weights.bin"))}
    for name, said in manifest["files"].items():
        content = (artifact.folder / name).read_bytes()
        assert said == {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def test_only_the_user_may_read_the_folder(store):
    old = os.umask(0)
    try:
        folder = store.obtain(SPEC, Builder()).folder
    finally:
        os.umask(old)
    assert stat.S_IMODE(store.root.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("failure", [RuntimeError("bug"), OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_a_builder_that_fails_leaves_nothing_and_may_try_again(store, failure):
    with pytest.raises(type(failure)) as raised:
        store.obtain(SPEC, Builder(failure))
    assert raised.value is failure
    assert contents(store.root) == set()
    assert store.find(SPEC.key) is None
    assert store.obtain(SPEC, Builder()).facts == {"max_tokens": 128}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_with_its_remedy_and_leaves_nothing(store, number):
    failure = OSError(number, os.strerror(number))
    with pytest.raises(ArtifactError, match=str(store.root)) as raised:
        store.obtain(SPEC, Builder(failure))
    assert raised.value.errno == number
    assert "FASTPIPE_CACHE" in raised.value.remedy
    assert raised.value.__cause__ is failure
    assert contents(store.root) == set()
    assert store.obtain(SPEC, Builder()).facts == {"max_tokens": 128}


def test_the_litter_of_a_dead_builder_is_removed(store):
    store.obtain(OTHER, Builder())
    litter = store.root / f"{SPEC.key}.tmp-dead"
    litter.mkdir()
    (litter / "half.bin").write_bytes(b"half")
    (store.root / f"{SPEC.key}.lock").write_text("")  # the lock file of a dead process holds nobody up
    alive = store.root / f"{OTHER.key}.tmp-alive"
    alive.mkdir()
    with locks.building(store.root, OTHER.key):
        assert store.obtain(SPEC, Builder()).facts == {"max_tokens": 128}
    assert contents(store.root) == {SPEC.key, OTHER.key, alive.name}


def _truncate(folder: Path) -> None:
    file = folder / "parts" / "weights.bin"
    file.write_bytes(file.read_bytes()[:2048])


def _flip(folder: Path) -> None:
    file = folder / "parts" / "weights.bin"
    content, before = bytearray(file.read_bytes()), file.stat()
    content[100] ^= 1
    file.write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _remove(folder: Path) -> None:
    (folder / "graph.xml").unlink()


def _folder_for_file(folder: Path) -> None:
    _remove(folder)
    (folder / "graph.xml").mkdir()


def _manifest(content: bytes) -> Any:
    def damage(folder: Path) -> None:
        (folder / "manifest.json").write_bytes(content)

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _flip,
        _remove,
        _folder_for_file,
        _manifest(b""),
        _manifest(b'{"format": 1, "fil'),
        _manifest(b"\xff\xfe\x00"),
        _manifest(b"null"),
        _manifest(b"[]"),
        _manifest(b'{"format": 1}'),
        _manifest(b'{"format": 999, "files": {}, "facts": {}}'),
    ],
)
def test_damage_is_found_said_and_repaired(store, damage):
    folder = store.obtain(SPEC, Builder()).folder
    damage(folder)
    build = Builder()
    with pytest.warns(CacheWarning, match=SPEC.key) as said:
        artifact = store.obtain(SPEC, build)
    assert len(said) == 1
    assert build.built == 1
    assert (artifact.folder / "graph.xml").read_text() == "<graph/>"
    assert store.obtain(SPEC, build).facts == {"max_tokens": 128}
    assert build.built == 1
    assert contents(store.root) == {SPEC.key}


def test_a_missing_manifest_is_an_absent_artifact(store):
    folder = store.obtain(SPEC, Builder()).folder
    (folder / "manifest.json").unlink()
    assert store.find(SPEC.key) is None
    assert store.obtain(SPEC, Builder()).facts == {"max_tokens": 128}


def test_what_is_replaced_is_whole_at_any_time(store):
    store.obtain(SPEC, lambda folder: {"number": 0})
    done = threading.Event()
    seen: list[Any] = []

    def read():
        while not done.is_set():
            found = Store(store.root).find(SPEC.key)  # damage would be a warning, and a warning an error here
            seen.append(found and found.facts["number"])

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 21):
        store.replace(SPEC, lambda folder, number=number: {"number": number})
    done.set()
    reader.join()
    numbers = [number for number in seen if number is not None]
    assert numbers == sorted(numbers)
    assert store.find(SPEC.key).facts == {"number": 20}
    assert contents(store.root) == {SPEC.key}


def test_a_replacement_that_fails_leaves_what_there_was(store):
    store.obtain(SPEC, Builder())
    with pytest.raises(OSError, match="full"):
        store.replace(SPEC, Builder(OSError("the disk is full")))
    assert store.find(SPEC.key).facts == {"max_tokens": 128}
    assert contents(store.root) == {SPEC.key}


def test_a_model_that_cannot_be_exported_is_remembered(store):
    build = Builder(ExportError("the engine has no such operator"))
    for _ in range(3):
        with pytest.raises(ExportError, match="no such operator"):
            store.obtain(SPEC, build)
    with pytest.raises(ExportError, match="no such operator"):
        Store(store.root).obtain(SPEC, build)
    assert build.built == 1
    assert [path.name for path in (store.root / SPEC.key).iterdir()] == ["manifest.json"]
    newer = dataclasses.replace(SPEC, versions={"engine": "2"})
    assert store.obtain(newer, Builder()).facts == {"max_tokens": 128}


def test_threads_that_want_the_same_artifact_build_it_once(store):
    build = Builder(wait_s=0.2)
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(Store(store.root).obtain(SPEC, build).folder)) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert found == [store.root / SPEC.key] * 6
    assert build.built == 1


@pytest.fixture
def unwritable(tmp_path) -> Path:
    """A place below a file: nobody can write there, root neither."""
    (tmp_path / "a file").write_text("")
    return tmp_path / "a file" / "cache"


def test_an_unwritable_folder_is_said_once_and_replaced_by_a_temporary_one(unwritable):
    build = Builder()
    spec = dataclasses.replace(SPEC, weights=str(unwritable))  # the temporary folder serves the whole process
    with pytest.warns(CacheWarning) as said:
        artifact = Store(unwritable).obtain(spec, build)
    assert len(said) == 1
    assert str(unwritable) in str(said[0].message)
    assert "FASTPIPE_CACHE" in str(said[0].message)
    assert Path(tempfile.gettempdir()) in artifact.folder.parents
    assert (artifact.folder / "graph.xml").read_text() == "<graph/>"
    assert artifact.folder.parent.stat().st_uid == os.geteuid()  # nobody else can have put an artifact there
    assert stat.S_IMODE(artifact.folder.parent.stat().st_mode) == 0o700
    with pytest.warns(CacheWarning, match="FASTPIPE_CACHE"):
        Store(unwritable).obtain(spec, build)
    assert build.built == 1


def test_a_warm_folder_serves_without_being_written_to(store, monkeypatch):
    store.obtain(SPEC, Builder())
    before = {path: path.stat().st_mtime_ns for path in [store.root, *store.root.rglob("*")]}

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise OSError(30, "Read-only file system")

    for owner, name in ((os, "mkdir"), (os, "rename"), (os, "unlink"), (os, "utime"), (tempfile, "TemporaryFile")):
        monkeypatch.setattr(owner, name, refuse)
    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    assert store.obtain(SPEC, Builder(RuntimeError("not again"))).facts == {"max_tokens": 128}
    assert {path: path.stat().st_mtime_ns for path in [store.root, *store.root.rglob("*")]} == before


def test_the_default_is_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path in Store().root.parents
    assert "fastpipe" in Store().root.name
