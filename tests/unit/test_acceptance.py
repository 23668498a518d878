"""Files from elsewhere: what an engine would read outside of their folder, or not know, is refused beforehand."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from openvino import opset13 as ops

from fastpipe.artifacts import acceptance
from fastpipe.errors import UnsafeFileError

ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)


def onnx_model(*, domain: str = "", external: dict[str, str] | None = None, inner: bool = False) -> Any:
    """A matrix product, whose weights may be elsewhere; `inner` puts it into a branch."""
    weights = helper.make_tensor("w", TensorProto.FLOAT, (3, 4), ROWS.tobytes(), raw=True)
    if external is not None:
        weights.ClearField("raw_data")
        weights.data_location = TensorProto.EXTERNAL
        for key, value in external.items():
            weights.external_data.add(key=key, value=value)
    product = helper.make_node("MatMul", ["x", "w"], ["y"], domain=domain)
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4))]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3))]
    if not inner:
        return helper.make_model(helper.make_graph([product], "g", inputs, outputs, [weights]))
    branch = helper.make_graph([product], "branch", [], outputs, [weights])
    choice = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    inputs.append(helper.make_tensor_value_info("c", TensorProto.BOOL, ()))
    return helper.make_model(helper.make_graph([choice], "g", inputs, outputs))


def ir(folder: Path) -> Path:
    """The same for OpenVINO."""
    x = ops.parameter([1, 3], np.float32, name="x")
    model = openvino.Model([ops.matmul(x, ops.constant(ROWS), False, False)], [x])
    openvino.save_model(model, folder / "openvino_model.xml", compress_to_fp16=False)
    return folder / "openvino_model.xml"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder beside which something private lies."""
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    made = tmp_path / "artifact"
    made.mkdir()
    return made


def test_ordinary_graphs_are_accepted(folder: Path) -> None:
    ir(folder)
    (folder / "model.onnx.data").write_bytes(ROWS.tobytes())
    location = {"location": "model.onnx.data", "offset": "0", "length": str(ROWS.nbytes)}
    onnx.save(onnx_model(external=location), folder / "model.onnx")
    onnx.save(onnx_model(inner=True), folder / "branch.onnx")
    (folder / "manifest.json").write_text("{}")
    acceptance.check(folder)


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize(
    "location",
    [
        {"location": "../secret.bin"},
        {"location": "/etc/hostname"},
        {"location": "sub/../../secret.bin"},
        {"location": "..\\secret.bin"},
        {"location": "link.bin"},
        {"location": "nothing.bin"},
        {"location": ""},
        {},
        {"location": "model.onnx.data", "offset": "0", "length": "1000"},
        {"location": "model.onnx.data", "offset": "-4"},
        {"location": "model.onnx.data", "offset": "zero"},
        {"location": "model.onnx.data", "length": "-1"},
        {"location": "model.onnx.data", "prepacked": "anything"},
    ],
    ids=str,
)
def test_weights_elsewhere_are_refused(folder: Path, location: dict[str, str], inner: bool) -> None:
    (folder / "model.onnx.data").write_bytes(ROWS.tobytes())
    if location.get("location") == "link.bin":
        (folder / "link.bin").symlink_to(folder.parent / "secret.bin")
    onnx.save(onnx_model(external=location, inner=inner), folder / "model.onnx")
    with pytest.raises(UnsafeFileError, match=r"model\.onnx|link\.bin"):
        acceptance.check(folder)


def calling_itself(operator: str) -> Any:
    """A model with a function `known` in a domain of its own, and a node of that domain."""
    model = onnx_model(domain="own")
    model.graph.node[0].op_type = operator
    product = helper.make_node("MatMul", ["a", "b"], ["c"])
    opset = helper.make_opsetid("", 18)
    model.functions.append(helper.make_function("own", "known", ["a", "b"], ["c"], [product], [opset]))
    return model


def test_functions_of_the_model_are_known_by_name(folder: Path) -> None:
    onnx.save(calling_itself("known"), folder / "model.onnx")
    acceptance.check(folder)
    onnx.save(calling_itself("unknown"), folder / "model.onnx")
    with pytest.raises(UnsafeFileError, match="unknown"):
        acceptance.check(folder)


