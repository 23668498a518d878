"""Which recipes there are on which hardware, and the graph of the one that quantizes per token."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fastpipe.hardware import Hardware, detect_hardware
from fastpipe.options import PRECISIONS
from fastpipe.precision import recipes
from fastpipe.precision.per_token import description, quantize_dense_layers
from fastpipe.precision.recipes import FP32, HEADS, Recipe, ladder

BACKENDS = ("openvino", "onnxruntime")


def machine(isa: str, architecture: str = "x86_64") -> Hardware:
    return Hardware(
        architecture=architecture,
        cpu_model="a CPU",
        isa=tuple(sorted(isa.split())),
        cores=4,
        memory_bytes=8 * 2**30,
        gpus=(),
    )


ZEN4 = machine("avx2 avx512_bf16 avx512_vnni avx512f")
AMX = machine("amx_bf16 amx_int8 amx_tile avx2 avx512_bf16 avx512_vnni avx512f")
CASCADE_LAKE = machine("avx2 avx512_vnni avx512f")
ALDER_LAKE = machine("avx2 avx_vnni")
HASWELL = machine("avx2")
SKYLAKE = machine("avx2 avx512f")
GRAVITON = machine("neon dotprod bf16 fp16", "aarch64")
RASPBERRY = machine("neon", "aarch64")
MACHINES = {
    "zen4": ZEN4,
    "amx": AMX,
    "cascade-lake": CASCADE_LAKE,
    "alder-lake": ALDER_LAKE,
    "haswell": HASWELL,
    "skylake": SKYLAKE,
    "graviton": GRAVITON,
    "raspberry": RASPBERRY,
}
on_every_machine = pytest.mark.parametrize("hardware", MACHINES.values(), ids=MACHINES)
by_every_engine = pytest.mark.parametrize("backend", BACKENDS)


def names(found: tuple[Recipe, ...], *, automatic: bool = False) -> str:
    return " ".join(recipe.name for recipe in found if recipe.automatic or not automatic)


_INT8 = "int4 int8-static int8-token int8-g128 int8 int8-weights"
_AUTO = "int8-static int8-token int8-g128 int8"


@pytest.mark.parametrize(
    ("backend", "hardware", "every", "automatic"),
    [
        ("openvino", ZEN4, f"{_INT8} bf16 fp32", f"{_AUTO} bf16 fp32"),
        ("openvino", AMX, f"{_INT8} bf16 fp32", "int8-static bf16 fp32"),
        ("openvino", HASWELL, f"{_INT8} fp32", f"{_AUTO} fp32"),
        ("openvino", CASCADE_LAKE, f"{_INT8} fp32", f"{_AUTO} fp32"),
        ("openvino", GRAVITON, f"{_INT8} bf16 fp16 fp32", f"{_AUTO} bf16 fp16 fp32"),
        *(
            ("onnxruntime", hardware, "int4 int8-static int8 int8-weights fp32", "int8-static int8 fp32")
            for hardware in (ZEN4, AMX, HASWELL, GRAVITON)
        ),
    ],
)
def test_the_ladder(backend, hardware, every, automatic):
    found = ladder(backend, hardware)
    assert names(found) == every
    assert names(found, automatic=True) == automatic


@on_every_machine
@by_every_engine
def test_names_are_unique_in_order_and_end_with_fp32(backend, hardware):
    found = ladder(backend, hardware)
    places = [recipes.NAMES.index(recipe.name) for recipe in found]
    assert places == sorted(set(places))
    assert found[-1] == FP32


def test_users_can_name_every_recipe_and_nothing_else():
    assert set(PRECISIONS) - {"auto", "float64", "double"} == set(recipes.NAMES)
    assert len(set(recipes.NAMES)) == len(recipes.NAMES)
    offered = {r.name for backend in BACKENDS for hardware in MACHINES.values() for r in ladder(backend, hardware)}
    assert offered == set(recipes.NAMES)


@pytest.mark.parametrize(
    ("hardware", "largest"),
    [
        (ZEN4, 127),
        (AMX, 127),
        (CASCADE_LAKE, 127),
        (ALDER_LAKE, 127),
        (HASWELL, 63),
        (SKYLAKE, 63),
        (machine(""), 63),
        (GRAVITON, 127),
        (RASPBERRY, 127),
    ],
)
def test_pairs_of_products_fit_into_16_bits_where_the_cpu_sums_in_16(hardware, largest):
    found = {recipe.name: recipe for recipe in ladder("onnxruntime", hardware)}
    for name in ("int8", "int8-static"):  # those that multiply integers by integers
        assert found[name].weights.largest == largest
    assert all(recipe.weights.largest == 127 for recipe in ladder("openvino", hardware))


def test_the_largest_integers_are_the_largest_that_fit():
    assert 2 * 255 * 63 <= 2**15 - 1 < 2 * 255 * 127


@on_every_machine
@by_every_engine
def test_no_scale_spans_tokens(backend, hardware):
    for recipe in ladder(backend, hardware):
        assert recipe.activation_group in (0, recipes.WHOLE) or recipe.activation_group > 0
        assert recipe.weights.method in ("plain", "compressed", "per-token", "static")
        assert recipe.weights.group == recipes.WHOLE or recipe.weights.group > 0


@on_every_machine
@by_every_engine
def test_half_floats_only_where_the_hardware_has_them(backend, hardware):
    for recipe in ladder(backend, hardware):
        assert recipe.compute in ("f32", "bf16", "f16")
        assert recipe.compute != "bf16" or hardware.has_bf16
        assert recipe.compute != "f16" or hardware.has_fp16
    assert ("bf16" in names(ladder("openvino", hardware)).split()) == hardware.has_bf16
    assert ("fp16" in names(ladder("openvino", hardware)).split()) == hardware.has_fp16


@on_every_machine
@by_every_engine
def test_exactly_static_scales_take_calibration_data(backend, hardware):
    for recipe in ladder(backend, hardware):
        assert recipe.calibrated == (recipe.weights.method == "static")


def test_openvino_builds_one_artifact_for_all_int8_that_needs_no_data():
    found = {recipe.name: recipe for recipe in ladder("openvino", ZEN4)}
    assert len({found[name].weights for name in ("int8-token", "int8-g128", "int8", "int8-weights")}) == 1
    assert found["bf16"].weights == FP32.weights


def test_an_engine_without_a_ladder_has_no_recipes():
    with pytest.raises(KeyError):
        ladder("torch", ZEN4)


@pytest.mark.parametrize("changed", [{"bits": 4}, {"group": 64}, {"largest": 63}, {"symmetric": False}, {"ratio": 0.5}])
def test_whatever_changes_the_bytes_of_an_artifact_is_in_its_record(changed):
    weights = ladder("onnxruntime", ZEN4)[2].weights
    assert replace(weights, **changed).to_dict() != weights.to_dict()
    assert {**weights.to_dict(), **changed} == replace(weights, **changed).to_dict()


# The graph of ONNX Runtime's "int8".

WIDE = 32  # of every dense layer's input
HEAD_NAMES = ("pooler", "pre_classifier", "classifier", "classification_head", "score", "qa_outputs")


def weights_of(wide: int, seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(0, 0.1, (WIDE, wide)).astype(np.float32)


WEIGHTS = {"w_query": weights_of(WIDE, 1), "w_key": weights_of(WIDE, 2), "w_out": weights_of(16, 3)}
HEAD = weights_of(4, 4)[:16]


def graph(*, opset: int = 20, head: str = "/classifier/MatMul", head_weight: str = "w_head", scope: str = "") -> Any:
    """Two layers that read one input, their sum through a third one, and a head."""
    onnx = pytest.importorskip("onnx")
    make, floats = onnx.helper.make_node, onnx.TensorProto.FLOAT
    nodes = [
        make("MatMul", ["x", "w_query"], ["query"], "/layer.0/query/MatMul"),
        make("MatMul", ["x", "w_key"], ["key"], "/layer.0/key/MatMul"),
        make("Add", ["query", "key"], ["sum"], "/layer.0/Add"),
        make("Relu", ["sum"], ["positive"], "/layer.0/Relu"),
        make("MatMul", ["positive", "w_out"], ["hidden"], "/layer.0/output/MatMul"),
        make("MatMul", ["hidden", head_weight], ["logits"], head),
    ]
    if scope:
        nodes[-1].metadata_props.append(onnx.StringStringEntryProto(key="pkg.torch.onnx.name_scopes", value=scope))
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in {**WEIGHTS, head_weight: HEAD}.items()]
    value = onnx.helper.make_tensor_value_info
    made = onnx.helper.make_graph(
        nodes,
        "small",
        [value("x", floats, ["rows", "tokens", WIDE])],
        [value("hidden", floats, ["rows", "tokens", 16]), value("logits", floats, ["rows", "tokens", 4])],
        constants,
    )
    return onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=10)


def quantized(*, largest: int = 127, **options: Any) -> Any:
    return quantize_dense_layers(graph(**options), keep=HEADS, largest=largest)


def tensors(model: Any) -> dict[str, np.ndarray[Any, Any]]:
    onnx = pytest.importorskip("onnx")
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def session(model: Any) -> Any:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def hidden(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What the graph gives in floats."""
    return np.maximum(x @ WEIGHTS["w_query"] + x @ WEIGHTS["w_key"], 0) @ WEIGHTS["w_out"]


