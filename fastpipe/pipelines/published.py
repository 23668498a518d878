"""What the hub has ready for a model: asked once, remembered in the store, so that a warm cache asks nothing."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub.errors import HFValidationError
from transformers.utils.hub import is_offline_mode

from fastpipe.artifacts import hub, records, share
from fastpipe.artifacts.hub import Listing, Ready
from fastpipe.artifacts.spec import ArtifactSpec, digest_of_file
from fastpipe.artifacts.store import Store
from fastpipe.errors import ExportError, FastpipeError, FetchError
from fastpipe.pipelines.request import Request

logger = logging.getLogger("fastpipe")

_MOST = 256  # files that fastpipe saved: each artifact has a few
_NOT_THERE = (400, 401, 403, 404, 410, 451)


@dataclass(frozen=True, kw_only=True)
class Published:
    """What repositories have for one model.

    Attributes:
        request: The resolved call; its model is on the hub, at a commit.
        own: The model's own repository, and those that the user named: their word on what served is followed.
        known: The well-known publishers of graphs. What they have is compared and checked, as everything is.
    """

    request: Request
    own: tuple[Listing, ...]
    known: tuple[Listing, ...] = ()

    def graphs(self, backend: str, isa: Collection[str]) -> dict[int, Ready]:
        """Choose what an engine could take on this CPU: a graph for each number of bits that there is one of."""
        subfolder = self._loading.get("subfolder") or ""
        found = (
            ready
            for listing in (*self.own, *self.known)
            for ready in hub.graphs(listing, backend, isa, subfolder if listing is self.own[0] else "")
        )
        return hub.best(found)

    def fetch(self, ready: Ready, folder: Path, adopt: Callable[[Path, Path], None]) -> None:
        """Write a ready graph into a folder as one of the engine's own.

        Args:
            ready: Which.
            folder: An empty folder.
            adopt: Writes the graph whose file it is given.

        Raises:
            FetchError: It did not come whole, this time.
            UnsafeFileError: It may not be handed to an engine.
            ExportError: The engine cannot read it.
        """
        place = folder / "fetched"
        place.mkdir()
        try:
            graph = self._fetched(ready, place)
            adopt(graph, folder)
        except (OSError, MemoryError, FastpipeError):
            raise
        except Exception as error:
            raise ExportError(f"{ready.origin} cannot be read ({_line(error)})") from error
        finally:
            shutil.rmtree(place)

    def _fetched(self, ready: Ready, place: Path) -> Path:
        try:
            return hub.fetch(ready, place, **self._reaching)
        except (MemoryError, FastpipeError):
            raise
        except Exception as error:  # what the hub's clients raise changes with their versions
            raise FetchError(f"{ready.origin} cannot be fetched ({_line(error)})") from error

    def shared(self) -> share.Shared | None:
        """Find what fastpipe itself saved there for these weights and this task, and bring it here."""
        choice = f"{share.FOLDER}/{share.CHOICE}"
        for listing in self.own if not self._loading else ():
            files = {file.name: file.size for file in listing.files if file.name.startswith(f"{share.FOLDER}/")}
            if choice not in files:
                continue
            try:
                if len(files) > _MOST or files[choice] > records.LARGEST:
                    raise ValueError("no ready files are that many, or say that much")
                config = self.request.file(share.CONFIG)
                if config is None:
                    return None
                place = self._brought(listing, choice).parent
                found = share.find(place, config, self._weights, self.request.task_name)
                for name in files if found else ():
                    self._brought(listing, name)
            except Exception as error:
                logger.info("the ready files of %s are not used: %s", listing.repo, _line(error))
                continue
            if found:
                return found
        return None

    def _weights(self) -> str:
        weights = hub.digest_of_weights(self.own[0], self._digest)
        if not weights:
            raise ValueError("there are no weights that they could be of")
        return weights

    def _brought(self, listing: Listing, name: str) -> Path:
        return hub.download(listing.repo, name, listing.commit, **self._reaching)

    def _digest(self, name: str) -> str:
        path = self.request.file(name)
        return digest_of_file(path) if path else ""

    @property
    def _reaching(self) -> dict[str, Any]:
        """Give what it takes to fetch files as the model's own are fetched."""
        return {
            "token": self.request.arguments.get("token"),
            "cache_dir": self._model_kwargs.get("cache_dir"),
            "local_files_only": _is_local(self.request),
        }

    @property
    def _loading(self) -> dict[str, Any]:
        """Give what was said of the files that the weights are in."""
        names = ("subfolder", "variant", "use_safetensors")
        return {name: value for name, value in self._model_kwargs.items() if name in names}

    @property
    def _model_kwargs(self) -> dict[str, Any]:
        return self.request.arguments.get("model_kwargs") or {}


