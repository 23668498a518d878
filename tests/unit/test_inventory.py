"""What a store holds, and what may be removed from it."""

from __future__ import annotations

import dataclasses
import gc
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fastpipe import options
from fastpipe.artifacts import digests, inventory, locks
from fastpipe.artifacts.spec import MANIFEST, ArtifactSpec
from fastpipe.artifacts.store import Store
from fastpipe.errors import CacheWarning, ExportError, OptionError
from tests.unit.test_store import SPEC, contents

SIZE = 10_000


def write(folder: Path) -> dict[str, Any]:
    (folder / "graph.bin").write_bytes(bytes(SIZE))
    return {}


def spec(name: str, **changes: Any) -> ArtifactSpec:
    return dataclasses.replace(SPEC, weights=name, **changes)


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "cache", {"model": "me/model", "task": "text-classification"})


@pytest.fixture
def four(store) -> list[ArtifactSpec]:
    """Four artifacts that nobody uses any more, used in this order."""
    specs = [spec(name) for name in "abcd"]
    for age, one in zip((400, 300, 200, 100), specs, strict=True):
        store.obtain(one, write)
        used(store, one, age)
    return specs


def used(store: Store, one: ArtifactSpec, seconds_ago: float) -> None:
    moment = time.time() - seconds_ago
    os.utime(store.root / one.key / MANIFEST, (moment, moment))


def keys(entries: list[inventory.Entry]) -> list[str]:
    return [entry.key for entry in entries]


def test_an_absent_store_is_empty_and_stays_absent(store):
    assert inventory.entries(store) == []
    assert inventory.prune(store, 0) == []
    assert inventory.verify(store) == []
    inventory.tidy(store)
    assert not store.root.exists()


def test_entries_say_what_is_there(store):
    recipe = {"recipe": {"name": "int8-g128"}}
    there = {
        "graph": spec("a"),
        "quantized": spec("b", weights_as={"method": "compressed", "bits": 8}),
        "compiled": spec("c", choice={"compiled for": ["cpu"], "as": recipe}),
        "report": spec("d", choice={"ladder": []}),
        "speed": spec("e", choice={"speed of": {"name": "bf16"}}),
        "tuning": spec("f", choice={"tuned": []}),
    }
    for one in there.values():
        store.obtain(one, write)

    def fail(folder: Path) -> dict[str, Any]:
        raise ExportError("no such operator")

    with pytest.raises(ExportError):
        store.obtain(spec("g"), fail)
    (store.root / "not a key").mkdir()
    found = {entry.kind: entry for entry in inventory.entries(store)}
    assert set(found) == {*there, "failed"}
    assert {entry.key for entry in found.values()} == {one.key for one in (*there.values(), spec("g"))}
    graph = found["graph"]
    assert (graph.model, graph.task, graph.backend) == ("me/model", "text-classification", "engine")
    assert graph.size_bytes == SIZE + (store.root / graph.key / MANIFEST).stat().st_size
    assert abs(graph.used_at - time.time()) < 60
    assert graph.manifest["spec"]["weights"] == "a"
    precisions = [found[kind].precision for kind in ("graph", "quantized", "compiled", "speed", "report")]
    assert precisions == ["fp32", "int8", "int8-g128", "bf16", ""]


def test_what_cannot_be_read_is_an_entry_too(store):
    store.obtain(SPEC, write)
    (store.root / SPEC.key / MANIFEST).write_text("half a mani")
    (entry,) = inventory.entries(store)
    assert (entry.key, entry.kind, entry.manifest) == (SPEC.key, "damaged", {})
    assert entry.size_bytes > SIZE
    assert [(found.key, bool(damage)) for found, damage in inventory.verify(store)] == [(SPEC.key, True)]
    assert keys(inventory.prune(store, 0)) == [SPEC.key]
    assert contents(store.root) == set()


