"""What is in a store: who is there, what may go, what is damaged."""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastpipe.artifacts import digests, locks, records
from fastpipe.artifacts.spec import MANIFEST

if TYPE_CHECKING:
    from fastpipe.artifacts.store import Store

logger = logging.getLogger("fastpipe")

_KEY = re.compile(r"[0-9a-f]{32}")
# What the choice in a spec begins with, by what it is a choice of.
_KINDS = {"compiled for": "compiled", "speed of": "speed", "ladder": "report", "tuned": "tuning", "ready in": "listing"}
_ASIDE = ".tmp-"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One artifact in a store.

    Attributes:
        key: Its key, and the name of its folder.
        kind: "graph", "quantized", "compiled"; of those without files of a model "report" (of the accuracy check),
            "speed", "tuning", "listing" (of what the hub has ready) and "failed" (an engine could not take the model);
            "damaged" where nothing can be read.
        model: Id of the model or name of its folder; its class where the builder did not say.
        task: The pipeline's task, or the exporters' name of it.
        backend: The engine it is for; empty for all of them.
        precision: Name of the recipe, or how weights are stored.
        size_bytes: Of all its files.
        used_at: When it was last used, in seconds since the epoch.
        in_use: Whether a live process uses it.
        manifest: All that is known of it.
    """

    key: str
    kind: str
    model: str
    task: str
    backend: str
    precision: str
    size_bytes: int
    used_at: float
    in_use: bool
    manifest: Mapping[str, Any]


def entries(store: Store) -> list[Entry]:
    """List a store's artifacts, those used last first."""
    in_use: set[str] = set()
    with contextlib.suppress(OSError):  # a store that cannot be written to, or is not there
        if store.root.is_dir():
            with locks.exclusively(store.root):
                in_use = locks.used(store.root)
    found = [_entry(folder, folder.name in in_use) for folder in _folders(store.root)]
    return sorted((entry for entry in found if entry), key=lambda entry: (-entry.used_at, entry.key))


def prune(store: Store, limit_bytes: int, *, dry_run: bool = False, keep: Collection[str] = frozenset()) -> list[Entry]:
    """Remove what was not used for longest until the rest is small enough; never what a live process uses.

    Args:
        store: The store.
        limit_bytes: What all artifacts together may take.
        dry_run: Whether to tell only what would be removed.
        keep: Keys of others that stay.

    Returns:
        What was or would be removed, least recently used first.
    """
    there = entries(store)
    size, removed = sum(entry.size_bytes for entry in there), []
    for entry in reversed(there):
        if size <= limit_bytes:
            break
        if not entry.in_use and entry.key not in keep and (dry_run or _remove(store, entry.key)):
            size -= entry.size_bytes
            removed.append(entry)
    if size > limit_bytes:
        logger.info("%s holds %d bytes, and what is in use cannot be removed", store.root, size)
    return removed


def verify(store: Store) -> list[tuple[Entry, str]]:
    """Read every byte of a store.

    Returns:
        Each artifact with what is wrong with it; nothing where it is whole.
    """
    return [(entry, store.damage(entry.key)) for entry in entries(store)]


def tidy(store: Store) -> None:
    """Clear away what dead processes left: unfinished folders, marks of use, locks of artifacts that are gone."""
    root, now = store.root, time.time()
    if not root.is_dir():
        return
    aside: list[Path] = []
    with locks.exclusively(root):
        locks.used(root)
        left = {path.name.partition(_ASIDE)[0] for path in root.glob(f"*{_ASIDE}*")}
        locked = {path.stem for path in root.glob("*.lock") if _KEY.fullmatch(path.stem)}
        for key in left | {key for key in locked if not (root / key).exists()}:
            if _KEY.fullmatch(key):
                with locks.idle(root, key, forget=not (root / key).exists()) as nobody:
                    aside += [_renamed(path) for path in root.glob(f"{key}{_ASIDE}*")] if nobody else []
    for folder in aside:
        shutil.rmtree(folder, ignore_errors=True)
    digests.tidy(root / digests.FOLDER, now)


def _remove(store: Store, key: str) -> bool:
    """Remove an artifact that nobody uses or builds; tell whether it is gone."""
    root = store.root
    try:
        with locks.exclusively(root):
            if key in locks.used(root):
                return False
            with locks.idle(root, key, forget=True) as nobody:
                if not nobody:
                    return False
                aside = _renamed(root / key)
        for path in aside.rglob("*"):
            digests.forget(root / key / path.relative_to(aside), root / digests.FOLDER)
        shutil.rmtree(aside)
    except OSError as error:
        logger.info("%s stays: %s", root / key, error)
        return False
    return True


def _renamed(folder: Path) -> Path:
    """Put a folder aside, at once; it is removed when nobody waits for that."""
    name = folder.name.partition(_ASIDE)[0]
    return folder.rename(folder.with_name(f"{name}{_ASIDE}gone-{time.time_ns()}"))


def _folders(root: Path) -> list[Path]:
    return [path for path in root.glob("*") if _KEY.fullmatch(path.name) and path.is_dir()] if root.is_dir() else []


def _entry(folder: Path, in_use: bool) -> Entry | None:
    """Read one artifact; `None` when it is gone by now."""
    try:
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        used_at = next(path for path in (folder / MANIFEST, folder) if path.exists()).stat().st_mtime
    except (OSError, StopIteration):
        return None
    try:
        manifest = records.read(folder / MANIFEST)
        known = _described(manifest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        manifest, known = {}, dict.fromkeys(("model", "task", "backend", "precision"), "") | {"kind": "damaged"}
    return Entry(key=folder.name, size_bytes=size, used_at=used_at, in_use=in_use, manifest=manifest, **known)


def _described(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Say in words what a manifest is of."""
    spec, about = manifest["spec"], manifest.get("about", {})
    choice, stored = spec["choice"], spec["weights_as"]
    kind = next((name for said, name in _KINDS.items() if said in choice), "quantized" if stored else "graph")
    recipe = choice.get("as", {}).get("recipe") or choice.get("speed of") or {}
    precision = recipe.get("name") or (f"int{stored['bits']}" if stored else "fp32" if kind == "graph" else "")
    return {
        "kind": "failed" if "failed" in manifest else kind,
        "model": str(about.get("model") or spec["architecture"]),
        "task": str(about.get("task") or spec["task"]),
        "backend": str(spec["backend"]),
        "precision": str(precision),
    }
