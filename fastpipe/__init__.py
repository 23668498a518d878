"""A drop-in `transformers.pipeline` that is fast: quantized engines, sorted batches, the same answers.

    import fastpipe

    classify = fastpipe.pipeline("text-classification", model="cardiffnlp/twitter-roberta-base-sentiment-latest")
    classify(["one text", "another"])
    print(classify.plan)

Importing this loads neither torch nor transformers.
"""

from __future__ import annotations

import importlib
from typing import Any

from fastpipe._version import __version__

_HOMES = {
    "Accuracy": "fastpipe.options",
    "Hardware": "fastpipe.hardware",
    "Plan": "fastpipe.plan",
    "Report": "fastpipe.precision.report",
    "TranscriptUpdate": "fastpipe.live.records",
    "Tuning": "fastpipe.contest",
    "Verification": "fastpipe.verification",
    "detect_hardware": "fastpipe.hardware",
    "errors": "",
    "pipeline": "fastpipe.factory",
    "stream_transcribe": "fastpipe.live.stream",
    "tune": "fastpipe.tuning",
    "verify": "fastpipe.verification",
}

__all__ = [
    "Accuracy",
    "Hardware",
    "Plan",
    "Report",
    "TranscriptUpdate",
    "Tuning",
    "Verification",
    "__version__",
    "detect_hardware",
    "errors",
    "pipeline",
    "stream_transcribe",
    "tune",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fastpipe' has no attribute {name!r}")
    home = _HOMES[name]
    value = getattr(importlib.import_module(home), name) if home else importlib.import_module(f"fastpipe.{name}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
