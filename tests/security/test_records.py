"""Manifests, whoever wrote them: read without an error and without a look outside, and never as code."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpipe.artifacts import inventory, records, share
from fastpipe.artifacts.spec import FORMAT, MANIFEST, ArtifactSpec, digest_of_config_file, digest_of_file
from fastpipe.artifacts.store import Store
from fastpipe.errors import CacheWarning
from fastpipe.pipelines.speed import Speed

pytestmark = pytest.mark.once

FACTS = {"max_tokens": 8, "padding": "neutral", "outputs": ["logits"], "shapes": {"pixel_values": [3, None]}}
SPEC = ArtifactSpec(
    weights="w", config="c", architecture="a", task="t", inputs=("x",), backend="e", versions={"e": "1", "gone": ""}
)
CHOICE = share.Choice(
    weights="w", config="c", task="t", backend="e", versions={"e": "1"}, isa=(), precision="fp32", calibration="",
    report={},
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """A store with one artifact, a model's folder with the same one ready in it, and a file outside of both."""

    root: Path
    store: Store
    shared: share.Shared
    manifest: dict[str, Any]
    outside: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    root = tmp_path_factory.mktemp("place")
    outside = root / "outside.bin"
    outside.write_bytes(b"private")

    def build(folder: Path) -> dict[str, Any]:
        (folder / "weights.bin").write_bytes(b"weights")
        return FACTS

    store = Store(root / "inner" / "cache")
    artifact = store.obtain(SPEC, build)
    (root / "model").mkdir()
    (root / "model" / "config.json").write_text("{}")
    choice = dataclasses.replace(CHOICE, config=digest_of_config_file(root / "model" / "config.json"))
    share.write(root / "model", choice, [(artifact, SPEC)])
    shared = share.find(root / "model" / share.FOLDER, root / "model" / share.CONFIG, lambda: "w", "t")
    assert shared is not None
    return Place(
        root=root,
        store=store,
        shared=shared,
        manifest=json.loads((artifact.folder / MANIFEST).read_text()),
        outside=outside,
    )


_opened: list[str] | None = None


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    if _opened is not None and event == "open" and isinstance(arguments[0], (str, bytes)):
        _opened.append(str(arguments[0]))


sys.addaudithook(_listen)


@contextmanager
def within(*folders: Path) -> Iterator[None]:
    """Tell of every file that is opened elsewhere."""
    global _opened
    _opened = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CacheWarning)
            yield
    finally:
        opened, _opened = _opened, None
    strangers = [p for p in opened if not p.endswith((".py", ".pyc"))]
    inside = [any(Path(p).resolve().is_relative_to(folder) for folder in folders) for p in strangers]
    assert all(inside), strangers


NAMES = st.one_of(
    st.sampled_from(
        ["../../../outside.bin", "../../outside.bin", "weights.bin/../../../../outside.bin", "..\\outside.bin", "..",
         "/etc/hostname", "", ".", "C:outside", "\\\\host\\share", "a\0b", "n" * 5000, "weights.bin/x", "weights.bin",
         "nul", "\ud800"]
    ),
    st.text(max_size=8),
)  # fmt: skip
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), NAMES)
JSON = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
FILE = st.fixed_dictionaries({"size": st.sampled_from([7, 0, -1, 1e9, "7", None, True]), "sha256": JSON})


def paths_in(value: Any, so_far: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield so_far
    if isinstance(value, dict):
        for key in value:
            yield from paths_in(value[key], (*so_far, key))


@st.composite
def manifests(draw: st.DrawFn, manifest: dict[str, Any], outside: Path) -> Any:
    """A good manifest, of which some parts are something else."""
    made = copy.deepcopy(manifest)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(sorted(paths_in(made), key=str)))
        if not path:
            continue
        owner = made
        for key in path[:-1]:
            owner = owner[key]
        owner[path[-1]] = draw(JSON)
    if draw(st.booleans()) and isinstance(made.get("files"), dict):
        known = {"size": outside.stat().st_size, "sha256": digest_of_file(outside)}
        made["files"][draw(NAMES)] = draw(st.one_of(st.just(known), FILE, JSON))
    return draw(JSON) if draw(st.integers(0, 20)) == 0 else made


def snapshot(root: Path) -> dict[Path, bytes]:
    return {p: p.read_bytes() for p in root.rglob("*") if p.is_file() and p.suffix not in (".lock", ".json")}


