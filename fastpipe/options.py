"""What a user can say to fastpipe beyond what `transformers.pipeline` takes."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fastpipe.errors import OptionError

PRECISIONS = ("auto", "fp32", "bf16", "fp16", "int8")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The keyword-only arguments that `fastpipe.pipeline` adds.

    Attributes:
        backend: Name of the engine, or "auto". Default: `FASTPIPE_BACKEND`, else "auto".
        precision: One of `PRECISIONS`, or `None` where the user left it to `dtype`. Default: `FASTPIPE_PRECISION`.
        calibration_data: Inputs that stand for the user's data.
        accuracy: Threshold of the accuracy check; `None` switches it off.
        cache_dir: Folder of the artifacts. Default: `FASTPIPE_CACHE`, else the user's cache folder.
    """

    backend: str = "auto"
    precision: str | None = None
    calibration_data: Iterable[Any] | None = None
    accuracy: float | None = None
    cache_dir: Path | None = None

    def __post_init__(self) -> None:
        if self.precision is not None and self.precision not in PRECISIONS:
            raise OptionError(f"precision={self.precision!r} does not exist", remedy=f"Use one of {PRECISIONS}.")
        for name in ("calibration_data", "accuracy"):
            if getattr(self, name) is not None:
                raise OptionError(
                    f"{name}= has no effect in this version: no recipe is calibrated or checked yet",
                    remedy="Leave it out.",
                )


NAMES = tuple(field.name for field in fields(Options))


def resolve(given: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Options:
    """Fill what the user left out from the environment.

    Args:
        given: Values by option name; `None` means "not said".
        environment: Environment variables.

    Raises:
        OptionError: A value does not exist.
    """
    values: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    for name, variable in (("backend", "BACKEND"), ("precision", "PRECISION"), ("cache_dir", "CACHE")):
        if environment.get(f"FASTPIPE_{variable}"):
            values.setdefault(name, environment[f"FASTPIPE_{variable}"])
    if "cache_dir" in values:
        values["cache_dir"] = Path(values["cache_dir"]).expanduser()
    return Options(**values)


def reject_misspelt(keywords: Iterable[str]) -> None:
    """Raise where a leftover keyword is nearly the name of a fastpipe option.

    Most pipelines hand unknown keywords on to their tokenizer, which would swallow a misspelt option in silence.

    Raises:
        OptionError: A keyword is within a typing error of an option.
    """
    for keyword in keywords:
        close = difflib.get_close_matches(keyword, NAMES, n=1, cutoff=0.75)
        if close:
            raise OptionError(f"pipeline() has no option {keyword!r}", remedy=f"Did you mean {close[0]!r}?")
