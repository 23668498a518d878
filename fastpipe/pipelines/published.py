"""What the hub has ready for a model: asked once, remembered in the store, so that a warm cache asks nothing."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.utils.hub import is_offline_mode

from fastpipe.artifacts import hub, share
from fastpipe.artifacts.hub import Listing, Ready
from fastpipe.artifacts.spec import ArtifactSpec, digest_of_file
from fastpipe.artifacts.store import Store
from fastpipe.errors import FastpipeError, FetchError
from fastpipe.pipelines.request import Request

logger = logging.getLogger("fastpipe")


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
            FetchError: It did not come whole.
            UnsafeFileError: It may not be handed to an engine.
        """
        place = folder / "fetched"
        place.mkdir()
        try:
            adopt(hub.fetch(ready, place, **self._reaching), folder)
        except (MemoryError, FastpipeError):
            raise
        except Exception as error:  # what the hub's clients raise changes with their versions
            raise FetchError(f"{ready.origin} cannot be fetched ({_line(error)})") from error
        finally:
            shutil.rmtree(place)

    def shared(self) -> share.Shared | None:
        """Find what fastpipe itself saved there for these weights and this task, and bring it here."""
        weights = hub.digest_of_weights(self.own[0], self._digest) if not self._loading else ""
        config = self.request.file(share.CONFIG)
        for listing in self.own if weights and config else ():
            names = [file.name for file in listing.files if file.name.startswith(f"{share.FOLDER}/")]
            choice = f"{share.FOLDER}/{share.CHOICE}"
            if choice not in names or config is None:
                continue
            try:
                place = self._brought(listing, choice).parent
                found = share.find(place, config, lambda: weights, self.request.task_name)
                for name in names if found else ():
                    self._brought(listing, name)
            except Exception as error:
                logger.info("the ready files of %s are not used: %s", listing.repo, _line(error))
                continue
            if found:
                return found
        return None

    def _brought(self, listing: Listing, name: str) -> Path:
        return hub.download(listing.repo, name, listing.commit, **self._reaching)

    def _digest(self, name: str) -> str:
        path = self.request.file(name)
        return digest_of_file(path) if path else ""

    @property
    def _reaching(self) -> dict[str, Any]:
        """Give what it takes to fetch files as the model's own are fetched."""
        return {"token": self.request.arguments.get("token"), "cache_dir": self._model_kwargs.get("cache_dir")}

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
    if found is None:
        local = request.arguments.get("local_files_only") or (request.arguments.get("model_kwargs") or {}).get(
            "local_files_only"
        )
        if is_offline_mode() or local:
            return None
        try:
            found = store.obtain(spec, lambda folder: _asked(request, own, known))
        except ConnectionError as error:
            logger.info("%s: %s", model, error)
            return None
    listings = [[Listing.from_dict(values) for values in found.facts[name]] for name in ("own", "known")]
    return Published(request=request, own=tuple(listings[0]), known=tuple(listings[1]))


def _asked(request: Request, own: Sequence[str], known: Sequence[str]) -> dict[str, Any]:
    """Ask for the listings.

    Raises:
        ConnectionError: The hub does not say what the model's own repository has.
    """
    token, model = request.arguments.get("token"), str(request.model_id)
    try:
        first = hub.look(model, request.arguments.get("revision"), token)
    except Exception as error:
        raise ConnectionError(f"the hub does not say what it has ready ({_line(error)})") from error
    made_of = {model, first.repo}
    return {
        "own": hub.plain([first, *_there(own, token)]),
        "known": hub.plain(one for one in _there(known, token) if made_of.intersection(one.made_of)),
    }


def _there(repos: Sequence[str], token: Any) -> list[Listing]:
    found = []
    for repo in repos:
        try:
            found.append(hub.look(repo, None, token))
        except Exception as error:  # most often: there is none
            logger.debug("%s: %s", repo, _line(error))
    return found


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"
