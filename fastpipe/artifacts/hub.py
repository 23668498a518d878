"""Ready graphs on the hub: where they may be, which of them suit a machine, and how one gets here.

What a repository has is asked once, at one commit, and all that follows comes from that commit. What is fetched lies in
the hub's own cache, where a download that was cut off goes on; a copy is looked through before an engine sees it.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from huggingface_hub.utils import validate_repo_id

from fastpipe.artifacts import acceptance
from fastpipe.artifacts.spec import WEIGHT_PATTERNS, digest_of, digest_of_file
from fastpipe.errors import OptionError

logger = logging.getLogger("fastpipe")

_TIMEOUT_S = 10.0
_TRIES = 4
_NONE = "none"

# Who publishes graphs of other people's models, by engine. Their cards must name the model as the one they are made of.
COMPANIONS: Mapping[str, tuple[str, ...]] = {
    "onnxruntime": ("onnx-community/{name}", "onnx-community/{name}-ONNX", "Xenova/{name}"),
    "openvino": ("OpenVINO/{name}-int8-ov",),
}


@dataclass(frozen=True, kw_only=True)
class Named:
    """What a file's name says of the graph in it.

    Attributes:
        backend: The engine that reads it.
        pattern: What the whole name looks like, without folders.
        bits: Of its weights.
        needs: What the CPU must have for it; empty where any will do.
        repo: What the name of its repository looks like.
    """

    backend: str
    pattern: str
    bits: int
    needs: str = ""
    repo: str = ".*"


# As Optimum, sentence-transformers and transformers.js name what they write. Left out: half floats, which no CPU engine
# computes in faster than in what it makes of fp32; and 4 bits, which save memory and no time.
NAMES: tuple[Named, ...] = (
    Named(backend="onnxruntime", pattern=r"model\.onnx", bits=32),
    Named(backend="onnxruntime", pattern=r"model_qint8_avx512_vnni\.onnx", bits=8, needs="avx512_vnni"),
    Named(backend="onnxruntime", pattern=r"model_qint8_avx512\.onnx", bits=8, needs="avx512f"),
    Named(backend="onnxruntime", pattern=r"model_quint8_avx2\.onnx", bits=8, needs="avx2"),
    Named(backend="onnxruntime", pattern=r"model_qint8_arm64\.onnx", bits=8, needs="neon"),
    Named(backend="onnxruntime", pattern=r"model_(int8|uint8|quantized)\.onnx", bits=8),
    Named(backend="openvino", pattern=r"openvino_model\.xml", bits=8, repo=r".*-int8-ov"),
    Named(backend="openvino", pattern=r"openvino_model\.xml", bits=32),
    Named(backend="openvino", pattern=r"openvino_model_(int8|qint8_quantized|quantized)\.xml", bits=8),
)
_FOLDERS: Mapping[str, tuple[str, ...]] = {"onnxruntime": ("onnx", ""), "openvino": ("openvino", "")}
# A repository may have checkpoints by the thousand; these are all that is read of its list. Who has more has nothing.
_KEPT = re.compile(r"fastpipe/.*|.*\.(onnx|xml|bin|safetensors)|.*\.onnx[_.].*", re.DOTALL)
_MOST = 10_000
# An export takes about as long as this many bytes, and is made of the weights that were downloaded anyway.
LARGEST_FP32 = 512 << 20


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file in a repository: its name with folders, bytes, and sha256; 0 and empty where the hub does not say it."""

    name: str
    size: int
    sha256: str = ""

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and type(self.size) is int and isinstance(self.sha256, str)):
            raise TypeError(f"{self!r} describes no file")


