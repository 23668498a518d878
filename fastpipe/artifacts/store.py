"""Where artifacts are kept: one folder per key, complete or absent, built by one process at a time."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs

from fastpipe import options
from fastpipe._version import __version__
from fastpipe.artifacts import digests, inventory, locks, records
from fastpipe.artifacts.spec import FORMAT, MANIFEST, ArtifactSpec, digest_of_file
from fastpipe.errors import ArtifactError, CacheWarning, ExportError

__all__ = ["MANIFEST", "Artifact", "Store", "empty"]

logger = logging.getLogger("fastpipe")

_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A complete artifact.

    Attributes:
        folder: Where its files are.
        manifest: What is known of it: "key", "spec", "about" (model and task in words), "files" (size and sha256 by
            name), "facts", "build_s".
        lease: Keeps others from removing its files.
    """

    folder: Path
    manifest: Mapping[str, Any]
    lease: locks.Lease | None = field(default=None, repr=False, compare=False)

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the builder learnt about the model."""
        facts: Mapping[str, Any] = self.manifest["facts"]
        return facts

    @property
    def size_bytes(self) -> int:
        """How much its files take."""
        return sum(int(file["size"]) for file in self.manifest["files"].values())


class Store:
    """A folder of artifacts.

    Args:
        root: The folder; `None` for the user's cache folder. It is made, private to the user, when first written to;
            what is put in it has the permissions that it has.
        about: What the artifacts built here are of, in words, for who lists them: "model", "task".
    """

    def __init__(self, root: Path | None = None, about: Mapping[str, str] | None = None) -> None:
        self.root = root or Path(platformdirs.user_cache_path("fastpipe"))
        self._about = dict(about or {})
        self._place: Store | None = None

    def find(self, key: str, *, then: str = "building again") -> Artifact | None:
        """Give the artifact of a key, or `None` when it is absent, damaged or of another format.

        Takes no lock and need not write, so that a read-only cache serves.

        Args:
            key: Of its spec.
            then: What follows when it is damaged, for the warning.
        """
        found, damage = self._look(key)
        if damage:
            warnings.warn(f"{self.root / key}: {damage}; {then}", CacheWarning)
        return found

    def damage(self, key: str) -> str:
        """Read every byte of an artifact, and say what is wrong with it; nothing where it is whole or absent."""
        manifest, damage = self._manifest(key)
        return damage if manifest is None else self._damage(self.root / key, manifest, digest_of_file)

    def _look(self, key: str) -> tuple[Artifact | None, str]:
        """Give the artifact of a key, or what is wrong with it."""
        folder = self.root / key
        manifest, damage = self._manifest(key)
        if manifest is None:
            return None, damage
        # From here on it stays; nobody needs the files of a record, which is read.
        lease = locks.hold(self.root, key) if manifest.get("files") else None
        if damage := self._damage(folder, manifest, self.digest_of_file):
            return None, damage if (folder / MANIFEST).exists() else ""  # else it was removed just now
        with contextlib.suppress(OSError):
            os.utime(folder / MANIFEST)  # the time of its last use
        return Artifact(folder=folder, manifest=manifest, lease=lease), ""

    def _manifest(self, key: str) -> tuple[dict[str, Any] | None, str]:
        try:
            return records.read(self.root / key / MANIFEST), ""
        except (FileNotFoundError, NotADirectoryError):
            return None, ""
        except (OSError, ValueError) as error:
            return None, f"{MANIFEST} is unreadable ({error})"

    def digest_of_file(self, path: Path) -> str:
        """Hash a file, or remember its hash: see `digests`."""
        return digests.digest_of_known_file(path, self.root / digests.FOLDER)

    def _damage(self, folder: Path, manifest: Mapping[str, Any], of_file: Callable[[Path], str]) -> str:
        if manifest.get("format") != FORMAT or not isinstance(manifest.get("facts"), dict):
            return "the manifest is of another format"
        try:
            files = records.files_of(manifest)
        except ValueError as error:
            return f"{MANIFEST} is damaged ({error})"
        for name, expected in files.items():
            path = folder / name
            whole = os.path.isfile(path) and path.stat().st_size == expected.size
            if not whole or of_file(path) != expected.sha256:
                return f"{name} is damaged"
        return ""

    def obtain(self, spec: ArtifactSpec, build: Callable[[Path], Mapping[str, Any]]) -> Artifact:
        """Give the artifact of a spec, building it when there is none.

        Args:
            spec: What is wanted.
            build: Writes the files into the folder it is given, and returns the facts for the manifest.

        Raises:
            ExportError: The engine cannot take the model; remembered, so that it is not tried again.
            ArtifactError: The disk is full.
            OSError: Another error of the file system.
        """
        found = self.find(spec.key) or self._alike(spec)
        if found is None:
            store = self._writable()
            try:
                with locks.building(store.root, spec.key):
                    found = store._look(spec.key)[0] or store._build(spec, build)
            finally:
                store._clear(spec.key)
        else:
            logger.debug("%s is there", found.folder)
        if "failed" in found.manifest:
            raise ExportError(str(found.manifest["failed"]))
        return found

    def _alike(self, spec: ArtifactSpec) -> Artifact | None:
        """Find what an exporter or quantizer that is not installed here has built.

        So an image can be made with all that builds, and run without it.
        """
        if all(spec.versions.values()):
            return None
        wanted = json.loads(json.dumps(spec.to_dict()))
        for path in self.root.glob(f"*/{MANIFEST}"):
            with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, KeyError):
                manifest = records.read(path)
                built, key = manifest["spec"], path.parent.name
                versions = {name: version and built["versions"][name] for name, version in wanted["versions"].items()}
                if key != spec.key and "failed" not in manifest and {**built, "versions": versions} == wanted:
                    return self.find(key)
        return None

    def replace(self, spec: ArtifactSpec, build: Callable[[Path], Mapping[str, Any]]) -> Artifact:
        """Write the record of a spec, whether there is one or not.

        Who reads meanwhile finds the old one or the new one, each of them whole; between the two, for an instant, none.

        Args:
            spec: What is wanted.
            build: As for `obtain`; it writes no files, as whoever reads those of the old one would lose them.

        Raises:
            ArtifactError: The disk is full.
            OSError: Another error of the file system.
        """
        store = self._writable()
        with locks.building(store.root, spec.key):
            return store._build(spec, build)

    def _clear(self, built: str) -> None:
        """Clear away what is of no use, once something was built."""
        with contextlib.suppress(OSError):  # it can wait
            inventory.tidy(self)
            limit = options.cache_limit()
            if limit is not None:
                inventory.prune(self, limit, keep={built})

    def _writable(self) -> Store:
        """Give this store, or one in a temporary folder where this one's folder cannot be written to."""
        if self._place is None:
            self._place = self
            try:
                locks.make_private(self.root)
                with tempfile.TemporaryFile(dir=self.root):
                    pass
            except OSError as error:
                warnings.warn(
                    f"{self.root} cannot be written to ({error}): building in a temporary folder that goes with this "
                    "process. Set FASTPIPE_CACHE to a writable folder.",
                    CacheWarning,
                )
                self._place = Store(_refuge(os.getpid()), self._about)
        return self._place

    def _build(self, spec: ArtifactSpec, build: Callable[[Path], Mapping[str, Any]]) -> Artifact:
        """Build into a temporary folder beside the final place, then rename. The caller holds the key's lock."""
        for litter in self.root.glob(f"{spec.key}.tmp-*"):  # whoever left it is dead, or would hold the lock
            shutil.rmtree(litter, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f"{spec.key}.tmp-", dir=self.root))
        started = time.perf_counter()
        try:
            try:
                outcome: dict[str, Any] = {"facts": dict(build(folder))}
            except ExportError as error:
                outcome = {"failed": str(error), "facts": {}}
                empty(folder)
            manifest = {
                "format": FORMAT,
                "fastpipe": __version__,
                "key": spec.key,
                "spec": spec.to_dict(),
                "about": self._about,
                "files": {
                    str(path.relative_to(folder)): {"size": path.stat().st_size, "sha256": digest_of_file(path)}
                    for path in sorted(folder.rglob("*"))
                    if path.is_file()
                },
                "build_s": round(time.perf_counter() - started, 3),
                **outcome,
            }
            (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")
            _open_to(locks.permissions(self.root), folder)
            final = self.root / spec.key
            aside = self.root / f"{spec.key}.tmp-old"
            if final.exists():  # a damaged one that find() did not want, or one to replace
                final.rename(aside)  # at once, so that nobody reads one that is half gone
            folder.rename(final)
            shutil.rmtree(aside, ignore_errors=True)
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in _FULL and not isinstance(error, ArtifactError):
                raise _no_space(self.root, error) from error
            raise
        return Artifact(
            folder=final, manifest=manifest, lease=locks.hold(self.root, spec.key) if manifest["files"] else None
        )


def empty(folder: Path) -> None:
    """Remove everything in a folder."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@cache
def _refuge(process_id: int) -> Path:
    """Make a private folder for artifacts of this process, which takes it along when it ends."""
    return locks.temporary_folder()


def _open_to(permissions: int, folder: Path) -> None:
    """Let those read, or write, who may do so in the store."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(permissions if path.is_dir() else permissions & 0o666)


def _no_space(root: Path, error: OSError) -> ArtifactError:
    found = ArtifactError(
        f"{root}: there is no space left to build a model in ({error})",
        remedy="Free some (`fastpipe cache prune`), or set FASTPIPE_CACHE to a folder on another disk.",
    )
    found.errno = error.errno
    return found
