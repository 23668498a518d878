"""Progress, for those who wait: bars for a model that is being built and for long lists; and lines in the log."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastpipe.errors import OptionError

logger = logging.getLogger("fastpipe")

VARIABLE = "FASTPIPE_PROGRESS"
_SAID = {"1": True, "true": True, "on": True, "yes": True, "0": False, "false": False, "off": False, "no": False}


def wanted(asked: bool | None) -> bool | None:
    """Tell whether bars are wanted: what was asked for, else what the environment says.

    Returns:
        `None` where neither says anything.

    Raises:
        OptionError: The environment variable is neither a yes nor a no.
    """
    said = os.environ.get(VARIABLE, "").strip().lower()
    if asked is not None or not said:
        return asked
    if said not in _SAID:
        raise OptionError(f"{VARIABLE}={said!r} is neither on nor off", remedy="Set it to 1 or 0.")
    return _SAID[said]


def bar(total: int | None, asked: bool | None) -> Any:
    """Give tqdm's bar over the inputs of a call; one that shows nothing unless it is wanted.

    Args:
        total: How many inputs there are; `None` where nobody knows.
        asked: What the caller asked for.
    """
    from tqdm.auto import tqdm

    return tqdm(total=total, unit="input", disable=not wanted(asked))


class Steps:
    """One line that says which step of a build runs; nothing where there is nothing to build.

    Args:
        title: What is being built.
        asked: Whether the line is shown; `None` for: on a terminal.
    """

    def __init__(self, title: str, asked: bool | None) -> None:
        self._title = title
        self._asked = asked
        self._bar: Any = None
        self._step = ""

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Show a step while it runs, and log it with the seconds it took; it may be part of another."""
        if self._bar is None:
            from tqdm.auto import tqdm

            shown = wanted(self._asked)
            # tqdm's own word for "on a terminal" is None.
            self._bar = tqdm(bar_format="{desc} [{elapsed}]", leave=False, disable=None if shown is None else not shown)
        before, self._step = self._step, f"{self._title}: {name}"
        self._bar.set_description_str(self._step)
        started, outcome = time.perf_counter(), "failed"
        logger.debug("%s: begins", self._step)
        try:
            yield
            outcome = "done"
        finally:
            logger.info("%s: %s in %.1f s", self._step, outcome, time.perf_counter() - started)
            self._step = before
            self._bar.set_description_str(before)

    def close(self) -> None:
        """Take the line away."""
        if self._bar is not None:
            self._bar.close()