X = np.random.default_rng(0).normal(0, 1, (5, 7, WIDE)).astype(np.float32)


def here() -> int:
    """The largest integer of a weight that this machine sums without a loss."""
    return next(recipe for recipe in ladder("onnxruntime", detect_hardware()) if recipe.name == "int8").weights.largest


@pytest.mark.parametrize("largest", [63, 127])
def test_each_channel_uses_all_of_its_integers_and_no_more(largest):
    found = tensors(quantized(largest=largest))
    for name, values in WEIGHTS.items():
        integers, scale = found[f"{name}_q"], found[f"{name}_scale"]
        assert integers.dtype == np.int8
        assert integers.shape == values.shape
        assert scale.shape == values.shape[1:]
        assert (np.abs(integers.astype(int)).max(axis=0) == largest).all()
        assert np.abs(integers * scale - values).max() <= 0.5001 * scale.max()
        assert name not in found  # the floats are gone from the file


@pytest.mark.parametrize("opset", [13, 17, 18, 20, 21])
@pytest.mark.parametrize("largest", [63, 127])
def test_the_graph_is_valid_and_of_two_domains(opset, largest):
    onnx = pytest.importorskip("onnx")
    model = quantized(opset=opset, largest=largest)
    onnx.checker.check_model(model)
    assert {node.domain for node in model.graph.node} == {"", "com.microsoft"}
    assert sorted(entry.domain for entry in model.opset_import) == ["", "com.microsoft"]
    written = [name for node in model.graph.node for name in node.output]
    assert len(written) == len(set(written))
    assert session(model).run(["hidden"], {"x": X})[0].shape == (5, 7, 16)


