"""What this machine and installation have, what is wrong with them, and what would make pipelines faster."""

from __future__ import annotations

import importlib
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fastpipe import options, plan
from fastpipe._version import __version__
from fastpipe.artifacts import inventory
from fastpipe.artifacts.store import Store
from fastpipe.backends import generators, registry
from fastpipe.errors import FastpipeError
from fastpipe.hardware import Hardware, detect_hardware
from fastpipe.tasks import find_task

_LIBRARIES = ("transformers", "optimum", "optimum-intel", "optimum-onnx", "nncf", "onnx", "onnxscript")
_EXAMPLES = ("text-classification", "text-generation")
# Optimum's integrations, by which models that generate come to an engine, and the transformers that they allow.
_OPTIMUM, _FOR = "optimum-intel", "4."


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What was found.

    Attributes:
        hardware: The machine, in words.
        engines: Version by engine, fastest first; empty where it is not installed.
        libraries: Version by distribution, of those that build models; empty where it is not installed.
        chosen: Engine and threads that a model would run on, in words, by task.
        cache: Folder of built models.
        cache_bytes: What is in it.
        free_bytes: What its disk has left.
        faults: What is wrong, each in a sentence with a remedy.
        advice: What would make some models faster, each with the command.
    """

    hardware: str
    engines: dict[str, str]
    libraries: dict[str, str]
    chosen: dict[str, str]
    cache: str
    cache_bytes: int
    free_bytes: int
    faults: tuple[str, ...]
    advice: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain values that JSON can hold."""
        return {"fastpipe": __version__, **asdict(self)}

    def rows(self) -> list[tuple[str, str]]:
        """Give it as rows of a table: what, found."""
        absent = "not installed"
        return [
            ("fastpipe", __version__),
            ("hardware", self.hardware),
            *((f"engine {name}", version or absent) for name, version in self.engines.items()),
            *((f"library {name}", version or absent) for name, version in self.libraries.items()),
            *((task, f"would run on {engine}") for task, engine in self.chosen.items()),
            ("cache", f"{self.cache_bytes / 1e9:.2f} GB in {self.cache}, {self.free_bytes / 1e9:.0f} GB free"),
        ]


def diagnose() -> Diagnosis:
    """Look at the machine, import each engine, and try to write into the cache."""
    hardware = detect_hardware()
    engines = registry.engines(hardware)
    versions = {name: registry.version_of(name) for name in _LIBRARIES}
    ours = [engine.name for engine in engines if engine.version and engine.name in registry.BACKENDS]
    faults = [fault for name in ours if (fault := _fault_of_engine(name))]
    store, faults = _store(faults)
    return Diagnosis(
        hardware=str(hardware),
        engines={engine.name: engine.version for engine in engines},
        libraries=versions,
        chosen={task: _chosen(task, hardware, engines) for task in _EXAMPLES},
        cache=str(store.root),
        cache_bytes=sum(entry.size_bytes for entry in inventory.entries(store)),
        free_bytes=_free(store),
        faults=tuple(faults),
        advice=advice(engines, versions),
    )


def advice(engines: Sequence[plan.Engine], versions: dict[str, str]) -> tuple[str, ...]:
    """Say what could be installed for more. Pure.

    Args:
        engines: As planning sees them.
        versions: Version by distribution; empty where it is not installed.
    """
    said = [f"{engine.remedy}  # {engine.name}" for engine in engines if not engine.version]
    if not versions[_OPTIMUM]:
        where = (
            "" if versions["transformers"].startswith(_FOR) else "  # in an environment of its own: transformers 4.57"
        )
        said.append(f"pip install 'transformers-fastpipe[all]'{where or '  # models that generate'}")
    return tuple(said)


def _fault_of_engine(name: str) -> str:
    try:
        importlib.import_module(name)
    except Exception as error:  # a library that is not there, of another version, for another CPU
        return f"{name} is installed and cannot be imported ({type(error).__name__}: {error}). Install it again."
    return ""


def _store(faults: list[str]) -> tuple[Store, list[str]]:
    try:
        store = Store(options.resolve({}).cache_dir)
    except FastpipeError as error:
        return Store(), [*faults, str(error)]
    try:
        there = next(folder for folder in (store.root, *store.root.parents) if folder.exists())
        with tempfile.TemporaryFile(dir=there):  # where it is, or will be made
            pass
    except OSError as error:
        faults = [*faults, f"{store.root} cannot be written to ({error}). Set FASTPIPE_CACHE to a writable folder."]
    return store, faults


def _free(store: Store) -> int:
    try:
        there = next(folder for folder in (store.root, *store.root.parents) if folder.exists())
        return shutil.disk_usage(there).free
    except OSError:  # it is said among the faults
        return 0


def _chosen(name: str, hardware: Hardware, engines: Sequence[plan.Engine]) -> str:
    task = find_task(name, None)
    failed = {}
    if task and task.generates:  # what runs these models on an engine is a library beside it
        paths = {engine.name: generators.load(engine.name) for engine in engines if engine.name != "torch"}
        failed = {
            engine: "nothing brings models that generate to it"
            for engine, path in paths.items()
            if path is None or not registry.version_of(path.exporter)
        }
    chosen = plan.choose(name, task=task, obstacle="", hardware=hardware, engines=engines, device="cpu", failed=failed)
    return f"{chosen.backend}, {chosen.threads or hardware.cores} threads"
