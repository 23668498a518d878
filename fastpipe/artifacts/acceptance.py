"""Whether files that came from elsewhere may be handed to an engine: looked through here, and loaded nowhere.

A graph can name other files, and an engine opens them: weights beside it, libraries with operators of their own. So
what is accepted is a list of what graphs of fastpipe hold, and all else is refused. Links are followed: those that stay
in the folder are files like others. Files of the hub's cache, which are links into another folder, are copied into one
of fastpipe's own before they are looked through.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.parsers import expat

from fastpipe.errors import UnsafeFileError

# Graphs, their weights, and records. What engines compiled is machine code: each machine makes its own.
_KINDS = {".onnx", ".xml", ".bin", ".data", ".json"}
_COMPILED = "compiled."
_ONNX_DOMAINS = {"", "ai.onnx", "ai.onnx.ml", "com.microsoft"}
# They run what is no operator: a program that was compiled elsewhere, functions of Python.
_PROGRAMS = {"EPContext", "PythonOp", "PythonOpGrad"}
# ONNX Runtime knows others: they say where weights lie as its kernels want them, of which nothing is checked.
_EXTERNAL = {"location", "offset", "length", "checksum"}
_OPSET = re.compile(r"opset[1-9]\d?", re.ASCII)  # which of them the engine knows, it says itself
# As all who read it read it: Python also takes "1_0", other parsers "0x1f".
_NUMBER = re.compile(r"0|[1-9]\d{0,17}", re.ASCII)
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
            try:
                fault = next(look(path, root), None)
            except (OSError, MemoryError):  # the machine's
                raise
            except Exception as error:  # what parsers raise is theirs to choose
                raise _unsafe(name, f"cannot be read: {type(error).__name__}") from error
            if fault:
                raise _unsafe(name, fault)


def _unsafe(name: str, fault: str) -> UnsafeFileError:
    return UnsafeFileError(f"{name!r} {fault}", remedy=_REMEDY)


def _inside(path: Path, root: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root)
    except (OSError, RuntimeError, ValueError):  # links in a circle, a name that can be none
        return False


def _faults_of_weights(root: Path, file: Path, offset: Any, size: Any) -> Iterator[str]:
    """Tell what is wrong with a stretch of a file that a graph reads; no size stands for the rest of it."""
    if not _inside(file, root) or not os.path.isfile(file):
        yield "reads weights that are not in its folder"
    elif not all(_NUMBER.fullmatch(said) for said in (offset, size or "0")):
        yield "reads weights from no place in a file"
    elif int(offset) + int(size or 0) > file.stat().st_size:
        yield f"reads past the end of {file.name}"


def _faults_of_onnx(path: Path, root: Path) -> Iterator[str]:
    if find_spec("onnx") is None:
        yield "cannot be looked through without onnx, which is not installed (pip install onnx)"
        return
    model: Any = importlib.import_module("onnx").load(path, load_external_data=False)
    if not model.graph.node:
        yield "holds no graph"
    own = {(function.domain, function.name) for function in model.functions}
    for message in _messages(model):
        kind = message.DESCRIPTOR.name
        if kind == "NodeProto" and (message.domain, message.op_type) not in own and not _is_brought(message):
            yield f"has the operator {message.op_type!r} of {message.domain!r}, which no engine brings along"
        if kind == "TensorProto" and (message.external_data or message.data_location):
            yield from _faults_of_external(message, path, root)


def _is_brought(node: Any) -> bool:
    """Tell whether an operator is the engine's own, and one that computes."""
    return node.domain in _ONNX_DOMAINS and node.op_type not in _PROGRAMS


def _faults_of_external(tensor: Any, path: Path, root: Path) -> Iterator[str]:
    told: Mapping[str, str] = {entry.key: entry.value for entry in tensor.external_data}
    location = told.get("location", "")
    if not location or os.path.isabs(location) or "\\" in location or "\0" in location:
        yield f"reads weights from {location!r}"
    elif len(told) < len(tensor.external_data) or not told.keys() <= _EXTERNAL:
        yield f"says more of {location!r} than where weights are in it"
    else:
        yield from _faults_of_weights(root, path.parent / location, told.get("offset", "0"), told.get("length"))


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
    """Look at elements by their names as they are written: to the engine's parser, too, a namespace means nothing."""
    weights = path.with_suffix(".bin")
    faults: list[str] = []
    layers: list[str] = []

    def start(tag: str, said: dict[str, str]) -> None:
        if not layers and tag != "net":
            raise ValueError("no graph of OpenVINO")
        layers.append(str(said.get("type")) if tag == "layer" else layers[-1] if layers else "")
        if tag == "layer" and not _OPSET.fullmatch(said.get("version", "")):
            version = said.get("version")
            faults.append(f"has the operator {layers[-1]!r} of {version!r}, which the engine does not bring along")
        if tag == "data" and (layers[-1] == "Const" or {"offset", "size"} <= said.keys()):
            size = said.get("size", "none")
            faults.extend(_faults_of_weights(root, weights, said.get("offset", "none"), size or "none"))

    def refuse(*args: Any) -> None:
        raise ValueError("a document type, with which XML names other files and grows without bound")

    parser = expat.ParserCreate("utf-8")  # whatever the file says of its encoding
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = start
    parser.EndElementHandler = lambda tag: layers.pop()
    parser.Parse(path.read_text("utf-8"), True)  # bytes may be in another encoding all the same
    yield from faults


_LOOKS: Mapping[str, Callable[[Path, Path], Iterator[str]]] = {".onnx": _faults_of_onnx, ".xml": _faults_of_ir}
