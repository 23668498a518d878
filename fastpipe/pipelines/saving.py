"""Save a pipeline so that transformers and fastpipe load the folder: its own files, and ready ones beside them."""

from __future__ import annotations

import copy
import re
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi

from fastpipe.artifacts import records, share
from fastpipe.artifacts.spec import ArtifactSpec, digest_of_config, digest_of_config_file
from fastpipe.artifacts.store import Store
from fastpipe.backends import registry
from fastpipe.errors import CacheWarning
from fastpipe.hardware import detect_hardware
from fastpipe.options import size_of
from fastpipe.pipelines import components
from fastpipe.pipelines.published import Published
from fastpipe.pipelines.request import Request

_INDEX = "model.safetensors.index.json"
_WEIGHTS = "model.safetensors"
_PART = re.compile(r"model[\w.-]*\.safetensors", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Served:
    """What a pipeline's model was loaded from.

    Attributes:
        backend: The engine.
        libraries: The distributions that bring it.
        precision: Name of the recipe.
        graph: Which artifact has its graph.
        others: What else was found out about it here.
    """

    backend: str
    libraries: tuple[str, ...]
    precision: str
    graph: ArtifactSpec
    others: tuple[ArtifactSpec, ...] = ()


def save_weights(model: Any, request: Request, save_directory: Any, **kwargs: Any) -> None:
    """Save the torch model that an engine's was made of.

    Its own files are copied where they are what transformers would write: no torch model is loaded for that. Else it is
    loaded, and saved by transformers.

    Args:
        model: The model on an engine; its config is saved.
        request: What the user asked for.
        save_directory: Where to.
        kwargs: As for transformers' `save_pretrained`.
    """
    files = _own_files(request) if _as_they_are(kwargs) else []
    limit = kwargs.get("max_shard_size")
    most = size_of(limit, "max_shard_size") if isinstance(limit, str) else limit
    if not files or (most is not None and any(file.stat().st_size > most for file in files)):
        request.torch_model().save_pretrained(save_directory, **kwargs)
        return
    folder = Path(save_directory)
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.samefile(file.parent) for file in files):
        names = {file.name for file in files}
        for stale in folder.glob("model*.safetensors*"):
            if stale.name not in names:
                stale.unlink()  # transformers would load them, or take them for parts of these
        for file in files:
            shutil.copyfile(file, folder / file.name)
    for part in (model.config, model.generation_config):
        if part is not None:
            part.save_pretrained(folder)


def add_ready_files(pipe: Any, folder: Path) -> None:
    """Put what a pipeline was loaded from beside the weights that were saved, so that nothing is built again."""
    served: Served | None = pipe._served
    request: Request | None = getattr(pipe.model, "request", None)
    if served is None or request is None:
        return
    store = Store(pipe.model.cache_dir)
    graph = store.find(served.graph.key)
    if graph is None or "failed" in graph.manifest:
        warnings.warn(
            f"{store.root} no longer has the graph that was loaded: {folder} is saved without ready files", CacheWarning
        )
        return
    found = request.saved_in(folder)
    changes: dict[str, Any] = {
        "weights": found.digest_of_weights(),
        "config": digest_of_config(found.config),
        "architecture": str((found.config.architectures or [""])[0]),
        "inputs": _inputs(pipe, found),
    }
    records = [(record, spec) for spec in served.others if (record := store.find(spec.key))]
    share.write(
        folder,
        share.Choice(
            weights=changes["weights"],
            config=digest_of_config_file(folder / share.CONFIG),
            task=request.task_name,
            backend=served.backend,
            versions={name: registry.version_of(name) for name in served.libraries},
            isa=detect_hardware().isa,
            precision=served.precision,
            calibration=served.graph.calibration,
            report=pipe.report.to_dict(),
        ),
        [(artifact, replace(spec, **changes)) for artifact, spec in ((graph, served.graph), *records)],
    )


def find(request: Request, store: Store, published: Published | None) -> share.Shared | None:
    """Find ready files beside a model's weights, in its folder or on the hub."""
    folder = request.folder
    if folder is None or request.task is None:
        return published.shared() if published else None
    return share.find(
        folder / share.FOLDER,
        folder / share.CONFIG,
        lambda: request.digest_of_weights(store.digest_of_file),
        request.task_name,
    )


def upload(
    folder: str,
    repo_id: str,
    names: list[str],
    *,
    revision: str | None,
    token: Any,
    commit_message: str,
    commit_description: str | None,
    create_pr: bool,
) -> Any:
    """Upload files and folders, with all that is in them.

    Args:
        folder: Where they are.
        repo_id: Where they go.
        names: Which.
        revision: The branch, which is made where it is not there.
        token: As for huggingface_hub's `upload_folder`, and so are the rest.
        commit_message: Of the commit.
        commit_description: Of the commit.
        create_pr: Whether it becomes a pull request.

    Returns:
        huggingface_hub's description of the commit.
    """
    api = HfApi(token=token)
    if revision is not None and not revision.startswith("refs/pr") and not create_pr:
        api.create_branch(repo_id, branch=revision, exist_ok=True)
    return api.upload_folder(
        repo_id=repo_id,
        folder_path=folder,
        allow_patterns=[pattern for name in names for pattern in (name, f"{name}/**")],
        commit_message=commit_message,
        commit_description=commit_description,
        revision=revision,
        create_pr=create_pr,
    )


def _as_they_are(kwargs: Mapping[str, Any]) -> bool:
    """Tell whether nothing is asked for but the weights as they are."""
    asked = {name for name, value in kwargs.items() if value}
    return bool(kwargs.get("safe_serialization", True)) and asked <= {"safe_serialization", "max_shard_size", "token"}


def _own_files(request: Request) -> list[Path]:
    """Find a model's files of weights, and the index of their parts; none where they are of another kind."""
    model_kwargs = request.arguments.get("model_kwargs") or {}
    if request.model_id is None or model_kwargs.get("variant") or model_kwargs.get("use_safetensors") is False:
        return []
    if whole := request.file(_WEIGHTS):
        return [whole]
    index = request.file(_INDEX)
    if index is None:
        return []
    told = records.read(index).get("weight_map")
    names = set(map(str, told.values() if isinstance(told, dict) else ()))
    if not all(map(_PART.fullmatch, names)):  # an index from elsewhere could name any file, to be uploaded later
        return []
    return [index, *_found(request, sorted(names))]


def _found(request: Request, names: Sequence[str]) -> Iterator[Path]:
    for name in names:
        path = request.file(name)
        if path is None:
            raise FileNotFoundError(f"{request.model_id}: {name} is in its index, and not there")
        yield path


def _inputs(pipe: Any, found: Request) -> tuple[str, ...]:
    """Identify what the saved tokenizer and processors give the model, as whoever loads them will."""
    twin = found.engine_pipeline(copy.deepcopy(pipe.model), components.of(found), type(pipe))
    return components.names(twin)
