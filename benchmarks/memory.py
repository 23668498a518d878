"""How much memory this process holds, and the most that it held."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def rss_bytes() -> int:
    """Give the resident memory of this process, mapped files included."""
    if found := _status("VmRSS"):
        return found
    import psutil  # type: ignore[import-untyped]

    return int(psutil.Process().memory_info().rss)


def peak_rss_bytes() -> int:
    """Give the largest resident memory of this process so far, or since `reset_peak`.

    Linux counts `VmHWM` from the start of the program; `ru_maxrss` can still hold the size of the process that forked
    this one, so that it is only read where there is nothing else.
    """
    if found := _status("VmHWM"):
        return found
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def reset_peak() -> bool:
    """Begin the peak anew from what is resident now.

    Returns:
        Whether the system can: Linux alone does.
    """
    try:
        Path("/proc/self/clear_refs").write_text("5", "utf-8")
    except OSError:
        return False
    return True


def held_bytes(value: Any) -> int:
    """Add up the sizes of a plain value and what is in it, equal strings once, and take next to no memory for that."""
    strings: dict[str, int] = {}

    def size(value: Any) -> int:
        if isinstance(value, str):
            strings[value] = sys.getsizeof(value)
            return 0
        inner = (*value.keys(), *value.values()) if isinstance(value, Mapping) else value
        return sys.getsizeof(value) + (sum(map(size, inner)) if isinstance(inner, (list, tuple)) else 0)

    return size(value) + sum(strings.values())


def _status(name: str) -> int:
    """Read one of Linux's own figures; 0 elsewhere."""
    try:
        found = re.search(rf"^{name}:\s*(\d+) kB", Path("/proc/self/status").read_text("utf-8"), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) * 1024 if found else 0
