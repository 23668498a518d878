"""Who builds what and who uses what in a store: locks of files, which die with the process that holds them.

A process that has an artifact puts an empty file named after it into a folder of its own, and holds a lock in there for
as long as it lives. Whoever finds that lock free removes the folder: its owner is dead. No number of a process is
written down, which would say nothing on another host.

Lock files are opened, and removed, only by who holds the store's own lock: so nobody waits for one that others do not
see any more.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import shutil
import stat
import tempfile
import threading
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import filelock

logger = logging.getLogger("fastpipe")

FOLDER = "uses"
_ALIVE = "alive.lock"
_TEMPORARY = "fastpipe-store-"
_STORE = "store.lock"
_PATIENCE_S = 10.0  # for a mark: it is better to have none than to wait for a process that is stopped
_POLL_S = 0.05


@contextlib.contextmanager
def exclusively(root: Path, timeout_s: float = -1) -> Iterator[None]:
    """Hold the store's own lock, for instants: while locks are taken or removed, and folders put aside.

    Raises:
        OSError: The folder cannot be written to, or nobody gave the lock back for `timeout_s`.
    """
    with filelock.FileLock(root / _STORE, timeout=timeout_s, mode=permissions(root) & 0o666):
        yield


@contextlib.contextmanager
def building(root: Path, key: str) -> Iterator[None]:
    """Be the one process that builds an artifact; wait for another that does."""
    waits = False
    while (lock := _taken(root, key)) is None:
        if not waits:
            logger.info("another process is building %s: waiting for it", key)
        waits = True
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def idle(root: Path, key: str, *, forget: bool = False) -> Iterator[bool]:
    """Be the one who may remove what is there of an artifact; the caller holds the store's lock.

    Args:
        root: The store's folder.
        key: Of the artifact.
        forget: Whether the lock file goes, too.

    Yields:
        Whether nobody builds it.
    """
    lock = _lock_of(root, key)
    try:
        lock.acquire(timeout=0)
    except OSError:  # taken, or another user's
        yield False
        return
    try:
        yield True
        if forget:
            with contextlib.suppress(OSError):  # on Windows the next one removes it
                (root / f"{key}.lock").unlink()
    finally:
        lock.release()


def permissions(root: Path) -> int:
    """Tell what others may do in a store: who may read or write the folder may do so with all that is in it."""
    return root.stat().st_mode & 0o777 | 0o700


def make_private(folder: Path) -> None:
    """Make a folder, and those that it is to be in: what is made is for this user alone, what is there stays as it is.

    Raises:
        OSError: It cannot be made.
    """
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


class Lease:
    """A mark that says that this process uses an artifact, for as long as this object is there."""

    def __init__(self, process: _Process, key: str) -> None:
        weakref.finalize(self, process.release, key)


def hold(root: Path, key: str) -> Lease | None:
    """Mark an artifact as used by this process; `None` where nothing can be written."""
    try:
        with exclusively(root, _PATIENCE_S), _mutex:
            process = _processes.get(root)
            if process is None:
                process = _processes[root] = _Process(root)
            process.hold(key)
            return Lease(process, key)
    except OSError:
        return None


def used(root: Path) -> set[str]:
    """Give the keys that live processes use, and clear away what dead ones left; the caller holds the store's lock."""
    keys: set[str] = set()
    with _mutex:
        own = {process.folder for process in _processes.values()}
    for folder in (root / FOLDER).glob("*"):
        if folder in own or _is_held(folder / _ALIVE):  # or it is another user's, and nobody can tell
            keys.update(path.name for path in folder.glob("*") if path.name != _ALIVE)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return keys


def temporary_folder() -> Path:
    """Make a private folder that goes with this process; those of processes that were killed go now."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            ours = stat.S_ISDIR(status.st_mode) and status.st_uid == _user() and (folder / _ALIVE).is_file()
            if ours and not _is_held(folder / _ALIVE):
                shutil.rmtree(folder)
    folder = Path(tempfile.mkdtemp(prefix=_TEMPORARY))
    lock, owner = filelock.FileLock(folder / _ALIVE, mode=0o600, thread_local=False), os.getpid()
    lock.acquire(timeout=0)

    def end() -> None:
        if os.getpid() == owner:  # a forked process leaves it to its parent
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()

    atexit.register(end)
    return folder


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0  # Windows says 0 of every file


def _is_held(file: Path) -> bool:
    try:
        with filelock.FileLock(file, thread_local=False, timeout=0):
            return False
    except OSError:
        return True


class _Process:
    """What this process uses in one store."""

    def __init__(self, root: Path) -> None:
        self.folder = root / FOLDER / uuid.uuid4().hex
        for folder in (self.folder.parent, self.folder):
            folder.mkdir(exist_ok=True)
            with contextlib.suppress(OSError):  # another user made it
                folder.chmod(permissions(root))
        self._owner = os.getpid()
        self._keys: Counter[str] = Counter()
        self._lock = filelock.FileLock(self.folder / _ALIVE, mode=permissions(root) & 0o666, thread_local=False)
        self._lock.acquire(timeout=0)
        atexit.register(self.close)

    def hold(self, key: str) -> None:
        self._keys[key] += 1
        (self.folder / key).touch(mode=permissions(self.folder) & 0o666)

    def release(self, key: str) -> None:
        """Take a mark back; in a forked process it is the parent's."""
        if os.getpid() != self._owner:
            return
        with _mutex, contextlib.suppress(OSError):
            self._keys[key] -= 1
            if not self._keys[key]:
                (self.folder / key).unlink(missing_ok=True)

    def close(self) -> None:
        if os.getpid() == self._owner:
            shutil.rmtree(self.folder, ignore_errors=True)
            self._lock.release()


def _taken(root: Path, key: str) -> filelock.BaseFileLock | None:
    """Take the lock of who builds an artifact; `None` where another has it."""
    lock = _lock_of(root, key)
    with exclusively(root):
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            return None
    return lock


def _lock_of(root: Path, key: str) -> filelock.BaseFileLock:
    return filelock.FileLock(root / f"{key}.lock", mode=permissions(root) & 0o666)


_mutex = threading.RLock()
_processes: dict[Path, _Process] = {}
_of_parents: list[dict[Path, _Process]] = []


def _begin_anew() -> None:
    """Leave a forked process without marks: those that were copied are the parent's."""
    global _mutex, _processes
    _of_parents.append(_processes)  # to end them would end the parent's locks
    _mutex, _processes = threading.RLock(), {}


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
