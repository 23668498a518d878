"""Graphs made to lead an engine astray: refused, or loaded without anything of their surroundings in them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import openvino
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from fastpipe.artifacts import acceptance
from fastpipe.errors import UnsafeFileError
from tests.unit.test_acceptance import ROWS, edited, ir, onnx_model

pytestmark = pytest.mark.once

SECRET = np.full(256, 7e7, np.float32)  # what a result that it is in cannot hide
HOLDER = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
X = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for graphs, with links that lead out and that do not, and something private beside it."""
    root = tmp_path_factory.mktemp("place")
    (root / "secret.bin").write_bytes(SECRET.tobytes())
    (root / "artifact").mkdir()
    return root / "artifact"


def emptied(folder: Path) -> Path:
    for path in folder.iterdir():
        path.unlink()
    (folder / "weights.data").write_bytes(ROWS.tobytes())
    return folder


def external(name: str, told: list[tuple[str, str]]) -> Any:
    tensor = numpy_helper.from_array(ROWS, name)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in told:
        tensor.external_data.add(key=key, value=value)
    return tensor


def as_initializer(tensor: Any) -> Any:
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [X], [HOLDER], [tensor])
    return helper.make_model(graph)


def as_constant(tensor: Any) -> Any:
    nodes = [helper.make_node("Constant", [], ["w"], value=tensor), helper.make_node("MatMul", ["x", "w"], ["y"])]
    return helper.make_model(helper.make_graph(nodes, "g", [X], [HOLDER]))


def in_a_function(tensor: Any) -> Any:
    nodes = [helper.make_node("Constant", [], ["w"], value=tensor), helper.make_node("MatMul", ["a", "w"], ["b"])]
    imports = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "Times", ["a"], ["b"], nodes, imports)
    graph = helper.make_graph([helper.make_node("Times", ["x"], ["y"], domain="own")], "g", [X], [HOLDER])
    return helper.make_model(graph, functions=[function], opset_imports=[*imports, helper.make_opsetid("own", 1)])


def as_sparse(tensor: Any) -> Any:
    model = as_initializer(numpy_helper.from_array(ROWS, "w"))
    tensor.name = "s"
    indices = numpy_helper.from_array(np.arange(ROWS.size, dtype=np.int64), "i")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(tensor, indices, [ROWS.size]))
    return model


def in_training(tensor: Any) -> Any:
    model = as_initializer(numpy_helper.from_array(ROWS, "w"))
    model.training_info.add().initialization.initializer.append(tensor)
    return model


def in_a_list(tensor: Any) -> Any:
    model = as_initializer(numpy_helper.from_array(ROWS, "w"))
    model.graph.node[0].attribute.append(helper.make_attribute("more", [tensor]))
    return model


PLACES = (as_initializer, as_constant, in_a_function, as_sparse, in_training, in_a_list)


@pytest.mark.parametrize("build", PLACES)
def test_no_place_in_a_graph_is_overlooked(place: Path, build: Callable[[Any], Any]) -> None:
    folder = emptied(place)
    onnx.save(build(external("w", [("location", "weights.data")])), folder / "model.onnx")
    acceptance.check(folder)
    onnx.save(build(external("w", [("location", "../secret.bin")])), folder / "model.onnx")
    with pytest.raises(UnsafeFileError, match=r"model\.onnx"):
        acceptance.check(folder)