def find(request: Request, store: Store) -> Published | None:
    """Find out what the hub has ready for a model, or remember it.

    Args:
        request: The resolved call.
        store: Where it is remembered.

    Returns:
        `None` for a model that is not on the hub, that no engine takes, or of which nothing is known offline.

    Raises:
        OptionError: `FASTPIPE_ARTIFACT_REPOS` names what cannot be a repository.
    """
    model = request.model_id
    if model is None or request.folder or request.task is None or request.obstacle:
        return None
    own, known = hub.companions(model)
    spec = ArtifactSpec(
        weights=request.digest_of_weights(),
        config="",
        architecture=model,
        task="",
        inputs=(),
        backend="",
        versions={},
        choice={"ready in": [*own, "", *known]},
    )
    found = store.find(spec.key)
    listed = _listed(found.facts) if found else None
    if listed is None:
        if is_offline_mode() or _is_local(request):
            return None
        try:
            ask = store.replace if found else store.obtain
            listed = _listed(ask(spec, lambda folder: _asked(request, own, known)).facts)
        except _Incomplete as error:
            listed = _listed(error.facts)
        except OSError as error:  # of the network, or of the store: what is built says so, where it matters
            logger.info("%s: %s", model, error)
    return Published(request=request, own=listed[0], known=listed[1]) if listed else None


class _Incomplete(Exception):  # noqa: N818 - no user sees it
    """Not every repository could be asked: what is known serves, and is not remembered."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        super().__init__()
        self.facts = facts


def _listed(facts: Mapping[str, Any]) -> tuple[tuple[Listing, ...], tuple[Listing, ...]] | None:
    """Give the listings in a record; `None` where it says something else."""
    try:
        own, known = (tuple(map(Listing.from_dict, facts[name])) for name in ("own", "known"))
    except (AttributeError, KeyError, TypeError):
        return None
    return (own, known) if own else None


def _is_local(request: Request) -> bool:
    """Tell whether the user forbade requests."""
    model_kwargs = request.arguments.get("model_kwargs") or {}
    return bool(request.arguments.get("local_files_only") or model_kwargs.get("local_files_only"))


def _asked(request: Request, own: Sequence[str], known: Sequence[str]) -> dict[str, Any]:
    """Ask for the listings.

    Raises:
        ConnectionError: The hub does not say what the model's own repository has.
        _Incomplete: Nor what some other has, and one day it may.
    """
    token, model = request.arguments.get("token"), str(request.model_id)
    try:
        first = hub.look(model, request.arguments.get("revision"), token)
    except Exception as error:
        raise ConnectionError(f"the hub does not say what it has ready ({_line(error)})") from error
    made_of, silent = {model, first.repo}, list[str]()
    facts = {
        "own": hub.plain([first, *_there(own, token, silent)]),
        "known": hub.plain(one for one in _there(known, token, silent) if made_of.intersection(one.made_of)),
    }
    if silent:
        logger.info("%s: %s cannot be asked now, and will be", model, ", ".join(silent))
        raise _Incomplete(facts)
    return facts


def _there(repos: Sequence[str], token: Any, silent: list[str]) -> list[Listing]:
    """Ask for the listings of repositories that there are; name those that gave no answer."""
    found = []
    for repo in repos:
        try:
            found.append(hub.look(repo, None, token))
        except Exception as error:  # most often: there is none
            logger.debug("%s: %s", repo, _line(error))
            if not _is_answer(error):
                silent.append(repo)
    return found


def _is_answer(error: Exception) -> bool:
    """Tell whether it is the hub's word that there is no such repository, and no failure that passes."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return isinstance(error, HFValidationError) or status in _NOT_THERE


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"
