"""The accuracy check on real engines: what it takes, what it refuses, and what it says."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import json
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import fastpipe
from fastpipe.errors import ExportError, FallbackWarning, OptionError
from fastpipe.pipelines.selection import Selection
from fastpipe.precision import gate, recipes
from fastpipe.precision.recipes import FP32, Recipe
from fastpipe.precision.report import Candidate, Report
from fastpipe.precision.sample import TEXTS
from tests.compare import assert_same
from tests.conftest import ENGINES
from tests.models import Models

Make = Callable[..., Any]

each_engine = pytest.mark.parametrize("backend", ENGINES)
QUICK = "onnxruntime"


@pytest.fixture(autouse=True)
def _nothing_said_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FASTPIPE_PRECISION")


def embed(pipe: Any, texts: list[str]) -> np.ndarray[Any, Any]:
    pooled = np.stack([row[0].mean(dim=0).float().numpy() for row in pipe(texts, truncation=True, return_tensors=True)])
    return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)


OTHER_TEXTS = [  # none of them is in the built-in sample
    "ok", "北京欢迎你", "🙂🙂🙂", "def f(x): return x+1", "Grüße aus Köln", "42", "привет, как дела?", "!!!", "a",
    "word " * 90,     "The delivery came two days late, but the box was in good shape.", "Ελληνικά κείμενα",
    "ok ok ok", "100,00 €", "¿Qué?",     "SELECT name FROM users WHERE id = 7;", "<br/>", "NO!!",
    "A long text makes every position of the model count. " * 12,
    *(" ".join((inspect.getdoc(getattr(np, name)) or name).split()[: 5 + 3 * n]) for n, name in enumerate(
        ["mean", "fft", "linalg", "sort", "where", "einsum", "pad", "roll", "unique", "save", "histogram", "cov"]
    )),
]  # fmt: skip


@each_engine
def test_the_default_is_the_fastest_that_passes_on_real_weights(fp: Make, backend: str) -> None:
    """FP-24: MiniLM's vectors stay close to fp32 on texts that the check has not seen, the worst one too."""
    pipe = fp("feature-extraction", "minilm", backend, precision="auto")
    report = pipe.report
    chosen = report[report.chosen]
    assert pipe.plan.precision == report.chosen
    assert report.reason in str(pipe.plan)
    assert chosen.passed
    assert all(chosen.rate >= c.rate / 1.06 for c in report.candidates if c.passed and c.rate), str(report)
    assert all(c.verdict for c in report.candidates)
    assert report["fp32"].rate > 0

    exact = fp("feature-extraction", "minilm", backend, precision="fp32")
    cosines = (embed(pipe, OTHER_TEXTS) * embed(exact, OTHER_TEXTS)).sum(axis=1)
    assert cosines.min() >= 0.98, OTHER_TEXTS[int(cosines.argmin())]
    assert cosines.mean() >= 0.99


@each_engine
def test_what_every_candidate_measured_is_what_it_does(fp: Make, backend: str) -> None:
    """The figures of the report are found again outside of the check."""
    report = fp("feature-extraction", "minilm", backend, precision="int8").report
    pipe = fp("feature-extraction", "minilm", backend, precision="int8", accuracy=None)
    exact = fp("feature-extraction", "minilm", backend, precision="fp32")
    cosines = (embed(pipe, list(TEXTS)) * embed(exact, list(TEXTS))).sum(axis=1)
    figures = report["int8"].figures
    assert figures is not None
    assert figures.worst == pytest.approx(float(cosines.min()), abs=1e-3)
    assert figures.agreement == pytest.approx(float(cosines.mean()), abs=1e-4)


@pytest.fixture
def groups_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let OpenVINO's int8 compete on CPUs with tiles too, where it is slower than bf16 and by name only."""
    tiles = {"amx_bf16", "amx_int8", "amx_tile"}

    def without_tiles(backend: str, hardware: Any) -> Any:
        return recipes.ladder(
            backend, dataclasses.replace(hardware, isa=tuple(i for i in hardware.isa if i not in tiles))
        )

    monkeypatch.setattr("fastpipe.backends.openvino.ladder", without_tiles)


