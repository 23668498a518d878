"""Which of a repository's files are ready graphs, and which of them suits a CPU: by names and sizes alone."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
from huggingface_hub.utils import validate_repo_id
from hypothesis import given
from hypothesis import strategies as st

from fastpipe.artifacts import build, hub
from fastpipe.artifacts.hub import Listing, RemoteFile
from fastpipe.artifacts.spec import digest_of
from fastpipe.errors import ExportError, FetchError, OptionError

ZEN4 = ("avx2", "avx512_bf16", "avx512_vnni", "avx512f")
# As repositories on the hub look: of transformers.js, of sentence-transformers, of Optimum.
TRANSFORMERS_JS = {
    "onnx/model.onnx": 90,
    "onnx/model_fp16.onnx": 45,
    "onnx/model_q4.onnx": 54,
    "onnx/model_q4f16.onnx": 30,
    "onnx/model_bnb4.onnx": 51,
    "onnx/model_int8.onnx": 23,
    "onnx/model_uint8.onnx": 22,
    "onnx/model_quantized.onnx": 23,
}
SENTENCE_TRANSFORMERS = {
    "onnx/model.onnx": 90,
    "onnx/model_O3.onnx": 90,
    "onnx/model_qint8_arm64.onnx": 23,
    "onnx/model_qint8_avx512.onnx": 23,
    "onnx/model_qint8_avx512_vnni.onnx": 23,
    "onnx/model_quint8_avx2.onnx": 23,
    "openvino/openvino_model.xml": 1,
    "openvino/openvino_model.bin": 90,
    "openvino/openvino_model_qint8_quantized.xml": 1,
    "openvino/openvino_model_qint8_quantized.bin": 22,
}


def listing(files: dict[str, int], repo: str = "me/model") -> Listing:
    found = tuple(RemoteFile(name=name, size=size) for name, size in files.items())
    return Listing(repo=repo, commit="c", made_of=(), files=found)


def chosen(files: dict[str, int], backend: str, isa: tuple[str, ...] = ZEN4, **said: str) -> dict[int, list[str]]:
    found = hub.best(hub.graphs(listing(files, said.get("repo", "me/model")), backend, isa, said.get("subfolder", "")))
    return {bits: [file.name for file in ready.files] for bits, ready in found.items()}


@pytest.mark.parametrize(
    ("files", "backend", "isa", "expected"),
    [
        (TRANSFORMERS_JS, "onnxruntime", ZEN4, {32: ["onnx/model.onnx"], 8: ["onnx/model_uint8.onnx"]}),
        (TRANSFORMERS_JS, "openvino", ZEN4, {}),
        (SENTENCE_TRANSFORMERS, "onnxruntime", ZEN4,
         {32: ["onnx/model.onnx"], 8: ["onnx/model_qint8_avx512_vnni.onnx"]}),
        (SENTENCE_TRANSFORMERS, "onnxruntime", ("avx2", "avx512f"),
         {32: ["onnx/model.onnx"], 8: ["onnx/model_qint8_avx512.onnx"]}),
        (SENTENCE_TRANSFORMERS, "onnxruntime", ("avx2",),
         {32: ["onnx/model.onnx"], 8: ["onnx/model_quint8_avx2.onnx"]}),
        (SENTENCE_TRANSFORMERS, "onnxruntime", ("neon",),
         {32: ["onnx/model.onnx"], 8: ["onnx/model_qint8_arm64.onnx"]}),
        (SENTENCE_TRANSFORMERS, "onnxruntime", (), {32: ["onnx/model.onnx"]}),
        (SENTENCE_TRANSFORMERS, "openvino", ZEN4,
         {32: ["openvino/openvino_model.xml", "openvino/openvino_model.bin"],
          8: ["openvino/openvino_model_qint8_quantized.xml", "openvino/openvino_model_qint8_quantized.bin"]}),
        ({"model.onnx": 9, "model.onnx_data": 99}, "onnxruntime", ZEN4, {32: ["model.onnx", "model.onnx_data"]}),
        ({"model.onnx": 9, "model.onnx_data": 99, "model.onnx_data_1": 99}, "onnxruntime", ZEN4, {}),
        ({"openvino_model.xml": 9}, "openvino", ZEN4, {}),
        ({"../model.onnx": 9, "a/onnx/model.onnx": 9, "onnx/my_model.onnx": 9}, "onnxruntime", ZEN4, {}),
    ],
)  # fmt: skip
def test_the_file_that_suits(files, backend, isa, expected):
    assert chosen(files, backend, isa) == expected


def test_a_subfolder_and_a_repository_whose_name_says_how_many_bits():
    assert chosen({"sub/onnx/model.onnx": 1, "onnx/model.onnx": 1}, "onnxruntime", subfolder="sub") == {
        32: ["sub/onnx/model.onnx"]
    }
    files = {"openvino_model.xml": 1, "openvino_model.bin": 9}
    assert set(chosen(files, "openvino", repo="OpenVINO/bert-int8-ov")) == {8}
    assert set(chosen(files, "openvino", repo="OpenVINO/bert")) == {32}


def test_the_first_repository_that_has_one_gives_it():
    small, large = listing({"onnx/model_int8.onnx": 1}, "them/a"), listing({"onnx/model_int8.onnx": 9}, "me/a")
    found = hub.best(ready for one in (large, small) for ready in hub.graphs(one, "onnxruntime", ZEN4))
    assert found[8].repo == "me/a"
    assert found[8].origin == "me/a@c/onnx/model_int8.onnx"


def test_listings_survive_json():
    one = Listing(repo="a/b", commit="c", made_of=("x/y",), files=(RemoteFile(name="f", size=1, sha256="s"),))
    assert [Listing.from_dict(values) for values in hub.plain([one])] == [one]


@pytest.mark.parametrize("said", ["", " , "])
def test_publishers_that_are_asked_anyway(said):
    own, known = hub.companions("me/bert", {"FASTPIPE_ARTIFACT_REPOS": said})
    assert own == ()
    assert {"onnx-community/bert", "Xenova/bert", "OpenVINO/bert-int8-ov"} <= set(known)


def test_repositories_of_ones_own():
    assert hub.companions("me/bert", {"FASTPIPE_ARTIFACT_REPOS": "us/{name}-x, none,us/all"}) == (
        ("us/bert-x", "us/all"),
        (),
    )


@given(st.text(st.characters(exclude_characters=",", codec="utf-8"), min_size=1).filter(lambda said: said.strip()))
def test_what_is_no_repository_is_an_error_or_one(said):
    own: tuple[str, ...] = ()
    with contextlib.suppress(OptionError):
        own, _ = hub.companions("me/bert", {"FASTPIPE_ARTIFACT_REPOS": said})
    assert [validate_repo_id(repo) for repo in own] in ([], [None])


def test_weights_are_identified_as_in_a_folder(tmp_path):
    from fastpipe.artifacts.spec import digest_of_file, digest_of_folder

    for name in ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "pytorch_model.bin"):
        (tmp_path / name).write_text(name)
    sums = {path.name: digest_of_file(path) for path in tmp_path.iterdir()}
    files = tuple(RemoteFile(name=name, size=1, sha256=sums[name]) for name in sums if "00001" not in name)
    missing = RemoteFile(name="model-00001-of-00002.safetensors", size=1)
    found = Listing(repo="a/b", commit="c", made_of=(), files=(*files, missing))
    assert hub.digest_of_weights(found, lambda name: sums[name]) == digest_of([digest_of_folder(tmp_path), {}])
    assert hub.digest_of_weights(listing({"config.json": 1}), str) == ""


def test_repositories_with_thousands_of_files():
    """What is looked through is what may be ready, and once; the rest is not even remembered."""
    files = {f"checkpoints/{number}/model.onnx": 1 for number in range(8000)}
    assert chosen({**files, "onnx/model.onnx": 1}, "onnxruntime") == {32: ["onnx/model.onnx"]}


@pytest.mark.parametrize(("count", "kept"), [(10, 12), (10_000, 0)])
def test_the_list_that_is_kept(monkeypatch, count, kept):
    from huggingface_hub.hf_api import ModelInfo

    names = [f"{number}.bin" for number in range(count)] + [f"{number}.txt" for number in range(99)]
    names += ["fastpipe/choice.json", "onnx/model.onnx_data"]
    info = ModelInfo(id="a/b", sha="c", siblings=[{"rfilename": name, "size": 1} for name in names], tags=[])
    monkeypatch.setattr(hub.HfApi, "model_info", lambda *_, **__: info)
    assert len(hub.look("a/b", None).files) == kept


def test_a_size_that_is_not_known_is_no_graph():
    assert chosen({"onnx/model_int8.onnx": 0, "onnx/model_quantized.onnx": 5}, "onnxruntime") == {
        8: ["onnx/model_quantized.onnx"]
    }


@pytest.mark.parametrize(("last", "kind"), [(FetchError("it is gone"), FetchError), (ExportError("no"), ExportError)])
def test_that_nothing_could_be_fetched_is_no_fault_of_the_model(tmp_path, last, kind):
    """An `ExportError` is remembered."""

    def fail(error):
        raise error

    ways = {"own": lambda *_: fail(ExportError("not this model")), "ready": lambda *_: fail(last)}
    model = SimpleNamespace(parameters=tuple)
    with pytest.raises(kind) as caught:
        build._export(tmp_path, SimpleNamespace(model=model), None, {}, SimpleNamespace(name="engine"), ways, 1)
    assert type(caught.value) is kind
