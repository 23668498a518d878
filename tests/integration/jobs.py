"""Run a function in a process of its own.

The processes come from a server that has imported the heavy libraries once, so that each costs a fork and no import.
What they print to stderr, at the level of file descriptors, comes back with the result.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["fastpipe.factory", "openvino", "onnxruntime", "tests.integration.jobs"])


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a job returned, and what it left on stderr."""

    value: Any
    stderr: str


class Job:
    """A running function. It must be importable from a module that imports no test settings."""

    def __init__(self, function: Callable[..., Any], *args: Any, environment: dict[str, str] | None = None) -> None:
        handle, self._stderr = tempfile.mkstemp(prefix="fastpipe-job-")
        os.close(handle)
        self._results, theirs = _CONTEXT.Pipe(duplex=False)
        settings = {"FASTPIPE_CACHE": os.environ["FASTPIPE_CACHE"], **(environment or {})}
        self.process: BaseProcess = _CONTEXT.Process(
            target=_work, args=(theirs, self._stderr, settings, function, args), daemon=True
        )
        self.process.start()
        theirs.close()

    def result(self, timeout_s: float = 120.0) -> Outcome:
        """Wait for the function; an error there is an error here."""
        try:
            if not self._results.poll(timeout_s):
                raise TimeoutError(f"the job did nothing for {timeout_s} s")
            try:
                failed, value = self._results.recv()
            except EOFError:
                raise RuntimeError(f"the job died: {Path(self._stderr).read_text()}") from None
            if failed:
                raise RuntimeError(f"the job failed:\n{value}")
            return Outcome(value=value, stderr=Path(self._stderr).read_text())
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process at once, as the kernel does it to one that takes too much memory."""
        self.process.kill()
        self.process.join(10)
        with contextlib.suppress(FileNotFoundError):
            self._stderr and os.unlink(self._stderr)


def in_process(function: Callable[..., Any], *args: Any, environment: dict[str, str] | None = None) -> Outcome:
    """Run one job and wait for it."""
    return Job(function, *args, environment=environment).result()


def _work(
    results: Connection, stderr: str, settings: dict[str, str], function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    os.dup2(os.open(stderr, os.O_WRONLY | os.O_APPEND), 2)
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", **settings)
    import torch

    torch.set_num_threads(1)
    try:
        value = function(*args)
        sys.stderr.flush()
        results.send((False, value))
    except BaseException:
        results.send((True, traceback.format_exc()))


def classify(model: str, backend: str, texts: list[str]) -> tuple[list[Any], list[str]]:
    """Build or find a text classifier; give its results, and the warnings on the way."""
    import fastpipe

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        pipe = fastpipe.pipeline("text-classification", model=model, backend=backend)
    return pipe(texts), [str(w.message) for w in said if issubclass(w.category, fastpipe.errors.FastpipeWarning)]


def classify_as_nobody(model: str, backend: str, texts: list[str]) -> tuple[list[Any], list[str]]:
    """The same without a home and without the right to write where it matters; root may write anywhere."""
    os.environ.pop("HOME", None)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    return classify(model, backend, texts)


def classify_with_temporary_files_in(
    folder: str, model: str, backend: str, texts: list[str]
) -> tuple[list[Any], list[str]]:
    """The same with another folder for temporary files."""
    tempfile.tempdir = folder
    return classify(model, backend, texts)


def build_as_nobody(model: str, backend: str, texts: list[str]) -> tuple[list[Any], list[str]]:
    """The same, and build; nobody may not be allowed to import what builds, so that it is imported before."""
    with tempfile.TemporaryDirectory() as elsewhere:
        cache, os.environ["FASTPIPE_CACHE"] = os.environ.get("FASTPIPE_CACHE"), elsewhere
        classify(model, backend, texts)
        del os.environ["FASTPIPE_CACHE"]
        if cache is not None:
            os.environ["FASTPIPE_CACHE"] = cache
        tempfile.tempdir = None
    return classify_as_nobody(model, backend, texts)


def classify_homeless(model: str, backend: str, texts: list[str]) -> tuple[list[Any], list[str]]:
    """The same without anything that says where a cache could be."""
    for name in ("FASTPIPE_CACHE", "XDG_CACHE_HOME"):
        os.environ.pop(name, None)
    return build_as_nobody(model, backend, texts)


def attempt(model: str, backend: str, texts: list[str]) -> tuple[str, Any]:
    """The same; give the engine that runs with the results, or the kind of an error with what it says."""
    import fastpipe

    try:
        pipe = fastpipe.pipeline("text-classification", model=model, backend=backend)
        return pipe.plan.backend, pipe(texts)
    except OSError as error:
        return type(error).__name__, str(error)


_BUILDERS = ("optimum", "onnx", "onnxscript", "nncf")


def classify_in_a_bare_image(model: str, backend: str, texts: list[str]) -> tuple[list[Any], list[str], list[str]]:
    """Classify where nothing that builds is installed, and there is no network.

    Returns:
        Results, warnings, and what was tried to be imported or reached.
    """
    from fastpipe.backends import registry

    tried: list[str] = []

    class Absent:
        """Nobody finds a builder."""

        @staticmethod
        def find_spec(name: str, *args: Any) -> None:
            if name.partition(".")[0] in _BUILDERS:
                tried.append(name)
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    found = [name for name in sys.modules if name.partition(".")[0] in _BUILDERS]
    assert not found, f"imported before: {found}"
    sys.meta_path.insert(0, Absent)  # type: ignore[arg-type]
    installed = registry.version_of
    gone = ("optimum", "optimum-intel", "optimum-onnx", "onnx", "onnxscript", "nncf")
    registry.version_of = lambda name: "" if name in gone else installed(name)  # type: ignore[assignment]

    def refuse(*args: Any, **kwargs: Any) -> None:
        tried.append(repr(args))
        raise OSError("there is no network here")

    socket.getaddrinfo = socket.socket.connect = refuse  # type: ignore[assignment,method-assign]
    results, said = classify(model, backend, texts)
    return results, said, tried


def classify_without_a_network(
    models: list[str], unknown: str, backend: str, texts: list[str]
) -> tuple[list[Any], str, list[str]]:
    """Classify with each of some models, then ask for one that is not there.

    Returns:
        Results by model, the error about the unknown one, and the addresses that anybody tried to reach.
    """
    tried: list[str] = []

    def refuse(*args: Any, **kwargs: Any) -> None:
        tried.append(repr(args))
        raise OSError("there is no network here")

    for name in ("create_connection", "getaddrinfo", "gethostbyname"):
        setattr(socket, name, refuse)
    socket.socket.connect = socket.socket.connect_ex = refuse  # type: ignore[method-assign,assignment]
    results = [classify(model, backend, texts)[0] for model in models]
    try:
        classify(unknown, backend, texts)
    except OSError as error:
        return results, str(error), tried
    raise AssertionError(f"{unknown} was found")


@contextlib.contextmanager
def deadline(process_id: int, timeout_s: int) -> Iterator[None]:
    """Kill a forked child that does not answer in time, so that a deadlock there is an error here."""

    def kill(*_: Any) -> None:
        os.kill(process_id, signal.SIGKILL)

    before = signal.signal(signal.SIGALRM, kill)
    signal.alarm(timeout_s)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