@pytest.mark.usefixtures("groups_everywhere")
@each_engine
def test_a_model_that_int8_breaks_is_caught(models: Models, ref: Make, backend: str) -> None:
    """A gate that always passes fails here: int8 of this model is fast on some engines and wrong on all."""
    pipe = fastpipe.pipeline("text-classification", models["outliers"], backend=backend)
    int8 = pipe.report["int8"]
    assert not int8.passed
    assert int8.figures.drift > 0.3
    assert f"{int8.figures.drift:.4g}" in int8.verdict
    assert pipe.report.chosen in ("bf16", "fp16", "fp32")
    assert_same(pipe("a quiet little town"), ref("text-classification", "outliers")("a quiet little town"), 0.05)
    coarser = [c for c in pipe.report.candidates if c.recipe in ("int8-g128", "int8-token")]
    assert all("int8, which is safer, did not pass" in c.verdict for c in coarser)
    assert len(coarser) == (2 if backend == "openvino" else 0)


@each_engine
def test_the_same_model_would_be_wrong_without_the_check(fp: Make, ref: Make, backend: str) -> None:
    pipe = fp("text-classification", "outliers", backend, precision="int8", accuracy=None)
    exact = ref("text-classification", "outliers")
    texts = OTHER_TEXTS[:12]
    moved = [abs(a["score"] - b["score"]) for a, b in zip(pipe(texts), exact(texts), strict=True)]
    assert max(moved) > 0.1
    assert pipe.report.candidates == ()
    assert "asked for" in pipe.report.reason


@pytest.mark.parametrize("precision", ["int8", "int4"])
@each_engine
def test_a_named_precision_that_fails_says_so_with_the_figure(models: Models, backend: str, precision: str) -> None:
    with pytest.warns(FallbackWarning, match=f"{precision} does not pass .*drift .*accuracy=None") as caught:
        pipe = fastpipe.pipeline("text-classification", models["outliers"], backend=backend, precision=precision)
    assert len([w for w in caught if issubclass(w.category, FallbackWarning)]) == 1
    assert caught[0].filename == __file__
    assert pipe.plan.precision == pipe.report.chosen != precision
    figure = pipe.report[precision].figures
    assert f"{figure.drift:.4g}" in str(caught[0].message)


@each_engine
def test_int4_on_one_logit_falls_back_with_the_figure(models: Models, backend: str) -> None:
    """FP-25: one number carries everything; how it ranks texts is what is compared, and reported as Kendall's tau."""
    with pytest.warns(FallbackWarning, match="int4 does not pass"):
        pipe = fastpipe.pipeline("text-classification", models["regr"], backend=backend, precision="int4")
    int4 = pipe.report["int4"]
    assert int4.figures.agreement < 0.95
    assert f"agreement {int4.figures.agreement:.4g}" in pipe.report.reason
    assert "Kendall's tau" in pipe.report.agreement
    assert pipe.plan.precision != "int4"
    forced = fastpipe.pipeline(
        "text-classification", models["regr"], backend=backend, precision="int4", accuracy=None
    )  # layers narrower than the group of 128
    assert forced.plan.precision == "int4"
    assert 0 <= forced("a text", function_to_apply="sigmoid")[0]["score"] <= 1