def test_the_least_recently_used_go_first(store, four):
    assert keys(inventory.entries(store)) == [one.key for one in reversed(four)]
    assert store.find(four[0].key) is not None  # now it is the one used last
    gc.collect()
    would = inventory.prune(store, 2 * SIZE + 2000, dry_run=True)
    assert len(inventory.entries(store)) == 4
    gone = inventory.prune(store, 2 * SIZE + 2000)
    assert keys(gone) == keys(would) == [four[1].key, four[2].key]
    assert contents(store.root) == {four[0].key, four[3].key}
    assert {path.name for path in store.root.glob("*.lock")} == {
        "store.lock",
        f"{four[0].key}.lock",
        f"{four[3].key}.lock",
    }
    assert inventory.prune(store, 2 * SIZE + 2000) == []


def test_what_is_held_stays_until_it_is_let_go(store, four):
    held = store.find(four[0].key)
    other = Store(store.root).find(four[0].key)
    used(store, four[0], 400)
    assert [entry.key for entry in inventory.entries(store) if entry.in_use] == [four[0].key]
    assert keys(inventory.prune(store, 0)) == [one.key for one in four[1:]]
    del held
    gc.collect()
    assert inventory.prune(store, 0) == []
    assert other is not None
    assert (other.folder / "graph.bin").exists()
    del other
    gc.collect()
    assert keys(inventory.prune(store, 0)) == [four[0].key]


HOLDER = """
import sys
from pathlib import Path
from fastpipe.artifacts.store import Store
held = Store(Path(sys.argv[1])).find(sys.argv[2])
print("held" if held and held.lease else "not held", flush=True)
sys.stdin.readline()
"""


def holder(store: Store, one: ArtifactSpec) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDER, str(store.root), one.key]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize("end", ["killed", "ended"])
def test_what_another_process_uses_stays_until_it_is_dead(store, four, end):
    process = holder(store, four[0])
    used(store, four[0], 400)
    try:
        assert keys(inventory.prune(store, 0)) == [one.key for one in four[1:]]
        if end == "ended":
            process.communicate("\n", timeout=30)
    finally:
        process.kill()
        with process:
            pass
    assert len(list((store.root / locks.FOLDER).iterdir())) == (2 if end == "killed" else 1)
    assert keys(inventory.prune(store, 0)) == [four[0].key]
    assert len(list((store.root / locks.FOLDER).iterdir())) == 1  # this process's


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_has_its_own_marks(store, four):
    held = store.find(four[0].key)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            del held
            gc.collect()
            mine = store.find(four[1].key)
            code = 0 if mine and mine.lease else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert held is not None
    assert set(keys(inventory.prune(store, 0))) == {one.key for one in four[1:]}


def test_what_is_being_built_is_not_removed(store, four):
    with locks.building(store.root, four[0].key):
        unfinished = store.root / f"{four[0].key}.tmp-half"
        unfinished.mkdir()
        inventory.tidy(store)
        assert keys(inventory.prune(store, 0)) == [one.key for one in four[1:]]
        assert unfinished.exists()
    inventory.tidy(store)
    assert not unfinished.exists()


def test_what_dead_processes_left_is_cleared_away(store):
    store.obtain(SPEC, write)
    dead = spec("dead").key
    for name in (f"{dead}.tmp-half", f"{dead}.tmp-old"):
        (store.root / name).mkdir()
        (store.root / name / "graph.bin").write_bytes(b"half")
    (store.root / f"{dead}.lock").touch()
    mark = store.root / locks.FOLDER / "somebody"
    mark.mkdir()
    for name in ("alive.lock", SPEC.key):
        (mark / name).touch()
    memory = store.root / digests.FOLDER
    memory.mkdir()
    for name, age in (("old.json", 1e7), ("new.json", 10.0), ("tmpunfinished", 1e5), ("tmpnow", 1.0)):
        (memory / name).touch()
        os.utime(memory / name, (time.time() - age,) * 2)
    (store.root / "a user's.tmp-file").touch()
    gc.collect()
    store.obtain(spec("next"), write)
    assert contents(store.root) == {SPEC.key, spec("next").key, digests.FOLDER, "a user's.tmp-file"}
    assert not (store.root / f"{dead}.lock").exists()
    assert not mark.exists()
    assert {path.name for path in memory.iterdir()} == {"new.json", "tmpnow"}


