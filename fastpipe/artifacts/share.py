"""Ready files beside a model's weights: what `save_pretrained` writes into a folder, and `pipeline` finds there.

`fastpipe/choice.json` says what served, and of which weights. Beside it is a folder for each artifact. What is found is
copied into the store as if it had been built there: the user's folder is read once, and never written to.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fastpipe._version import __version__
from fastpipe.artifacts import acceptance, records
from fastpipe.artifacts.spec import FORMAT, MANIFEST, ArtifactSpec, digest_of, digest_of_config_file, digest_of_file
from fastpipe.artifacts.store import Artifact
from fastpipe.errors import CacheWarning, FastpipeError

logger = logging.getLogger("fastpipe")

FOLDER = "fastpipe"
CONFIG = "config.json"
CHOICE = "choice.json"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What served when a pipeline was saved.

    Attributes:
        weights: Digest of the weights beside it.
        config: Digest of the config's file beside them.
        task: The pipeline's task.
        backend: The engine.
        versions: Versions of the engine, by distribution.
        isa: What the CPU could do that matters to recipes.
        precision: Name of the recipe.
        calibration: Digest of the calibration data that went into the artifact.
        report: The accuracy check, as plain values.
    """

    weights: str
    config: str
    task: str
    backend: str
    versions: Mapping[str, str]
    isa: tuple[str, ...]
    precision: str
    calibration: str
    report: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Shared:
    """The ready files of one model.

    Attributes:
        folder: Where they are.
        choice: What served.
    """

    folder: Path
    choice: Choice

    @cached_property
    def digest(self) -> str:
        """Identify them, by the manifests, which have the digests of their files."""
        files = sorted(self.folder.glob(f"*/{MANIFEST}"))
        return digest_of([asdict(self.choice), *map(digest_of_file, files)])

    def take(self, spec: ArtifactSpec, folder: Path) -> dict[str, Any] | None:
        """Copy an artifact.

        What built it may have been another version; the engine that runs it is at least as new as the one it was
        built for.

        Args:
            spec: What is wanted.
            folder: An empty folder for its files.

        Returns:
            The facts of its manifest; `None` where there is no such artifact, or it is damaged, which is a warning.
        """
        for manifest in self._manifests():
            if _portable(manifest["spec"]) == _portable(spec.to_dict()) and self._runs(manifest["spec"], spec):
                try:
                    return self._copied(manifest, spec, folder)
                except (OSError, ValueError, FastpipeError) as error:
                    for path in folder.iterdir():
                        path.unlink() if path.is_file() else shutil.rmtree(path)
                    warnings.warn(f"{self.folder}: its ready files are not used ({error}); building", CacheWarning)
        return None

    def _manifests(self) -> Iterator[dict[str, Any]]:
        for path in sorted(self.folder.glob(f"*/{MANIFEST}")):
            try:
                manifest = records.read(path)
            except (OSError, ValueError) as error:
                warnings.warn(f"{path} is unreadable ({error})", CacheWarning)
                continue
            spec = manifest.get("spec")
            if manifest.get("format") == FORMAT and isinstance(spec, dict) and isinstance(spec.get("versions"), dict):
                yield {**manifest, "folder": path.parent}

    def _runs(self, built: Mapping[str, Any], wanted: ArtifactSpec) -> bool:
        """Tell whether the engine here is as new as the one that files were built for."""
        names = self.choice.versions
        return all(_number(built["versions"].get(n)) <= _number(wanted.versions.get(n)) for n in names)

    def _copied(self, manifest: Mapping[str, Any], spec: ArtifactSpec, folder: Path) -> dict[str, Any]:
        facts = manifest.get("facts") if spec.choice else records.facts_of_graph(manifest)
        if not isinstance(facts, dict):
            raise ValueError("it has no facts")
        for name, expected in records.files_of(manifest).items():
            origin, target = manifest["folder"] / name, folder / name
            if not os.path.isfile(origin) or origin.stat().st_size != expected.size:  # a link to a device has no end
                raise ValueError(f"{name} is damaged")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(origin, target)
            if digest_of_file(target) != expected.sha256:
                raise ValueError(f"{name} is damaged")
        acceptance.check(folder)
        logger.info("taking %s", manifest["folder"])
        return facts


def find(place: Path, config: Path, weights: Callable[[], str], task: str) -> Shared | None:
    """Find the ready files of a model.

    Args:
        place: Where they would be.
        config: The file of the model's config.
        weights: Gives the digest of the weights; asked only where there is something to compare it with.
        task: The pipeline's task.

    Returns:
        `None` where there are none for this task; also where they are of other weights, which is a warning.
    """
    try:
        values = records.read(place / CHOICE)
        if values.pop("format") != FORMAT:
            return None
        choice = _chosen(values)
        digest = digest_of_config_file(config)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        warnings.warn(f"{place / CHOICE} is unreadable ({error!r}): its ready files are not used", CacheWarning)
        return None
    if choice.task != task:
        return None
    if (choice.weights, choice.config) != (weights(), digest):
        warnings.warn(f"{place}: its ready files are of other weights or another config; not used", CacheWarning)
        return None
    return Shared(folder=place, choice=choice)


def _chosen(values: Mapping[str, Any]) -> Choice:
    """Make a choice of what JSON says.

    Raises:
        KeyError, TypeError, ValueError: It says something else.
    """
    choice = Choice(**{**values, "isa": tuple(values["isa"])})
    words = (choice.weights, choice.config, choice.task, choice.backend, choice.precision, choice.calibration)
    mappings = (choice.versions, choice.report)
    if not all(isinstance(w, str) for w in (*words, *choice.isa)) or not all(isinstance(m, dict) for m in mappings):
        raise ValueError("its values are of other kinds")
    return choice


def write(folder: Path, choice: Choice, artifacts: Sequence[tuple[Artifact, ArtifactSpec]]) -> None:
    """Put ready files into a model's folder, in place of those that are there.

    Args:
        folder: Where the model's config and weights are.
        choice: What served.
        artifacts: Each with the spec under which it will be looked for.
    """
    place = folder / FOLDER
    if place.exists():
        shutil.rmtree(place)
    for artifact, spec in artifacts:
        shutil.copytree(artifact.folder, place / spec.key)
        manifest = {**artifact.manifest, "key": spec.key, "spec": spec.to_dict()}
        (place / spec.key / MANIFEST).write_text(json.dumps(manifest, indent=1), "utf-8")
    place.mkdir(exist_ok=True)
    values = {"format": FORMAT, **asdict(choice)}
    (place / CHOICE).write_text(json.dumps(values, indent=1), "utf-8")  # last: without it there are none
    logger.info("wrote ready files of fastpipe %s into %s", __version__, place)


def _portable(spec: Any) -> Any:
    """Leave out what only says who built it, and the config as they read it: its file was compared."""
    values = {name: value for name, value in spec.items() if name not in ("versions", "config")}
    return json.loads(json.dumps(values, default=str))


def _number(version: Any) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d{1,9}", str(version or ""))[:3])
