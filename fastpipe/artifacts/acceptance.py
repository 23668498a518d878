"""Whether files that came from elsewhere may be handed to an engine: looked through here, and loaded nowhere.

A graph can name other files, and an engine opens them: weights beside it, libraries with operators of their own. So
what is accepted is a list of what graphs of fastpipe hold, and all else is refused.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

from fastpipe.errors import UnsafeFileError

# Graphs, their weights, and records. What engines compiled is machine code: each machine makes its own.
_KINDS = {".onnx", ".xml", ".bin", ".data", ".json"}
_COMPILED = "compiled."
_ONNX_DOMAINS = {"", "ai.onnx", "ai.onnx.ml", "com.microsoft"}
_OPSET = re.compile(r"opset\d{1,2}")
_REMEDY = "Leave these files out; fastpipe builds its own from the weights."


def check(folder: Path) -> None:
    """Look through a folder of graphs that this program has not written.

    Args:
        folder: With all files that the graphs may read.

    Raises:
        UnsafeFileError: A file is of a kind that is not accepted, leads out of the folder, cannot be read, or asks for
            something outside: weights elsewhere, or operators that no engine brings along.
    """
    root = folder.resolve()
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not _inside(path, root):
            raise _unsafe(name, "leads out of its folder")
        if path.is_dir():
            continue
        if not path.is_file() or path.suffix not in _KINDS or path.name.startswith(_COMPILED):
            raise _unsafe(name, "is no graph, no weights and no record")
        look = _LOOKS.get(path.suffix)
        if look:
            for fault in look(path, root):
                raise _unsafe(name, fault)


def _unsafe(name: str, fault: str) -> UnsafeFileError:
    return UnsafeFileError(f"{name!r} {fault}", remedy=_REMEDY)


def _inside(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root)


def _faults_of_weights(root: Path, file: Path, offset: int, size: int) -> Iterator[str]:
    """Tell what is wrong with a stretch of a file that a graph reads; a size below 0 stands for the rest of it."""
    if not _inside(file, root) or not file.is_file():
        yield "reads weights that are not in its folder"
        return
    there = file.stat().st_size
    if offset < 0 or offset > there or (size >= 0 and offset + size > there):
        yield f"reads past the end of {file.name}"


def _faults_of_onnx(path: Path, root: Path) -> Iterator[str]:
    if find_spec("onnx") is None:
        yield "cannot be looked through without onnx, which is not installed"
        return
    try:
        model: Any = importlib.import_module("onnx").load(path, load_external_data=False)
    except Exception as error:  # of protobuf and of onnx
        yield f"cannot be read: {type(error).__name__}"
        return
    known = _ONNX_DOMAINS | {function.domain for function in model.functions}
    for message in _messages(model):
        kind = message.DESCRIPTOR.name
        if kind == "NodeProto" and message.domain not in known:
            yield f"has the operator {message.op_type!r} of the domain {message.domain!r}, which no engine brings along"
        if kind == "TensorProto" and (message.external_data or message.data_location):
            yield from _faults_of_external(message, path, root)


def _faults_of_external(tensor: Any, path: Path, root: Path) -> Iterator[str]:
    told: Mapping[str, str] = {entry.key: entry.value for entry in tensor.external_data}
    location = told.get("location", "")
    if not location or os.path.isabs(location) or "\\" in location or "\0" in location:
        yield f"reads weights from {location!r}"
        return
    try:
        offset, size = int(told.get("offset", 0)), int(told.get("length", -1))
    except ValueError:
        yield "reads weights from no place in a file"
        return
    yield from _faults_of_weights(root, path.parent / location, offset, size)


def _messages(message: Any) -> Iterator[Any]:
    """Give a protobuf message and all that are in it, however deep."""
    waiting = [message]
    while waiting:
        here = waiting.pop()
        yield here
        for field, value in here.ListFields():
            if field.message_type is not None:
                waiting += [value] if hasattr(value, "DESCRIPTOR") else value


def _faults_of_ir(path: Path, root: Path) -> Iterator[str]:
    text = path.read_bytes()
    try:
        _reject_entities(text)
        net = ElementTree.fromstring(text)
    except (ElementTree.ParseError, expat.ExpatError, ValueError, LookupError) as error:
        yield f"cannot be read: {type(error).__name__}"
        return
    if net.tag != "net":
        yield "is no graph of OpenVINO"
    weights = path.with_suffix(".bin")
    for layer in net.iter("layer"):
        version = layer.get("version", "")
        if not _OPSET.fullmatch(version):
            yield f"has the operator {layer.get('type')!r} of {version!r}, which the engine does not bring along"
        for data in layer.iter("data"):
            if data.get("offset") is not None or data.get("size") is not None:
                try:
                    offset, size = int(data.get("offset", "")), int(data.get("size", ""))
                except ValueError:
                    yield "reads weights from no place in a file"
                    continue
                yield from _faults_of_weights(root, weights, offset if size >= 0 else -1, size)


def _reject_entities(text: bytes) -> None:
    """Refuse a document type, with which XML can name other files and grow without bound.

    Raises:
        ValueError: There is one.
        ExpatError: It is no XML.
    """
    parser = expat.ParserCreate()

    def refuse(*args: Any) -> None:
        raise ValueError("a document type")

    parser.StartDoctypeDeclHandler = refuse
    parser.Parse(text, True)


_LOOKS: Mapping[str, Callable[[Path, Path], Iterator[str]]] = {".onnx": _faults_of_onnx, ".xml": _faults_of_ir}