@each_engine
def test_a_named_precision_that_passes_is_used(fp: Make, backend: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        pipe = fp("feature-extraction", "minilm", backend, precision="int8")
    assert pipe.plan.precision == "int8"
    assert [c.recipe for c in pipe.report.candidates] == ["int8", "fp32"]
    assert pipe.report["int8"].figures.worst > 0.98
    assert pipe.report["int8"].figures.instability <= 0.0005


TASKS = [
    ("text-classification", "seqcls", {}),
    ("text-classification", "multilabel", {}),
    ("text-classification", "regr", {}),
    ("text-classification", "hugemax", {"truncation": True}),
    ("zero-shot-classification", "nli", {"candidate_labels": ["food", "sports"]}),
    ("token-classification", "ner", {}),
    ("fill-mask", "mlm", {}),
    ("feature-extraction", "feat", {}),
]


@pytest.mark.parametrize(("task", "model", "options"), TASKS, ids=[f"{t}-{m}" for t, m, _ in TASKS])
@each_engine
def test_every_task_is_checked(fp: Make, backend: str, task: str, model: str, options: dict[str, Any]) -> None:
    pipe = fp(task, model, backend, precision="auto")
    report = pipe.report
    assert report.backend == backend
    assert [c.recipe for c in report.candidates][-1] == "fp32"
    measured = [c for c in report.candidates if c.figures]
    assert measured
    for candidate in measured:
        assert 0 <= candidate.figures.agreement <= 1
        assert candidate.figures.drift > 0, "no rounding is without a trace"
        assert candidate.size_bytes > 0
        assert candidate.rate > 0
    assert "built-in sample" in report.sample
    texts = ["The [MASK] was in Oslo.", "It was [MASK].", "The [MASK] was in Oslo."]
    results = pipe(texts, **options)
    assert results[0] == results[2] != results[1]


@each_engine
def test_questions_are_checked(fp: Make, backend: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        report = fp("question-answering", "qa", backend, precision="int8").report
    assert report["int8"].figures is not None
    assert "answers" in report.agreement


def test_two_tasks_of_one_model_are_two_questions(models: Models, empty_cache: Path) -> None:
    one = fastpipe.pipeline("text-classification", models["nli"], backend=QUICK)
    other = fastpipe.pipeline("zero-shot-classification", models["nli"], backend=QUICK)
    assert one.report["int8"].figures != other.report["int8"].figures


def test_the_answer_is_remembered_until_the_question_changes(
    models: Models, empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    walk = gate.walk
    monkeypatch.setattr(gate, "walk", lambda *a, **k: asked.append(k.get("named")) or walk(*a, **k))

    def make(**options: Any) -> Any:
        return fastpipe.pipeline("text-classification", models["seqcls"], backend=QUICK, **options)

    first = make()
    assert (asked, make().report) == ([None], first.report)
    make(accuracy=0.5)
    assert len(asked) == 2
    make(calibration_data=["one text", "another one", "a third"])
    assert len(asked) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        make(precision="int8")
        make(precision="int8")
    assert asked[3:] == ["int8"]
    make(precision="fp32")
    make(precision="int8", accuracy=None)
    assert len(asked) == 4
    assert not list(empty_cache.glob("*.tmp-*"))


def test_a_report_survives_the_cache_pickles_and_copies(models: Models, empty_cache: Path) -> None:
    pipe = fastpipe.pipeline("text-classification", models["seqcls"], backend=QUICK)
    again = fastpipe.pipeline("text-classification", models["seqcls"], backend=QUICK)
    for twin in (again, copy.deepcopy(pipe), pickle.loads(pickle.dumps(pipe))):
        assert twin.report == pipe.report
        assert str(twin.report) == str(pipe.report)
    assert Report.from_dict(json.loads(json.dumps(pipe.report.to_dict()))) == pipe.report


def test_thresholds_decide(models: Models) -> None:
    def chosen(accuracy: Any) -> Any:
        report = fastpipe.pipeline("feature-extraction", models["feat"], backend=QUICK, accuracy=accuracy).report
        return report["int8"].passed, report.thresholds

    assert chosen(0.5)[0]
    assert chosen(0.5)[1]["worst"] == 0.5
    assert not chosen(0.99999)[0]
    assert not chosen(fastpipe.Accuracy(drift=1e-6))[0]
    assert chosen({"agreement": 0.5})[0]


def test_without_a_check_int8_runs_as_it_is(models: Models) -> None:
    pipe = fastpipe.pipeline("text-classification", models["seqcls"], backend=QUICK, accuracy=None)
    assert pipe.plan.precision == "int8"
    assert "accuracy=None" in pipe.report.reason
    assert pipe.report.candidates == ()


@each_engine
def test_static_int8_is_built_from_calibration_data(models: Models, backend: str) -> None:
    texts = OTHER_TEXTS * 2
    options = {"backend": backend, "calibration_data": texts}
    report = fastpipe.pipeline("text-classification", models["seqcls"], **options).report
    assert report["int8-static"].figures is not None
    assert f"{len(texts) // 2} inputs of the calibration data" in report.sample
    pipe = fastpipe.pipeline("text-classification", models["seqcls"], **options, precision="int8-static", accuracy=None)
    exact = fastpipe.pipeline("text-classification", models["seqcls"], backend=backend, precision="fp32")
    for quantized, wanted in zip(pipe(texts, truncation=True), exact(texts, truncation=True), strict=True):
        assert quantized != wanted
        assert abs(quantized["score"] - wanted["score"]) < 0.2
    with pytest.raises(OptionError, match="calibration_data"):
        fastpipe.pipeline("text-classification", models["seqcls"], backend=backend, precision="int8-static")


def test_calibration_data_may_be_a_file_or_a_dataset(models: Models, tmp_path: Path, empty_cache: Path) -> None:
    lines = tmp_path / "texts.txt"
    lines.write_text("\n".join(OTHER_TEXTS[:20]), encoding="utf-8")
    dictionaries = [{"text": text, "label": 1} for text in OTHER_TEXTS[:20]]

    class Rows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(dictionaries)

        def __getitem__(self, index: int) -> Any:
            return dictionaries[index]

    from transformers.pipelines.pt_utils import KeyDataset

    reports = [
        fastpipe.pipeline("text-classification", models["seqcls"], backend=QUICK, calibration_data=given).report
        for given in (lines, str(lines), KeyDataset(Rows(), "text"), (text for text in OTHER_TEXTS[:20]))
    ]
    assert reports[0] == reports[1] == reports[2] == reports[3], "the same data is the same question"
    pairs = [{"text": text, "text_pair": "It is a sign."} for text in OTHER_TEXTS[:6]]
    other = fastpipe.pipeline("text-classification", models["nli"], backend=QUICK, calibration_data=pairs).report
    assert "6 inputs" in other.sample


@pytest.mark.parametrize(
    ("data", "named"),
    [([], "empty"), (["fine", None, "fine"], "item 1"), ("no/such/file.txt", "no/such/file.txt"), (7, "one int")],
)
def test_calibration_data_that_is_none_is_named(models: Models, data: Any, named: str) -> None:
    with pytest.raises(OptionError, match=named):
        fastpipe.pipeline("text-classification", models["seqcls"], backend=QUICK, calibration_data=data)
    assert fastpipe.pipeline("text-classification", models["seqcls"], backend=QUICK)("fine")


def test_a_dtype_is_obeyed_without_a_check(models: Models) -> None:
    """FP-26: `dtype=` means what it means to transformers; a precision by name wins."""
    pipe = fastpipe.pipeline("text-classification", models["seqcls"], dtype=torch.float32)
    assert (pipe.plan.precision, pipe.report.candidates) == ("fp32", ())
    named = fastpipe.pipeline(
        "text-classification", models["seqcls"], dtype=torch.float32, precision="int8", accuracy=None, backend=QUICK
    )
    assert named.plan.precision == "int8"
    assert named.dtype == torch.float32


def test_the_users_model_and_tokenizer_are_left_alone(models: Models) -> None:
    model, tokenizer = models.make("seqcls", seed=5)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    vocabulary, limit = tokenizer.get_vocab(), tokenizer.model_max_length
    config = copy.deepcopy(model.config.to_dict())
    pipe = fastpipe.pipeline("text-classification", model=model, tokenizer=tokenizer, backend=QUICK)
    assert pipe.report.candidates
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert (tokenizer.get_vocab(), tokenizer.model_max_length) == (vocabulary, limit)
    assert model.config.to_dict() == config
    assert pipe.call_count == 0


def test_a_class_of_the_users_own_is_checked_too(models: Models) -> None:
    class Own(transformers.TextClassificationPipeline):
        pass

    pipe = fastpipe.pipeline("text-classification", models["seqcls"], backend=QUICK, pipeline_class=Own)
    assert type(pipe) is Own
    assert pipe.report["int8"].figures is not None


def test_a_pipeline_that_the_sample_does_not_fit_runs_in_fp32(models: Models) -> None:
    class Letters(transformers.TextClassificationPipeline):
        def preprocess(self, inputs: Any, **options: Any) -> Any:
            return super().preprocess(inputs["letter"], **options)

    options = {"backend": QUICK, "pipeline_class": Letters}
    pipe = fastpipe.pipeline("text-classification", models["seqcls"], **options)
    assert pipe.plan.precision == "fp32"
    assert "calibration_data" in pipe.report.reason
    assert pipe({"letter": "Dear Sir or Madam"})
    letters = [{"text": "", "letter": f"Dear number {n}"} for n in range(4)]
    checked = fastpipe.pipeline("text-classification", models["seqcls"], calibration_data=letters, **options)
    assert checked.report["int8"].figures is not None


def test_torch_reports_that_it_quantizes_nothing(models: Models) -> None:
    pipe = fastpipe.pipeline("text-classification", models["seqcls"], backend="torch")
    assert (pipe.plan.precision, pipe.report.backend, pipe.report.candidates) == ("fp32", "torch", ())
    assert "torch" in str(pipe.report)


def test_calibration_data_that_can_be_read_once_serves_the_second_engine_too(models: Models) -> None:
    """On transformers 4 this model cannot be exported to OpenVINO, and ONNX Runtime runs it."""
    texts = (f"the mill turns {number} times" for number in range(30))
    pipe = fastpipe.pipeline("text-classification", models["gpt2cls"], calibration_data=texts)
    assert pipe.plan.backend in ENGINES
    assert "15 inputs of the calibration data" in pipe.report.sample


@pytest.mark.parametrize(
    ("refusing", "serves", "precision"),
    [
        (("openvino",), "onnxruntime", "int8"),
        (("openvino", "onnxruntime"), "openvino", "fp32"),
        ((), "openvino", "int8"),
    ],
)
def test_an_engine_left_with_fp32_makes_room_for_one_that_is_not(
    models: Models, monkeypatch: pytest.MonkeyPatch, refusing: tuple[str, ...], serves: str, precision: str
) -> None:
    def choose(self: Selection) -> tuple[Recipe, Report]:
        passes = self.backend.name not in refusing
        tried = tuple(Candidate(recipe=name, passed=passes or name == "fp32") for name in ("int8", "fp32"))
        name = "int8" if passes else "fp32"
        report = Report(backend=self.backend.name, chosen=name, reason="made up", candidates=tried)
        return next(recipe for recipe in self.ladder if recipe.name == name), report

    monkeypatch.setattr(Selection, "choose", choose)
    pipe = fastpipe.pipeline("text-classification", models["seqcls"])
    assert (pipe.plan.backend, pipe.plan.precision, pipe.report.backend) == (serves, precision, serves)
    assert len(pipe(["a quiet little town", "no"])) == 2
    others = {choice.value: choice.reason for choice in pipe.plan.rejected}
    assert serves == "openvino" or "int8" in others["openvino"]
    named = fastpipe.pipeline("text-classification", models["seqcls"], backend="openvino")
    assert named.plan.backend == "openvino", "an engine that was asked for serves in whatever passes"


def test_an_engine_that_fails_when_it_is_its_turn_again_is_left(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def choose(self: Selection) -> tuple[Recipe, Report]:
        asked.append(self.backend.name)
        if len(asked) > 1:
            raise ExportError("gone meanwhile")
        refused = (Candidate(recipe="int8"), Candidate(recipe="fp32", passed=True))
        return FP32, Report(backend=self.backend.name, chosen="fp32", reason="", candidates=refused)

    monkeypatch.setattr(Selection, "choose", choose)
    with pytest.warns(FallbackWarning, match="gone meanwhile"):
        pipe = fastpipe.pipeline("text-classification", models["seqcls"])
    assert asked == ["openvino", "onnxruntime", "openvino"]
    assert pipe.plan.backend == "torch"
