"""What an artifact is made of, and the key that follows from it: content and versions, never path, size or mtime."""

from __future__ import annotations

import hashlib
import inspect
import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FORMAT = 1
MANIFEST = "manifest.json"
_CHUNK = 1 << 20

# The weight files that transformers would load, in its own order of preference; the last pattern is for the rest.
WEIGHT_PATTERNS = ("model*.safetensors", "pytorch_model*.bin", "*")
_NOT_WEIGHTS = {".json", ".txt", ".md", ".py", ".model", ".png", ".jpg", ".gitattributes"}

# Entries of a config that say where a model came from or how its labels are called: none of them is in the graph.
_NOT_IN_GRAPH = (
    "_name_or_path",
    "_commit_hash",
    "transformers_version",
    "id2label",
    "label2id",
    "task_specific_params",
    "custom_pipelines",
    "_attn_implementation_autoset",
)


@dataclass(frozen=True, kw_only=True)
class ArtifactSpec:
    """Everything that changes the bytes of an artifact.

    Attributes:
        weights: Digest of the weights, or the commit they are at on the hub.
        config: Digest of the model's config.
        architecture: Name of the model class.
        task: The exporters' name of the task.
        inputs: What the tokenizer gives the model. An input that is left out is not always the same as one of zeros.
        backend: The engine it is for.
        versions: Versions of the libraries that build and run it, by distribution.
        weights_as: How the weights are stored, as `Weights.to_dict` gives it; empty for fp32.
        calibration: Digest of the calibration data that went into it.
        choice: What else it depends on: for a record, which has no files of a model, what is chosen among and by what
            measure; for what an engine compiled, the machine and the settings.
    """

    weights: str
    config: str
    architecture: str
    task: str
    inputs: tuple[str, ...]
    backend: str
    versions: Mapping[str, str]
    weights_as: Mapping[str, Any] = field(default_factory=dict)
    calibration: str = ""
    choice: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """A file name: 32 hexadecimal digits."""
        return digest_of({"format": FORMAT, **self.to_dict()})[:32]

    def to_dict(self) -> dict[str, Any]:
        """Give the spec as plain values that JSON can hold."""
        return asdict(self)


def digest_of(value: Any) -> str:
    """Hash plain values: sha256 of their JSON with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def digest_of_config(config: Any) -> str:
    """Hash the part of a transformers config that shapes the graph."""
    values = {key: value for key, value in config.to_dict().items() if key not in _NOT_IN_GRAPH}
    return digest_of({**values, "num_labels": getattr(config, "num_labels", None)})


def digest_of_config_file(path: Path) -> str:
    """Hash the same part of a config's file, which versions of transformers read with other defaults.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no JSON, or no config.
    """
    said = json.loads(path.read_text("utf-8"))
    if not isinstance(said, dict):
        raise ValueError(f"{path} is no config")
    values = {key: value for key, value in said.items() if key not in _NOT_IN_GRAPH}
    return digest_of({**values, "labels": len(said.get("id2label") or ())})


def digest_of_file(path: Path) -> str:
    """Hash the content of a file: sha256."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def digest_of_folder(
    folder: Path, *, all_formats: bool = False, of_file: Callable[[Path], str] = digest_of_file
) -> str:
    """Hash the weights in a model folder, wherever it is and whatever its files' dates are.

    Args:
        folder: The model's folder.
        all_formats: Whether the weights may be in another format than the one transformers prefers.
        of_file: What hashes a file.

    Raises:
        FileNotFoundError: The folder holds no weights.
    """
    files = list(_weight_files(folder, WEIGHT_PATTERNS[-1:] if all_formats else WEIGHT_PATTERNS))
    if not files:
        raise FileNotFoundError(f"{folder} holds no weights")
    return digest_of([(path.name, of_file(path)) for path in files])


def _weight_files(folder: Path, patterns: Iterable[str]) -> Iterable[Path]:
    for pattern in patterns:
        found = sorted(p for p in folder.glob(pattern) if p.is_file() and p.suffix not in _NOT_WEIGHTS)
        if found:
            return found
    return []


def digest_of_model(model: Any) -> str:
    """Hash the weights of a loaded model, as they are now, and the code of its class where transformers has it not."""
    import torch

    digest = hashlib.sha256(code_of(type(model)).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def code_of(cls: type) -> str:
    """Identify what a class computes: by its name where it is transformers' own, else by its source."""
    name = f"{cls.__module__}.{cls.__qualname__}"
    if cls.__module__.startswith("transformers."):
        return name
    try:
        return name + inspect.getsource(cls)
    except (OSError, TypeError):  # made at run time: no two of them are known to be the same
        return f"{name} {uuid.uuid4()}"
