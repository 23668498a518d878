"""Digests of large files, kept for as long as the file system says that a file has not been written to.

Keys are made of content. To read a gigabyte at each start only to find the content of last time is a waste, so that a
digest is kept beside what the file system knows of the file. `ctime` is in it: it moves with every write, and no
program can set it back as it can with dates. As in git's index, a file that changed only just now is not trusted, for
it could change again within the same tick of the clock.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from fastpipe.artifacts import locks, records
from fastpipe.artifacts.spec import digest_of, digest_of_file

FOLDER = "digests"
_LARGE = 1 << 20  # bytes; smaller files are read faster than a note about them
_OLD_S = 90 * 86400.0
_UNFINISHED_S = 3600.0
_SETTLED_NS = 2_000_000_000  # the coarsest clock of a file system in use ticks every two seconds


def digest_of_known_file(path: Path, memory: Path) -> str:
    """Hash the content of a file, or give the digest of when it was last hashed.

    Args:
        path: The file.
        memory: Folder for the digests; where it cannot be written to, nothing is kept.

    Returns:
        sha256, in 64 hexadecimal digits.

    Raises:
        OSError: The file cannot be read.
    """
    before, now = _identity(path), time.time_ns()
    # On Windows `ctime` is when a file was made, and says nothing of writes.
    if before["size"] < _LARGE or sys.platform == "win32":
        return digest_of_file(path)
    note = _note(path, memory)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        kept = records.read(note)
        if kept["file"] == before:
            return str(kept["sha256"])
    digest = digest_of_file(path)
    if now - max(before["mtime_ns"], before["ctime_ns"]) > _SETTLED_NS and _identity(path) == before:
        with contextlib.suppress(OSError):
            _write(note, json.dumps({"file": before, "sha256": digest}))
    return digest


def forget(path: Path, memory: Path) -> None:
    """Remove the digest of a file that is gone."""
    with contextlib.suppress(OSError):
        _note(path, memory).unlink(missing_ok=True)


def tidy(memory: Path, now: float) -> None:
    """Remove old digests, which are made again where a file is still there, and files that were never finished.

    Args:
        memory: Folder of the digests.
        now: Seconds since the epoch.
    """
    for note in memory.glob("*"):
        with contextlib.suppress(OSError):
            if now - note.stat().st_mtime > (_OLD_S if note.suffix == ".json" else _UNFINISHED_S):
                note.unlink()


def _note(path: Path, memory: Path) -> Path:
    return memory / f"{digest_of(str(path.resolve()))[:32]}.json"


def _identity(path: Path) -> dict[str, int]:
    status = path.stat()
    names = ("dev", "ino", "size", "mtime_ns", "ctime_ns")
    return {name: getattr(status, f"st_{name}") for name in names}


def _write(note: Path, text: str) -> None:
    locks.make_private(note.parent)
    with tempfile.NamedTemporaryFile("w", dir=note.parent, delete=False, encoding="utf-8") as file:
        try:
            file.write(text)
            file.close()
            os.replace(file.name, note)
        except OSError:
            os.unlink(file.name)
            raise