def test_three_layers_are_quantized_and_what_they_share_is_once():
    kinds = [node.op_type for node in quantized().graph.node]
    assert kinds.count("MatMulIntegerToFloat") == 3
    assert kinds.count("QuantizeLinear") == kinds.count("ReduceMax") == 2  # query and key read one input
    assert kinds.count("MatMul") == 1


@pytest.mark.parametrize("largest", [63, None])
def test_the_result_is_close_to_the_one_in_floats(largest):
    run = session(quantized(largest=largest or here()))
    found, logits = run.run(["hidden", "logits"], {"x": X})
    assert found.dtype == np.float32
    assert np.abs(found - hidden(X)).max() < 0.04 * np.abs(hidden(X)).max()
    assert np.corrcoef(found.ravel(), hidden(X).ravel())[0, 1] > 0.999
    assert np.allclose(logits, found @ HEAD, atol=1e-5)  # the head itself loses nothing


@pytest.mark.parametrize("opset", [17, 20])
def test_a_row_gives_the_same_bits_alone_and_in_a_batch(opset):
    run = session(quantized(largest=here(), opset=opset))
    scales = np.array([1, 1e-3, 50, 1, 7], np.float32)[:, None, None]  # one scale for all would show
    together = run.run(["hidden"], {"x": X * scales})[0]
    for row in range(len(X)):
        alone = run.run(["hidden"], {"x": (X * scales)[row : row + 1]})[0]
        assert alone.tobytes() == together[row : row + 1].tobytes()
    token = run.run(["hidden"], {"x": X[2:3, 4:5] * 50})[0]
    assert token.tobytes() == together[2:3, 4:5].tobytes()