@pytest.mark.parametrize(
    "told",
    [
        [("location", "weights.data"), ("location", "../secret.bin")],
        [("location", "../secret.bin"), ("location", "weights.data")],
        [("location", "weights.data"), ("prepacked_0", "MatMul+1|0;4096;")],
        [("location", "weights.data"), ("offset", "1_0")],
        [("location", "weights.data"), ("offset", "0x10")],
        [("location", "weights.data"), ("offset", "010")],
        [("location", "weights.data"), ("offset", "٤")],
        [("location", "weights.data"), ("offset", " 4")],
        [("location", "weights.data"), ("length", "9" * 5000)],
        [("location", "weights.data"), ("offset", "18446744073709551612"), ("length", "8")],
        [("location", "*/_ORT_MEM_ADDR_/*"), ("offset", "0"), ("length", "48")],
        [("location", "a" * 5000)],
        [("location", "loop.data")],
        [("location", ".")],
    ],
    ids=lambda told: str(told)[:60],
)
def test_weights_at_odd_places_are_refused(place: Path, told: list[tuple[str, str]]) -> None:
    folder = emptied(place)
    onnx.save(as_initializer(external("w", told)), folder / "model.onnx")
    if told[0][1] == "loop.data":
        (folder / "loop.data").symlink_to("loop.data")
    with pytest.raises(UnsafeFileError):
        acceptance.check(folder)


@pytest.mark.parametrize("operator", ["EPContext", "PythonOp"])
def test_operators_that_hold_programs_are_refused(place: Path, operator: str) -> None:
    folder = emptied(place)
    model = as_initializer(numpy_helper.from_array(ROWS, "w"))
    model.graph.node[0].op_type, model.graph.node[0].domain = operator, "com.microsoft"
    onnx.save(model, folder / "model.onnx")
    with pytest.raises(UnsafeFileError, match=operator):
        acceptance.check(folder)


def test_a_function_lends_its_domain_to_no_other_operator(place: Path) -> None:
    folder = emptied(place)
    model = in_a_function(numpy_helper.from_array(ROWS, "w"))
    model.graph.node.append(helper.make_node("Other", ["y"], ["z"], domain="own"))
    onnx.save(model, folder / "model.onnx")
    with pytest.raises(UnsafeFileError, match="Other"):
        acceptance.check(folder)


def recoded(encoding: str, name: str) -> Callable[[Path], None]:
    def harm(path: Path) -> None:
        text = path.read_text("utf-8").replace('<?xml version="1.0"?>', f'<?xml version="1.0" encoding="{name}"?>')
        path.write_bytes(text.encode(encoding))

    return harm


@pytest.mark.parametrize(
    "harm",
    [
        # A parser that knows of namespaces sees other names than the engine's, which knows none.
        edited("<layers>", '<layers xmlns="urn:x"><layer id="9" name="n" type="Own" version="extension"/>'),
        edited('offset="0" size="48"', 'offset="0x0" size="48"'),
        edited('offset="0" size="48"', 'offset="00" size="48"'),
        edited('offset="0" size="48"', 'offset="18446744073709551615" size="49"'),
        edited('offset="0" size="48"', 'size="48"'),
        edited('version="opset1"', 'version="opset１"'),
        edited("<net ", "<x><net "),
        recoded("utf-16", "utf-16"),
        recoded("cp037", "cp037"),
    ],
)
def test_an_ir_that_is_read_in_two_ways_is_refused(place: Path, harm: Callable[[Path], None]) -> None:
    path = ir(emptied(place))
    acceptance.check(place)
    harm(path)
    with pytest.raises(UnsafeFileError):
        acceptance.check(place)


def test_layers_with_a_size_of_another_kind_are_accepted(place: Path) -> None:
    from openvino import opset13 as ops

    folder = emptied(place)
    x = ops.parameter([1, 3, 8, 8], np.float32)
    node = ops.lrn(x, ops.constant(np.array([1])), 1.0, 0.5, 1.0, 3)
    openvino.save_model(openvino.Model([node], [x]), folder / "openvino_model.xml")
    assert 'size="3"' in (folder / "openvino_model.xml").read_text("utf-8")
    acceptance.check(folder)


def test_brackets_without_end_are_refused(place: Path) -> None:
    folder = emptied(place)
    (folder / "openvino_model.xml").write_text("<net>" + "<a>" * 200_000)
    with pytest.raises(UnsafeFileError):
        acceptance.check(folder)
    (folder / "openvino_model.xml").write_text("<net>" + "<a>" * 200_000 + "</a>" * 200_000 + "</net>")
    acceptance.check(folder)


