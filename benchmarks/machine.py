"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fastpipe.hardware import Hardware

# Above this load per core when a run starts, something else is running.
BUSY = 0.5
_LIBRARIES = (
    "transformers-fastpipe",
    "transformers",
    "tokenizers",
    "torch",
    "numpy",
    "openvino",
    "nncf",
    "onnxruntime",
    "onnx",
    "optimum",
    "optimum-intel",
    "optimum-onnx",
    "sentence-transformers",
    "ctranslate2",
    "faster-whisper",
    "openvino-genai",
    "xllamacpp",
)


def describe(hardware: Hardware) -> dict[str, Any]:
    """Give the machine and the libraries as plain values."""
    return {
        "cpu": hardware.cpu_model,
        "isa": list(hardware.isa),
        "flags": cpu_flags(),
        "cores": hardware.cores,
        "memory_bytes": hardware.memory_bytes,
        "load_average_at_start": load_average(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {library: found for library in _LIBRARIES if (found := _version(library))},
    }


def busy(hardware: Hardware) -> str:
    """Say that the machine is busy; nothing when it is not."""
    load = load_average()[0]
    if load <= BUSY * hardware.cores:
        return ""
    return (
        f"The machine is busy: load average {load:.1f} on {hardware.cores} cores at the start. "
        "These figures are not to be quoted."
    )


def load_average() -> tuple[float, float, float]:
    """Give the load averages of 1, 5 and 15 minutes; zeros where the system keeps none."""
    return os.getloadavg() if hasattr(os, "getloadavg") else (0.0, 0.0, 0.0)


def cpu_flags() -> list[str]:
    """Give all flags of the CPU as Linux lists them."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return []
    found = re.search(r"^(?:flags|Features)\s*:\s*(.*)$", text, re.MULTILINE)
    return found[1].split() if found else []


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        if library == "transformers-fastpipe":
            from fastpipe import __version__

            return __version__
        return ""