@dataclass(frozen=True, kw_only=True)
class Listing:
    """What a repository has at one commit, and which models its card says that it is made of."""

    repo: str
    commit: str
    made_of: tuple[str, ...]
    files: tuple[RemoteFile, ...]

    def __post_init__(self) -> None:
        if not all(isinstance(word, str) for word in (self.repo, self.commit, *self.made_of)):
            raise TypeError(f"what was said of {self.repo!r} is no listing")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Listing:
        """Make a listing of its values, as `asdict` gives them.

        Raises:
            KeyError, TypeError: They are something else.
        """
        files = tuple(RemoteFile(**file) for file in values["files"])
        return cls(**{**values, "made_of": tuple(values["made_of"]), "files": files})


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A graph of one model for one engine, ready on the hub.

    Attributes:
        repo: Its repository.
        commit: Where it is taken from.
        backend: The engine.
        bits: Of its weights: 32 or 8.
        made_for: The feature of CPUs that it was made for; empty where there is none.
        files: The graph, and the weights beside it.
    """

    repo: str
    commit: str
    backend: str
    bits: int
    made_for: str = ""
    files: tuple[RemoteFile, ...]

    @property
    def size_bytes(self) -> int:
        """How much there is to fetch."""
        return sum(file.size for file in self.files)

    @property
    def origin(self) -> str:
        """Name the file, and nothing that could be another one tomorrow."""
        return f"{self.repo}@{self.commit}/{self.files[0].name}"


def companions(model_id: str, environment: Mapping[str, str] = os.environ) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Say where else there may be something ready for a model.

    Args:
        model_id: Its id on the hub.
        environment: `FASTPIPE_ARTIFACT_REPOS` names repositories, with `{name}` for the last part of the model's id;
            "none" leaves the well-known ones out.

    Returns:
        The user's repositories, and the well-known ones.

    Raises:
        OptionError: The variable names what cannot be a repository.
    """
    name = model_id.rpartition("/")[2]
    said = [part.strip() for part in environment.get("FASTPIPE_ARTIFACT_REPOS", "").split(",") if part.strip()]
    own = [part for part in said if part != _NONE]
    for part in own:
        try:
            validate_repo_id(part.replace("{name}", "name"))
        except HFValidationError as error:
            raise OptionError(
                f"FASTPIPE_ARTIFACT_REPOS: {part!r} is no repository ({error})",
                remedy="Name some as owner/name, with commas between them; {name} stands for the model's name.",
            ) from error
    known = () if _NONE in said else (repo for repos in COMPANIONS.values() for repo in repos)
    return tuple(part.replace("{name}", name) for part in own), tuple(repo.replace("{name}", name) for repo in known)


def look(repo: str, revision: str | None, token: Any = None) -> Listing:
    """Ask the hub what a repository has.

    Args:
        repo: Its id.
        revision: Branch, tag or commit.
        token: As for huggingface_hub.

    Raises:
        TypeError: The answer is none.
        Exception: huggingface_hub's, where there is no such repository for this token, or no hub.
    """
    info = HfApi().model_info(repo, revision=revision, files_metadata=True, token=token, timeout=_TIMEOUT_S)
    said = getattr(info.card_data, "base_model", None)  # a card says what its author likes
    made_of = (said,) if isinstance(said, str) else said if isinstance(said, (list, tuple)) else ()
    files = tuple(
        RemoteFile(name=file.rfilename, size=file.size or 0, sha256=file.lfs.sha256 if file.lfs else "")
        for file in info.siblings or ()
        if _KEPT.fullmatch(file.rfilename)
    )
    return Listing(
        repo=info.id,  # which may have another owner by now
        commit=info.sha,
        made_of=tuple(name for name in made_of if isinstance(name, str)),
        files=files if len(files) <= _MOST else (),
    )


def graphs(listing: Listing, backend: str, isa: Collection[str], subfolder: str = "") -> Iterator[Ready]:
    """Find the graphs in a repository that an engine runs on this CPU, those that were made for it first.

    Args:
        listing: What the repository has.
        backend: The engine.
        isa: What the CPU has.
        subfolder: Where in the repository the model is.
    """
    files, taken = {file.name: file for file in listing.files}, set()
    places = {PurePosixPath(subfolder, folder) for folder in _FOLDERS[backend]}
    for known in sorted(NAMES, key=lambda known: not known.needs):
        here = known.backend == backend and re.fullmatch(known.repo, listing.repo)
        if not here or (known.needs and known.needs not in isa):
            continue
        for name, file in files.items():
            path = PurePosixPath(name)
            if name in taken or path.parent not in places or not re.fullmatch(known.pattern, path.name):
                continue
            beside = _weights_beside(path, files)
            if beside is not None and all(one.size > 0 for one in (file, *beside)):
                taken.add(name)
                yield Ready(
                    repo=listing.repo,
                    commit=listing.commit,
                    backend=backend,
                    bits=known.bits,
                    made_for=known.needs,
                    files=(file, *beside),
                )