def test_a_limit_is_kept_as_the_store_grows(store, monkeypatch):
    monkeypatch.setenv("FASTPIPE_CACHE_SIZE", "25KB")
    first = store.obtain(spec("first"), write)  # held
    for number in range(5):
        store.obtain(spec(str(number)), write)
        gc.collect()
        assert {first.folder.name, spec(str(number)).key} <= contents(store.root)
        assert len(contents(store.root)) == 2
    monkeypatch.setenv("FASTPIPE_CACHE_SIZE", "1KB")  # smaller than any: what was just built stays all the same
    store.obtain(spec("last"), write)
    assert contents(store.root) == {first.folder.name, spec("last").key}


def test_nothing_is_removed_without_a_limit(store, four, monkeypatch):
    monkeypatch.delenv("FASTPIPE_CACHE_SIZE", raising=False)
    store.obtain(spec("e"), write)
    assert len(inventory.entries(store)) == 5


@pytest.mark.parametrize(
    ("said", "size"),
    [("500000", 500_000), ("20GB", 20 * 10**9), (" 1.5 GiB ", 3 * 2**29), ("10m", 10**7), ("2TiB", 2**41), ("0", 0)],
)
def test_sizes(said, size):
    assert options.cache_limit({"FASTPIPE_CACHE_SIZE": said}) == size


@pytest.mark.parametrize("said", ["much", "-1GB", "1 potato", "1GBs", "GB", "1,5GB"])
def test_what_is_no_size_is_said_before_anything_is_built(said):
    with pytest.raises(OptionError, match="FASTPIPE_CACHE_SIZE"):
        options.resolve({}, {"FASTPIPE_CACHE_SIZE": said})
    assert options.cache_limit({}) is options.cache_limit({"FASTPIPE_CACHE_SIZE": " "}) is None


def test_verify_reads_every_byte(store, four):
    file = store.root / four[2].key / "graph.bin"
    file.write_bytes(bytes(SIZE - 1) + b"\1")
    damaged = {entry.key: damage for entry, damage in inventory.verify(store)}
    assert damaged == {one.key: "graph.bin is damaged" if one == four[2] else "" for one in four}


def test_a_store_that_only_some_may_write_to_is_listed(store, four, monkeypatch):
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(locks.filelock.FileLock, "acquire", refuse)
    found = store.find(four[0].key)
    assert found is not None
    assert found.lease is None
    assert len(inventory.entries(store)) == 4
    assert inventory.prune(store, 0) == []
    assert len(inventory.entries(store)) == 4


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o775])
def test_artifacts_are_as_open_as_the_folder_they_are_in(store, mode):
    store.root.mkdir()
    store.root.chmod(mode)
    store.obtain(SPEC, write)
    assert (store.root / SPEC.key).stat().st_mode & 0o777 == mode
    for name in (MANIFEST, "graph.bin"):
        assert (store.root / SPEC.key / name).stat().st_mode & 0o777 == mode & 0o666


def test_an_artifact_that_is_removed_while_it_is_looked_at_is_absent_not_damaged(store, four, recwarn):
    looked = Store(store.root)
    hold = locks.hold

    def too_late(root: Path, key: str) -> Any:
        inventory.prune(store, 0)
        return hold(root, key)

    looked_up = pytest.MonkeyPatch()
    looked_up.setattr(locks, "hold", too_late)
    try:
        assert looked.find(four[0].key) is None
    finally:
        looked_up.undo()
    assert not [warning for warning in recwarn if issubclass(warning.category, CacheWarning)]
