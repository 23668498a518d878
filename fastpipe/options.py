"""What a user can say to fastpipe beyond what `transformers.pipeline` takes."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fastpipe.errors import OptionError

_VARIABLES = {"backend": "FASTPIPE_BACKEND", "precision": "FASTPIPE_PRECISION", "cache_dir": "FASTPIPE_CACHE"}
PRECISIONS = ("auto", "fp32", "bf16", "fp16", "int8", "int4", "int8-weights", "int8-g128", "int8-token", "int8-static")


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """What a recipe must reach beside fp32 to be used; `None` leaves a figure out.

    How texts are compared depends on the task: `fastpipe.precision.accuracy` has the measures.

    Attributes:
        agreement: The least mean agreement over the texts, from 0 to 1.
        worst: The least agreement of any single text, from 0 to 1.
        drift: The most that any score may change, in the score's own unit.
        instability: The most that any score may change between a text alone and the same text in a batch.
    """

    agreement: float | None = None
    worst: float | None = None
    drift: float | None = None
    instability: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            share = field.name in ("agreement", "worst")
            if value is not None and not (_is_number(value) and 0 <= value <= (1 if share else float("inf"))):
                raise OptionError(
                    f"accuracy: {field.name}={value!r} is not a number {'from 0 to 1' if share else 'of at least 0'}",
                    remedy="Give a number, or None to leave this figure out.",
                )


@dataclass(frozen=True, kw_only=True)
class Options:
    """The keyword-only arguments that `fastpipe.pipeline` adds.

    Attributes:
        backend: Name of the engine, or "auto". Default: `FASTPIPE_BACKEND`, else "auto".
        precision: One of `PRECISIONS`, or `None` where the user left it to `dtype`. Default: `FASTPIPE_PRECISION`.
        calibration_data: Inputs that stand for the user's data: see `fastpipe.precision.calibration.read`.
        accuracy: "auto" for the task's own thresholds, an `Accuracy` or a mapping of its fields, a number for the
            least agreement alone, or `None` to check nothing.
        cache_dir: Folder of the artifacts. Default: `FASTPIPE_CACHE`, else the user's cache folder.
        threads: CPU threads of an engine. Default: `FASTPIPE_THREADS`, else `OMP_NUM_THREADS`, else all usable cores.
        progress_bar: Whether the steps of a build are shown. Default: `FASTPIPE_PROGRESS`, else on a terminal.
    """

    backend: str = "auto"
    precision: str | None = None
    calibration_data: Any = None
    accuracy: Accuracy | float | str | None = "auto"
    cache_dir: Path | None = None
    threads: int | None = None
    progress_bar: bool | None = None

    def __post_init__(self) -> None:
        if self.precision is not None and self.precision not in PRECISIONS:
            raise OptionError(f"precision={self.precision!r} does not exist", remedy=f"Use one of {PRECISIONS}.")
        counts = isinstance(self.threads, int) and not isinstance(self.threads, bool) and self.threads > 0
        if self.threads is not None and not counts:
            raise OptionError(f"threads={self.threads!r} is no number of threads", remedy="Use 1 or more, or none.")
        if not (self.accuracy is None or self.accuracy == "auto" or isinstance(self.accuracy, Accuracy)) and not (
            _is_number(self.accuracy) and 0 <= float(self.accuracy) <= 1
        ):
            raise OptionError(
                f"accuracy={self.accuracy!r} is no threshold",
                remedy="Use 'auto', a number from 0 to 1, a fastpipe.Accuracy, or None to check nothing.",
            )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


NAMES = tuple(field.name for field in fields(Options))


def resolve(given: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Options:
    """Fill what the user left out from the environment.

    Args:
        given: Values by option name; `None` means "not said", but for `accuracy`.
        environment: Environment variables.

    Raises:
        OptionError: A value does not exist.
    """
    values: dict[str, Any] = {name: value for name, value in given.items() if value is not None or name == "accuracy"}
    for name, variable in _VARIABLES.items():
        if environment.get(variable):
            values.setdefault(name, environment[variable])
    cache_limit(environment)  # what cannot be read is said before anything is built
    if "threads" not in values and (said := _threads(environment)):
        values["threads"] = said
    if "cache_dir" in values:
        values["cache_dir"] = Path(values["cache_dir"]).expanduser()
    if isinstance(values.get("accuracy"), Mapping):
        there = [field.name for field in fields(Accuracy)]
        unknown = [name for name in values["accuracy"] if name not in there]
        if unknown:
            raise OptionError(f"accuracy: there is no {unknown[0]!r}", remedy=f"Its fields are {', '.join(there)}.")
        values["accuracy"] = Accuracy(**values["accuracy"])
    return Options(**values)


def _threads(environment: Mapping[str, str]) -> int | None:
    """Read a number of threads from the environment."""
    ours = environment.get("FASTPIPE_THREADS", "").strip()
    if ours and not (ours.isdecimal() and int(ours)):
        raise OptionError(f"FASTPIPE_THREADS={ours!r} is no number of threads", remedy="Set it to 1 or more.")
    # OpenMP's has a number for each level of nesting; what it cannot use it ignores, and so do we.
    theirs = environment.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(ours) if ours else int(theirs) if theirs.isdecimal() and int(theirs) else None


def cache_limit(environment: Mapping[str, str] = os.environ) -> int | None:
    """Read how much the cache may hold, in bytes: `FASTPIPE_CACHE_SIZE`, such as "20GB"; `None` for no limit.

    Raises:
        OptionError: It is no size.
    """
    said = environment.get("FASTPIPE_CACHE_SIZE", "").strip()
    return size_of(said, "FASTPIPE_CACHE_SIZE") if said else None


def size_of(said: str, name: str) -> int:
    """Read a size in bytes, such as "20GB", "1.5 GiB" or "500000".

    Args:
        said: The size.
        name: What it is the size of, for the error.

    Raises:
        OptionError: It is no size.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b)?", said.strip(), re.IGNORECASE)
    if not found:
        raise OptionError(f"{name}={said!r} is no size", remedy="Use one such as 20GB, 500MB or 1.5TiB.")
    number, unit, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** (" kmgt".index((unit or " ").lower())))


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