def best(found: Iterable[Ready]) -> dict[int, Ready]:
    """Choose for each number of bits: of the first repository that has some the one for this CPU, else the smallest.

    Args:
        found: Graphs, the repositories in the order of trust, and in each those made for this CPU first.
    """
    chosen: dict[int, Ready] = {}
    for one in found:
        before = chosen.setdefault(one.bits, one)
        if one.repo == before.repo and not before.made_for and one.size_bytes < before.size_bytes:
            chosen[one.bits] = one
    return chosen


def _weights_beside(graph: PurePosixPath, files: Mapping[str, RemoteFile]) -> tuple[RemoteFile, ...] | None:
    """Find the weights of a graph in files of their own; `None` where they are missing, or too many for us."""
    if graph.suffix == ".xml":
        weights = files.get(str(graph.with_suffix(".bin")))
        return (weights,) if weights else None
    names = [name for name in files if name != str(graph) and name.startswith((f"{graph}_data", f"{graph}.data"))]
    allowed = {f"{graph}_data", f"{graph}.data"}
    return tuple(files[name] for name in sorted(names)) if allowed.issuperset(names) else None


def fetch(ready: Ready, folder: Path, **reaching: Any) -> Path:
    """Copy a ready graph here, downloading what is missing, and look it through.

    Args:
        ready: Which.
        folder: An empty folder.
        reaching: As for `download`.

    Returns:
        The graph.

    Raises:
        UnsafeFileError: It may not be handed to an engine.
        ValueError: What came is not what was listed.
        Exception: huggingface_hub's.
    """
    logger.info("fetching %s (%.1f MB)", ready.origin, ready.size_bytes / 1e6)
    for file in ready.files:
        found = download(ready.repo, file.name, ready.commit, **reaching)
        target = folder / PurePosixPath(file.name).name
        shutil.copyfile(found, target)
        if target.stat().st_size != file.size or (file.sha256 and digest_of_file(target) != file.sha256):
            raise ValueError(f"{file.name} of {ready.repo} is not what the hub says that it has")
    acceptance.check(folder)
    return folder / PurePosixPath(ready.files[0].name).name


def download(repo: str, name: str, commit: str, **reaching: Any) -> Path:
    """Bring a file into the hub's cache, if it is not there; a connection that ends too soon is taken up again.

    Args:
        repo: The repository.
        name: The file, with folders.
        commit: Of the repository.
        reaching: As for `hf_hub_download`: "token", "cache_dir", "local_files_only".

    Raises:
        Exception: huggingface_hub's.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            return Path(hf_hub_download(repo, name, revision=commit, **reaching))
        except (HfHubHTTPError, LocalEntryNotFoundError):  # an answer, or nobody to ask
            raise
        except Exception as error:  # of the library underneath, which is another one in each version
            if not tries_left:
                raise
            logger.info("%s of %s: %s; going on from there", name, repo, error)
    raise AssertionError("unreachable")


def digest_of_weights(listing: Listing, of_missing: Callable[[str], str]) -> str:
    """Identify the weights in a repository as those in a folder are identified, without fetching them.

    Args:
        listing: What the repository has.
        of_missing: Gives the sha256 of a file of which the hub does not say it.

    Returns:
        The digest; empty where there are no weights of a usual name.
    """
    there = {file.name: file.sha256 for file in listing.files if "/" not in file.name}
    for pattern in WEIGHT_PATTERNS[:-1]:
        names = sorted(name for name in there if fnmatch(name, pattern))
        if names:
            return digest_of([digest_of([(name, there[name] or of_missing(name)) for name in names]), {}])
    return ""


def plain(listings: Iterable[Listing]) -> list[dict[str, Any]]:
    """Give listings as plain values that JSON can hold."""
    return [asdict(listing) for listing in listings]