LOCATIONS = st.sampled_from(
    ["weights.data", "./weights.data", "x/../weights.data", "../secret.bin", "../artifact/weights.data", "inside.data",
     "outside.data", "/dev/zero", "/etc/hostname", "..", "", "*/_ORT_MEM_ADDR_/*", "weights.data\0.bin"]
)  # fmt: skip
NUMBERS = st.one_of(st.integers(-8, 80).map(str), st.sampled_from(["", "-0", "+4", "1e1", "0x4", str(2**64 - 4)]))
KEYS = st.sampled_from(["location", "offset", "length", "checksum", "prepacked_0", "Location"])
TOLD = st.tuples(LOCATIONS, st.lists(st.tuples(KEYS, NUMBERS), max_size=3))


@settings(max_examples=150, deadline=None)
@given(told=TOLD, build=st.sampled_from(PLACES))
def test_what_is_accepted_has_nothing_of_its_surroundings_in_it(
    place: Path, told: Any, build: Callable[[Any], Any]
) -> None:
    folder = emptied(place)
    (folder / "inside.data").symlink_to("weights.data")
    location, more = told
    if location == "outside.data":
        (folder / "outside.data").symlink_to("../secret.bin")
    onnx.save(build(external("w", [("location", location), *more])), folder / "model.onnx")
    with contextlib.suppress(UnsafeFileError):
        acceptance.check(folder)
        assert location.endswith(("weights.data", "inside.data"))
        assert values_of_onnx(folder) < 1e6


def values_of_onnx(folder: Path) -> float:
    """The largest result of a graph on ONNX Runtime; 0 where it is none after all."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
        (result,) = session.run(None, {"x": np.ones((1, 3), np.float32)})
    except Exception:
        return 0.0
    return float(np.nan_to_num(np.abs(result)).max(initial=0))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("kind", ["model.onnx", "openvino_model.xml"])
def test_mutated_graphs_are_refused_or_load_from_their_folder(place: Path, kind: str, data: st.DataObject) -> None:
    folder = emptied(place)
    told = {"location": "weights.data", "offset": "0", "length": str(ROWS.nbytes)}
    onnx.save(onnx_model(external=told), folder / "model.onnx") if kind == "model.onnx" else ir(folder)
    whole = bytearray((folder / kind).read_bytes())
    cuts = st.floats(0, 1, exclude_max=True)  # names in a graph are not of the same length each time
    tokens = [b"../secret.bin", b'version="extension"', b"Const", b'offset="1', b"\0", b"\xff", b"<layer ", b"com.own"]
    for _ in range(data.draw(st.integers(1, 4))):
        where = int(data.draw(cuts) * len(whole))
        what = data.draw(st.one_of(st.binary(min_size=1, max_size=4), st.sampled_from(tokens)))
        whole[where : where + data.draw(st.integers(0, 12))] = what
    (folder / kind).write_bytes(whole)
    with contextlib.suppress(UnsafeFileError):
        acceptance.check(folder)
        for file, start, size in _stretches(folder / kind):  # no engine loads it: damage may well crash one
            assert (folder / file).resolve().is_relative_to(folder)
            assert 0 <= start <= start + size <= (folder / file).stat().st_size


def _stretches(path: Path) -> list[tuple[str, int, int]]:
    """Which files a graph reads, and where in them, found in another way than by what is tested."""
    if path.suffix == ".xml":
        text = path.read_text("utf-8")
        assert "extension" not in re.findall(r'<layer [^>]*version="([^"]*)"', text)
        found = re.findall(r'<data [^>]*\boffset="([^"]*)"[^>]*\bsize="([^"]*)"', text)
        return [("openvino_model.bin", int(offset), int(size)) for offset, size in found]
    tensors = external_data_helper._get_all_tensors(onnx.load(path, load_external_data=False))
    told = [external_data_helper.ExternalDataInfo(t) for t in tensors if t.data_location == TensorProto.EXTERNAL]
    return [(info.location, info.offset or 0, info.length or 0) for info in told]
