"""Turn what a user gives as `calibration_data` into a bounded, seeded, digested subset of pipeline inputs."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from numbers import Number
from typing import Any

import numpy as np

from fastpipe.errors import OptionError

_NAME = "calibration_data"
_SPLIT_FROM = 16  # halves of fewer items say less than judging a recipe on what it was fitted to
_JSON_LINES = (".jsonl", ".ndjson", ".json")
# The inputs an object in a JSON lines file may hold, fullest first.
_OBJECTS = (("text", "text_pair"), ("question", "context"), ("text",))
_KEYS = [name for names in _OBJECTS[:2] for name in names]


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Inputs that stand for the user's data; equal where their content is.

    Attributes:
        items: Pipeline inputs, in the order of the source.
        digest: sha256 of their content, hexadecimal.
    """

    items: tuple[Any, ...] = field(repr=False, compare=False)  # arrays have no single truth value to compare by
    digest: str

    def parts(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Split into what to calibrate with and what to check with.

        Returns:
            Alternate items, so that a recipe is not judged on what it was fitted to; of fewer than 16, all for both.
        """
        if len(self.items) < _SPLIT_FROM:
            return self.items, self.items
        return self.items[::2], self.items[1::2]


def read(data: Any, *, limit: int = 256, most: int = 20_000, seed: int = 0) -> Calibration:
    """Draw the inputs to calibrate with.

    Which positions are drawn depends on `seed` and on how many inputs there are, not on the form they come in. A source
    that can be indexed is asked for those alone: reading an image or a recording may mean decoding it.

    Args:
        data: Pipeline inputs: an iterable or a map-style dataset of them, or the path of a UTF-8 file with one a line.
        limit: Upper bound of inputs to keep, at least 1; never are more of them in memory.
        most: Upper bound of inputs to read, at least 1; the source's first.
        seed: Decides which are kept.

    Raises:
        OptionError: `data` is no collection of inputs, has none, or holds something that is no input.
    """
    source = _source(data)
    if isinstance(source, range):  # the positions of a source that can be indexed
        kept = [(place, data[place]) for place, _ in _sample(source, limit, most, seed)]
        items = tuple(_checked(place, item) for place, item in kept)
    else:
        checked = (_checked(place, item) for place, item in enumerate(source))
        items = tuple(item for _, item in _sample(checked, limit, most, seed))
    if not items:
        if isinstance(data, (str, os.PathLike)):
            raise OptionError(f"{_short(data)} is an empty file", remedy="Write one input a line.")
        raise OptionError(f"{_NAME} is empty", remedy="Pass inputs; a generator that was read before has none left.")
    return Calibration(items=items, digest=_digest(items).hex())


def _source(data: Any) -> Iterable[Any]:
    """Give the inputs in their order, or the range of their positions where they can be had by position."""
    kind = type(data)
    if isinstance(data, (str, os.PathLike)):
        path = os.path.expanduser(os.fspath(data))
        if not os.path.isfile(path):  # unlike Path.is_file, also False for a text that is too long for a name
            raise OptionError(f"{_short(data)} is not a file", remedy="For a single text pass a list with it.")
        return _lines(path)
    one = isinstance(data, (type, Mapping, bytes, bytearray, memoryview)) or getattr(data, "ndim", None) == 0
    iterates = hasattr(kind, "__iter__")
    indexes = hasattr(kind, "__len__") and hasattr(kind, "__getitem__")
    if one or not (iterates or indexes):
        what = f"the class {data.__name__}" if isinstance(data, type) else f"one {kind.__name__}"
        remedy = "Pass a list of inputs, or one column of a dataset: data['train']['text']."
        raise OptionError(f"{_NAME} is {what}, not a collection of inputs", remedy=remedy)
    if hasattr(kind, "column_names") or kind.__name__ == "DataFrame":
        raise OptionError(f"{_NAME} is a whole {kind.__name__}", remedy="Pass one column: data['text'].")
    if isinstance(data, (set, frozenset)):  # whose order differs from run to run
        return sorted(data, key=_digest)
    if not iterates or (isinstance(data, Sequence) and not isinstance(data, (list, tuple))):
        return range(len(data))
    return data  # type: ignore[no-any-return]


def _lines(path: str) -> Iterator[Any]:
    is_json = path.lower().endswith(_JSON_LINES)
    try:
        with open(path, encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _parse(line, f"{_short(path)}, line {number}") if is_json else line.rstrip("\n")
    except UnicodeDecodeError as exc:
        raise OptionError(f"{_short(path)} is not UTF-8 text", remedy="Save it as UTF-8, or pass a list.") from exc


def _parse(line: str, where: str) -> Any:
    try:
        value = json.loads(line)
    except ValueError as exc:
        raise OptionError(f"{where}: not valid JSON", remedy="Write one string or object a line.") from exc
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        known = {name: value[name] for name in _KEYS if value.get(name) is not None}
        for names in _OBJECTS:
            if known.keys() >= set(names) and all(isinstance(text, str) for text in known.values()):
                return {name: known[name] for name in names} if len(names) > 1 else known["text"]
    found = f"an object with {sorted(value)}" if isinstance(value, dict) else f"a JSON {type(value).__name__}"
    wanted = "a string, or an object with text, text and text_pair, or question and context, all strings"
    raise OptionError(f"{where}: {found} is no input", remedy=f"Write {wanted}.")


def _checked(place: int, item: Any) -> Any:
    scalar = isinstance(item, Number) or getattr(item, "ndim", None) == 0  # numpy's strings also have 0 dimensions
    missing = item is None or type(item).__name__ in ("NAType", "NaTType")  # pandas' own, which may not be installed
    if missing or (scalar and not isinstance(item, (str, bytes))):
        remedy = "Leave out missing values and labels; a single array of audio goes into a list."
        raise OptionError(f"{_NAME}, item {place}: {item!r} is no input of a pipeline", remedy=remedy)
    return item


def _sample(source: Iterable[Any], limit: int, most: int, seed: int) -> list[tuple[int, Any]]:
    """Keep a uniform sample in its order (Vitter 1985, "Random Sampling with a Reservoir", algorithm R)."""
    generator = random.Random(seed)
    kept: list[tuple[int, Any]] = []
    for place, item in enumerate(islice(source, most)):
        if place < limit:
            kept.append((place, item))
        else:
            slot = int(generator.random() * (place + 1))  # random() alone is the same in every version of Python
            if slot < limit:
                kept[slot] = (place, item)
    return sorted(kept, key=lambda pair: pair[0])


def _short(data: Any) -> str:
    text = str(data)
    return f"{_NAME}={text if len(text) <= 100 else text[:99] + '…'!r}"


def _digest(value: Any) -> bytes:
    """Hash content: sha256 of a tag of its type and of its bytes, or of its parts' digests, whose length is fixed."""
    tag = type(value).__name__
    parts: list[bytes]
    if isinstance(value, str):
        tag, parts = "str", [value.encode(errors="surrogatepass")]
    elif isinstance(value, (bytes, bytearray)):
        tag, parts = "bytes", [bytes(value)]
    elif isinstance(value, Mapping):
        tag, parts = "dict", sorted(_digest(key) + _digest(part) for key, part in value.items())
    elif isinstance(value, (list, tuple)):
        tag, parts = "list" if isinstance(value, list) else "tuple", [_digest(part) for part in value]
    elif isinstance(value, np.ndarray):
        tag = f"array {value.dtype} {value.shape}"
        parts = [_digest(value.tolist()) if value.dtype.hasobject else value.tobytes()]  # objects' bytes are addresses
    elif hasattr(value, "detach") and hasattr(value, "is_floating_point"):  # a torch tensor; numpy has no bfloat16
        exact = value.double() if value.is_floating_point() else value
        tag, parts = str(value.dtype), [_digest(exact.numpy(force=True))]
    elif all(hasattr(value, name) for name in ("mode", "size", "getpalette")):  # a PIL image
        tag, parts = f"image {value.mode} {value.size}", [_digest(value.getpalette()), value.tobytes()]
    elif hasattr(value, "__array__"):  # a table or another library's array, whose repr leaves out its middle
        parts = [_digest([str(name) for name in getattr(value, "columns", ())]), _digest(np.asarray(value))]
    else:
        parts = [repr(value).encode(errors="surrogatepass")]
    return hashlib.sha256(b"\0".join([tag.encode(), *parts])).digest()
