"""Which engines exist: a name and where its code is. Other packages add theirs as entry points."""

from __future__ import annotations

import importlib
import importlib.metadata
from functools import cache
from typing import Any

from fastpipe.errors import OptionError
from fastpipe.hardware import Hardware
from fastpipe.plan import Engine

ENTRY_POINTS = "fastpipe.backends"

# Fastest first on the CPUs measured (docs/architecture.md); torch last, as it takes everything.
BACKENDS = {
    "openvino": "fastpipe.backends.openvino:OpenVINOBackend",
    "onnxruntime": "fastpipe.backends.onnxruntime:ONNXRuntimeBackend",
    "torch": "fastpipe.backends.torch:TorchBackend",
}


@cache
def known() -> dict[str, str]:
    """Give every backend's import string by name, ours and those of entry points, torch last.

    Raises:
        OptionError: Two packages register one name.
    """
    known = {name: where for name, where in BACKENDS.items() if name != "torch"}
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        if point.name in BACKENDS or point.name in known:
            raise OptionError(
                f"the backend {point.name!r} is registered twice: {point.value}",
                remedy="Uninstall one of the packages that register it.",
            )
        known[point.name] = point.value
    return {**known, "torch": BACKENDS["torch"]}


@cache
def load(name: str) -> Any:
    """Import a backend by name and make it."""
    module, _, attribute = known()[name].partition(":")
    return getattr(importlib.import_module(module), attribute)()


def engines(hardware: Hardware) -> tuple[Engine, ...]:
    """Describe every backend for planning, without importing its library."""
    found = []
    for name in known():
        backend = load(name)
        version = next(filter(None, map(version_of, backend.libraries)), "")
        precisions = tuple(recipe.name for recipe in backend.recipes(hardware))
        found.append(Engine(name=name, version=version, remedy=backend.remedy, precisions=precisions))
    return tuple(found)


@cache
def version_of(distribution: str) -> str:
    """Give the version of an installed distribution; empty when it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""
