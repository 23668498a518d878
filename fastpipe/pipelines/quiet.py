"""Lines that transformers logs and that are wrong or said better elsewhere while a fast pipeline works."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from functools import cache

# By logger: how the lines begin.
_SAID_BETTER: dict[str, tuple[str, ...]] = {
    # `pipe.plan` says the device; a model on an engine is not of the classes that transformers lists.
    "transformers.pipelines.base": (
        "Device set to use",
        "The model 'EngineModel' is not",
        "The model 'GeneratorModel' is not",
    ),
    # InputTooLongError says it, with the limit that counts.
    "transformers.tokenization_utils_base": ("Token indices sequence length is longer than",),
}


class _InThisThread(threading.local):
    depth = 0


_working = _InThisThread()


class _SaidBetter(logging.Filter):
    """Drops those lines of its logger, in threads where a fast pipeline is at work; every other line passes."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _working.depth or not record.getMessage().startswith(_SAID_BETTER[record.name])


@cache
def _install() -> None:
    for name in _SAID_BETTER:
        logging.getLogger(name).addFilter(_SaidBetter())


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Drop those lines for as long as this lasts, in this thread."""
    _install()
    _working.depth += 1
    try:
        yield
    finally:
        _working.depth -= 1