def test_one_loud_token_changes_no_other():
    run = session(quantized(largest=here()))
    loud = X.copy()
    loud[0, 3] *= 1e5
    quiet, disturbed = run.run(["hidden"], {"x": X})[0], run.run(["hidden"], {"x": loud})[0]
    others = np.ones(X.shape[:2], bool)
    others[0, 3] = False
    assert (quiet[others] == disturbed[others]).all()
    assert np.isfinite(disturbed).all()


def test_zeros_stay_zeros():
    x = X.copy()
    x[1] = 0
    found = session(quantized(largest=here())).run(["hidden"], {"x": x})[0]
    assert (found[1] == 0).all()
    assert np.isfinite(found).all()


def test_a_channel_of_zeros_gives_zeros():
    onnx = pytest.importorskip("onnx")
    model = graph()
    values = WEIGHTS["w_out"].copy()
    values[:, 3] = 0
    place = next(tensor for tensor in model.graph.initializer if tensor.name == "w_out")
    place.CopyFrom(onnx.numpy_helper.from_array(values, "w_out"))
    with np.errstate(all="raise"):
        quantize_dense_layers(model, keep=HEADS, largest=here())
    found = session(model).run(["hidden"], {"x": X})[0]
    assert (found[..., 3] == 0).all()
    assert np.isfinite(found).all()


@pytest.mark.parametrize("name", HEAD_NAMES)
@pytest.mark.parametrize("where", ["name", "weight", "scope"])
def test_heads_are_left_alone_wherever_their_name_stands(name, where):
    if where == "name":
        options = {"head": f"/{name}/MatMul"}
    elif where == "weight":
        options = {"head": "node_7", "head_weight": f"{name}.weight"}
    else:
        options = {"head": "node_7", "head_weight": "val_7", "scope": f"['', '{name}']"}
    before = graph(**options)
    model = quantized(**options)
    assert model.graph.node[-1] == before.graph.node[-1]
    assert re.search(HEADS, description(model.graph.node[-1]))
    kept = model.graph.node[-1].input[1]
    assert (tensors(model)[kept] == HEAD).all()
    assert [node.op_type for node in model.graph.node].count("MatMulIntegerToFloat") == 3


def test_a_dense_layer_that_is_no_head_is_quantized():
    model = quantized(head="/layer.1/MatMul")
    assert "MatMul" not in [node.op_type for node in model.graph.node]
    assert "w_head" not in tensors(model)


def test_weights_that_a_head_shares_are_there_twice():
    model = graph()
    model.graph.node[-2].input[1] = "w_key"  # the last layer takes the second one's weights
    del model.graph.node[-1:]
    del model.graph.output[:]
    model.graph.node[-1].name = "/classifier/MatMul"
    onnx = pytest.importorskip("onnx")
    shape = ["rows", "tokens", WIDE]
    model.graph.output.append(onnx.helper.make_tensor_value_info("hidden", onnx.TensorProto.FLOAT, shape))
    found = quantize_dense_layers(model, keep=HEADS, largest=here())
    onnx.checker.check_model(found)
    assert {"w_key", "w_key_q", "w_key_scale"} <= tensors(found).keys()
    assert session(found).run(["hidden"], {"x": X})[0].shape == X.shape


def test_products_of_activations_are_left_alone():
    onnx = pytest.importorskip("onnx")
    value, floats = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    stack = np.ones((2, WIDE, WIDE), np.float32)
    made = onnx.helper.make_graph(
        [
            onnx.helper.make_node("MatMul", ["x", "y"], ["scores"], "/attention/MatMul"),
            onnx.helper.make_node("MatMul", ["scores", "stack"], ["out"], "/experts/MatMul"),
        ],
        "attention",
        [value("x", floats, [2, 3, WIDE]), value("y", floats, [2, WIDE, WIDE])],
        [value("out", floats, [2, 3, WIDE])],
        [onnx.numpy_helper.from_array(stack, "stack")],
    )
    model = onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    nodes = list(model.graph.node)
    found = quantize_dense_layers(model, keep=HEADS)
    assert [node.name for node in found.graph.node] == [node.name for node in nodes]
    assert tensors(found).keys() == {"stack"}
    onnx.checker.check_model(found)