@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_no_manifest_breaks_the_store_or_leads_out_of_it(place: Place, data: st.DataObject) -> None:
    text = json.dumps(data.draw(manifests(place.manifest, place.outside)), default=str)
    (place.store.root / SPEC.key / MANIFEST).write_text(text, "utf-8")
    with within(place.store.root):
        found = Store(place.store.root).find(SPEC.key)
        assert found is None or isinstance(found.facts, dict)
        place.store.damage(SPEC.key)
        entries = inventory.entries(place.store)
        assert [entry.key for entry in entries] == [SPEC.key]
        assert all(isinstance(value, str) for e in entries for value in (e.kind, e.model, e.task, e.precision))
        inventory.verify(place.store)
        inventory.prune(place.store, 0, dry_run=True)
        other = dataclasses.replace(SPEC, versions={"e": "1", "gone": "1"})
        Store(place.store.root)._alike(dataclasses.replace(other, versions={"e": "1", "gone": ""}, weights="v"))
    assert place.outside.read_bytes() == b"private"


@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_no_ready_files_break_the_reader_or_leave_their_folder(
    place: Place, data: st.DataObject, tmp_path_factory: Any
) -> None:
    text = json.dumps(data.draw(manifests(place.manifest, place.outside)), default=str)
    (place.shared.folder / SPEC.key / MANIFEST).write_text(text, "utf-8")
    (place.root / "a" / "b").mkdir(parents=True, exist_ok=True)
    before = snapshot(place.root)
    with within(place.root / "model", place.root / "a" / "b"):
        facts = place.shared.take(SPEC, place.root / "a" / "b")
    if facts is not None:
        assert records.facts_of_graph({"facts": facts}) == facts
        (place.root / "a" / "b" / "weights.bin").unlink(missing_ok=True)
    assert snapshot(place.root) == before


CHOSEN = {"format": FORMAT, **json.loads(json.dumps(dataclasses.asdict(CHOICE)))}


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_choice_breaks_its_reader(place: Place, data: st.DataObject) -> None:
    values = data.draw(manifests(CHOSEN, place.outside))
    (place.root / "other" / "fastpipe").mkdir(parents=True, exist_ok=True)
    (place.root / "other" / "config.json").write_text("{}")
    (place.root / "other" / "fastpipe" / "choice.json").write_text(json.dumps(values, default=str))
    with within(place.root / "other"):
        found = share.find(place.root / "other" / share.FOLDER, place.root / "other" / share.CONFIG, lambda: "w", "t")
    assert found is None or isinstance(found.digest, str)


@pytest.mark.parametrize("content", ["[" * 200_000, "{" * 9, "1" * 9000, "\ufeff{}", '{"a": NaN', "null"])
def test_text_that_is_no_record_is_said(place: Place, content: str) -> None:
    folder = place.store.root / ("0" * 32)
    folder.mkdir(exist_ok=True)
    (folder / MANIFEST).write_text(content)
    with pytest.warns(CacheWarning, match="0000"):
        assert place.store.find(folder.name) is None
    assert next(e for e in inventory.entries(place.store) if e.key == folder.name).kind == "damaged"
    (folder / MANIFEST).unlink()
    folder.rmdir()


class Touch:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def test_a_pickle_for_a_manifest_is_not_loaded(place: Place, tmp_path: Path) -> None:
    folder = place.store.root / ("1" * 32)
    folder.mkdir()
    (folder / MANIFEST).write_bytes(pickle.dumps(Touch(tmp_path / "mark")))
    with pytest.warns(CacheWarning, match="1111"):
        assert place.store.find(folder.name) is None
    inventory.entries(place.store)
    assert not (tmp_path / "mark").exists()
    (folder / MANIFEST).unlink()
    folder.rmdir()


@pytest.mark.parametrize("changes", [{"streams": 10**9}, {"streams": "2"}, {"numbers": -1}, {"cost": {}}, {"more": 1}])
def test_no_machine_is_said_to_be_faster_than_one_can_be(changes: dict[str, Any]) -> None:
    values = Speed().to_dict()
    assert Speed.from_dict(json.loads(json.dumps(values))) == Speed()
    with pytest.raises((KeyError, TypeError, ValueError)):
        Speed.from_dict({**values, **changes})
    with pytest.raises(ValueError, match="fast"):
        Speed.from_dict({**values, "cost": {**values["cost"], "token_s": float("inf")}})