def test_programs_are_refused_in_the_engines_own_domain(folder: Path) -> None:
    model = onnx_model(domain="com.microsoft")
    model.graph.node[0].op_type = "EPContext"
    onnx.save(model, folder / "model.onnx")
    with pytest.raises(UnsafeFileError, match="EPContext"):
        acceptance.check(folder)


def test_an_empty_graph_is_refused(folder: Path) -> None:
    (folder / "model.onnx").touch()
    with pytest.raises(UnsafeFileError, match=r"model\.onnx"):
        acceptance.check(folder)


def test_links_in_a_circle_are_refused(folder: Path) -> None:
    (folder / "a.bin").symlink_to("b.bin")
    (folder / "b.bin").symlink_to("a.bin")
    with pytest.raises(UnsafeFileError, match=r"a\.bin"):
        acceptance.check(folder)


@pytest.mark.parametrize("inner", [False, True])
def test_operators_of_others_are_refused(folder: Path, inner: bool) -> None:
    onnx.save(onnx_model(domain="my.company", inner=inner), folder / "model.onnx")
    with pytest.raises(UnsafeFileError, match=r"MatMul.*my\.company"):
        acceptance.check(folder)


@pytest.mark.parametrize(
    "name", ["compiled.blob", "compiled.onnx", "weights.pkl", "model.pt", "code.py", "lib.so", "x"]
)
def test_other_files_are_refused(folder: Path, name: str) -> None:
    (folder / name).write_bytes(b"\x80\x04.")
    with pytest.raises(UnsafeFileError, match=name):
        acceptance.check(folder)


def edited(old: str, new: str) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new), "utf-8")

    return edit


def without_weights(path: Path) -> None:
    path.with_suffix(".bin").unlink()


def with_weights_elsewhere(path: Path) -> None:
    path.with_suffix(".bin").unlink()
    path.with_suffix(".bin").symlink_to(path.parent.parent / "secret.bin")


ENTITY = '<?xml version="1.0"?><!DOCTYPE net [<!ENTITY x SYSTEM "file:///etc/hostname">]>'


@pytest.mark.parametrize(
    "harm",
    [
        edited('<?xml version="1.0"?>', ENTITY),
        edited('size="48"', 'size="4800"'),
        edited('size="48"', 'size="-1"'),
        edited('size="48"', 'size=""'),
        edited('offset="0"', 'offset="-8"'),
        edited('type="MatMul" version="opset1"', 'type="MatMul" version="extension"'),
        edited('type="MatMul" version="opset1"', 'type="MatMul" version="opset0"'),
        edited('offset="0" size="48"', ""),
        edited("</net>", ""),
        edited("<net ", "<nut "),
        without_weights,
        with_weights_elsewhere,
    ],
)
def test_a_hostile_ir_is_refused(folder: Path, harm: Callable[[Path], None]) -> None:
    path = ir(folder)
    acceptance.check(folder)
    harm(path)
    with pytest.raises(UnsafeFileError):
        acceptance.check(folder)


@pytest.mark.parametrize("kind", ["model.onnx", "openvino_model.xml"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_bytes_are_accepted_or_refused(tmp_path_factory: Any, kind: str, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("fuzzed")
    ir(folder)
    onnx.save(onnx_model(inner=True), folder / "model.onnx")
    whole = bytearray((folder / kind).read_bytes())
    places = st.floats(0, 1, exclude_max=True)  # names in a graph are not of the same length each time
    for place, byte in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=8)):
        whole[int(place * len(whole))] = byte
    cut = int(data.draw(places) * len(whole)) if data.draw(st.booleans()) else len(whole)
    (folder / kind).write_bytes(whole[:cut])
    with contextlib.suppress(UnsafeFileError):
        acceptance.check(folder)
        (folder / "refused.pkl").touch()
        with pytest.raises(UnsafeFileError):
            acceptance.check(folder)
