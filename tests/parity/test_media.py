"""Pictures and sounds side by side with the installed transformers: every task, form of input and engine.

The reference is `transformers.pipeline` called with one input at a time.
"""

from __future__ import annotations

import copy
import shutil
import wave
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

import fastpipe
from fastpipe.errors import InputError, UnsupportedOnEngineError
from fastpipe.pipelines.model import EngineModel
from fastpipe.pipelines.request import obstacle_of
from fastpipe.tasks import TASKS
from tests import media
from tests.compare import assert_same
from tests.conftest import ENGINES, V5
from tests.models import Models

Make = Callable[..., Any]
OV, ORT = ENGINES
QUICK = OV if V5 else ORT  # where exports take the least time


@dataclass(frozen=True)
class Subject:
    """A task and a model, and the engines that it is tried on: exports take seconds."""

    task: str
    model: str
    engines: tuple[str, ...]
    call: dict[str, Any] = field(default_factory=dict)
    tolerance: float = 1e-4

    def items(self) -> list[Any]:
        speaks = "audio" in self.task or "speech" in self.task
        return media.clips() if speaks else media.pictures()


CHUNKS = {"chunk_length_s": 0.1, "stride_length_s": [0.03, 0.02]}
SUBJECTS = {
    "ViT": Subject("image-classification", "vit", ENGINES, {"top_k": 3}),
    "Swin": Subject("image-classification", "swin", (QUICK,)),
    "ConvNeXt": Subject("image-classification", "convnext", (QUICK,)),
    "DINOv2 features": Subject(
        "image-feature-extraction", "dinov2", (QUICK,), {"return_tensors": True}, tolerance=1e-3
    ),
    "DINOv2 features, pooled": Subject("image-feature-extraction", "dinov2", (QUICK,), {"pool": True}, tolerance=1e-3),
    "YOLOS": Subject("object-detection", "yolos", ENGINES, {"threshold": 0.1}),
    "DETR": Subject("object-detection", "detr", (QUICK,), {"threshold": 0.1}),
    "SegFormer": Subject("image-segmentation", "segformer", (QUICK,)),
    "DPT": Subject("depth-estimation", "dpt", (QUICK,), tolerance=1e-3),
    "CLIP": Subject(
        "zero-shot-image-classification", "clip", ENGINES, {"candidate_labels": ["cat", "a river and a mill", "dog"]}
    ),
    "CLIP, one label": Subject("zero-shot-image-classification", "clip", (QUICK,), {"candidate_labels": ["cat"]}),
    "wav2vec2": Subject("automatic-speech-recognition", "wav2vec2", ENGINES),
    "wav2vec2, letters": Subject(
        "automatic-speech-recognition", "wav2vec2", ENGINES, {"return_timestamps": "char", **CHUNKS}
    ),
    "HuBERT": Subject("automatic-speech-recognition", "hubert", (QUICK,)),
    "HuBERT, words": Subject(
        "automatic-speech-recognition", "hubert", (QUICK,), {"return_timestamps": "word", **CHUNKS}
    ),
    "wav2vec2 classes": Subject("audio-classification", "wav2vec2cls", (QUICK,)),
    "AST": Subject("audio-classification", "ast", (QUICK,), {"top_k": 2}),
}
EVERY = [(name, engine) for name, subject in SUBJECTS.items() for engine in subject.engines]


def plain(result: Any) -> Any:
    """Turn pictures among results into values: masks exactly, depths as grey levels, which rounding moves by one."""
    if isinstance(result, Image.Image):
        return ("picture", result.mode, result.size, result.tobytes())
    if isinstance(result, dict):
        depth = {"depth": torch.from_numpy(np.asarray(result["depth"], np.float32) / 2e3)} if "depth" in result else {}
        return {**{name: plain(value) for name, value in result.items()}, **depth}
    return [plain(one) for one in result] if isinstance(result, list) else result


@pytest.fixture(scope="module")
def expected(ref: Make) -> Callable[[str], list[Any]]:
    @cache
    def results(name: str) -> list[Any]:
        subject = SUBJECTS[name]
        pipe = ref(subject.task, subject.model)
        return [plain(pipe(copy.deepcopy(item), **subject.call)) for item in subject.items()]

    return results


@pytest.mark.parametrize(("name", "engine"), EVERY)
def test_every_form_of_input_gives_what_single_calls_of_transformers_give(
    fp: Make, expected: Callable[[str], list[Any]], name: str, engine: str
) -> None:
    """FP-05, FP-17: modes, sizes and lengths are mixed, one input comes twice, and no batch changes a result."""
    subject = SUBJECTS[name]
    pipe, wanted = fp(subject.task, subject.model, engine), expected(name)
    assert pipe.plan.backend == engine, pipe.plan.warning
    for batch_size in (None, 1, 3):
        got = pipe(subject.items(), batch_size=batch_size, **subject.call)
        assert_same(plain(got), wanted, max(subject.tolerance, 5e-4 if "depth" in subject.task else 0))
    assert_same(plain(list(pipe((item for item in subject.items()), **subject.call))), wanted, subject.tolerance)
    for item, result in list(zip(subject.items(), wanted, strict=True))[-3:]:
        assert_same(plain(pipe(item, **subject.call)), result, subject.tolerance)
    assert pipe([], **subject.call) == []


@pytest.fixture
def shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of the main inputs that models are run on from now on."""
    seen: list[tuple[int, ...]] = []
    run = EngineModel.run

    def recorded(self: EngineModel, batch: Any) -> Any:
        seen.append(batch[self.main_input_name].shape)
        return run(self, batch)

    monkeypatch.setattr(EngineModel, "run", recorded)
    return seen


def test_equal_shapes_are_batched_and_equal_rows_run_once(fp: Make, shapes: list[tuple[int, ...]]) -> None:
    pipe = fp("image-classification", "vit", OV)
    pipe._batching.streams, pipe._batching.numbers = 1, 4 * 3 * media.SIDE**2
    shapes.clear()  # it may have been made, and tried out, just now
    pictures = media.pictures()
    pipe(pictures)
    assert sum(shape[0] for shape in shapes) == len(pictures) - 1
    assert max(shape[0] for shape in shapes) == 4
    shapes.clear()
    pipe(pictures, batch_size=2)
    assert max(shape[0] for shape in shapes) == 2


def test_sounds_of_other_lengths_are_never_padded(fp: Make, shapes: list[tuple[int, ...]]) -> None:
    """FP-05: what a batch has in common is its length; the chunks of a long recording mostly do."""
    pipe = fp("automatic-speech-recognition", "wav2vec2", OV)
    pipe._batching.streams, pipe._batching.numbers = 1, 10**6
    shapes.clear()
    clips = media.clips()
    pipe(clips, batch_size=64)
    assert {shape[1] for shape in shapes} == {len(clip) for clip in clips}
    shapes.clear()
    pipe(np.concatenate(clips), **CHUNKS)
    assert max(shape[0] for shape in shapes) > 8


@pytest.mark.parametrize("engine", ENGINES)
def test_pictures_from_files_and_what_is_no_picture(fp: Make, ref: Make, tmp_path: Path, engine: str) -> None:
    """FP-17, FP-34: a path is opened, a missing file and a missing value are named with their place."""
    pipe, reference = fp("image-classification", "vit", engine), ref("image-classification", "vit")
    picture, path = media.pictures()[0], str(tmp_path / "picture.png")
    picture.save(path)
    assert_same(pipe([path, picture]), [reference(picture)] * 2)
    with pytest.raises(ValueError, match=r"item 1: .*/no/such\.png"):
        pipe([path, "/no/such.png"])
    for missing in (None, float("nan"), 5):
        with pytest.raises(InputError, match=r"item 2: .* is not an image") as error:
            pipe([path, picture, missing])
        assert error.value.index == 2
    got, both = [], pipe(one for one in (picture, path, None))
    with pytest.raises(InputError, match="item 2"):
        got.extend(both)
    array = np.asarray(picture)
    if V5:
        assert_same(pipe([array, picture]), [reference(array), reference(picture)])
    else:
        with pytest.raises(TypeError):
            pipe(array)


@pytest.mark.parametrize(
    ("task", "model"), [("automatic-speech-recognition", "wav2vec2"), ("audio-classification", "wav2vec2cls")]
)
def test_sounds_in_every_form(fp: Make, ref: Make, tmp_path: Path, task: str, model: str) -> None:
    """A mapping is left as it was; what transformers cannot read here fails as it does there."""
    pipe, reference = fp(task, model, QUICK), ref(task, model)
    clip = media.clips()[0]
    wanted = reference(clip.copy())
    given = {"sampling_rate": 16_000, "raw": clip, "path": "somewhere.wav"}
    forms = [clip, torch.from_numpy(clip), given, {"sampling_rate": 16_000, "array": clip}]
    for form in forms:
        assert_same(pipe(form), reference(copy.deepcopy(form)))
    assert_same([one if "path" not in one else {"text": one["text"]} for one in pipe([clip, clip])], [wanted] * 2)
    assert list(given) == ["sampling_rate", "raw", "path"], "a mapping belongs to the user"
    assert np.array_equal(clip, media.clips()[0])

    path = tmp_path / "clip.wav"
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16_000, len(clip), "NONE", ""))
        file.writeframes((clip * 32767).astype("<i2").tobytes())
    others = [str(path), path.read_bytes(), {"sampling_rate": 8_000, "raw": clip}]
    for form in others:
        try:
            result = reference(copy.deepcopy(form))
        except (ValueError, ImportError) as theirs:  # no ffmpeg, no torchaudio
            with pytest.raises(type(theirs)):
                pipe(form)
        else:
            assert_same(pipe(form), result)
    for missing in (None, 3.0):
        with pytest.raises(InputError, match=r"item 1: .* is not sound"):
            pipe([clip, missing])


def test_part_of_a_sound_is_ignored_where_a_stride_says_so(fp: Make, ref: Make) -> None:
    given = {"sampling_rate": 16_000, "raw": media.clips()[1], "stride": (800, 1600), "speaker": "Ada"}
    reference = ref("automatic-speech-recognition", "wav2vec2")
    wanted = reference(copy.deepcopy(given))
    assert wanted["speaker"] == ["Ada"]
    pipe = fp("automatic-speech-recognition", "wav2vec2", OV)
    assert_same(pipe([given, given]), [wanted] * 2)
    assert list(given) == ["sampling_rate", "raw", "stride", "speaker"]


def test_a_shape_that_the_graph_was_not_made_for_is_refused(fp: Make) -> None:
    pipe = fp("image-feature-extraction", "dinov2", QUICK)
    size = {"shortest_edge": 48}
    options = {"image_processor_kwargs": {"size": size, "crop_size": {"height": 48, "width": 48}}}
    with pytest.raises(UnsupportedOnEngineError, match=r"pixel_values: .* takes 3 x 32 x 32, and this is 3 x 48 x 48"):
        pipe(media.pictures()[0], **options)


def test_too_many_words_in_a_label_are_refused(fp: Make) -> None:
    """The engine itself would read positions that are not there."""
    pipe = fp("zero-shot-image-classification", "clip", OV)
    with pytest.raises(fastpipe.errors.InputTooLongError, match="> 40"):
        pipe(media.pictures()[:2], candidate_labels=["cat", "a river and a mill " * 20])


def test_a_model_object_of_pictures(models: Models, ref: Make) -> None:
    """FP-27: built again after its weights changed, it gives the new results; train mode and class are kept."""

    class Own(transformers.ImageClassificationPipeline):
        pass

    model, images = models.make("vit", seed=3)
    given = {"model": model, "image_processor": images, "backend": QUICK}
    picture = media.pictures()[0]
    model.train()
    pipe = fastpipe.pipeline("image-classification", **given)
    before = pipe(picture)
    assert pipe(picture) == before
    assert model.training
    with torch.no_grad():
        model.classifier.weight.mul_(-1)
    own = fastpipe.pipeline("image-classification", **given, pipeline_class=Own)
    assert type(own) is Own
    model.eval()
    wanted = transformers.pipeline("image-classification", model=model, image_processor=images, device="cpu")(picture)
    assert_same(own(picture), wanted)
    assert wanted[0]["label"] != before[0]["label"]
    with pytest.raises(Exception, match="image processor"):
        fastpipe.pipeline("image-classification", model=model, backend=QUICK)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ViT", "same label"),
        ("DINOv2 features", "cosine of all features"),
        ("YOLOS", "share of queries"),
        ("SegFormer", "share of pixels"),
        ("DPT", "range of depths"),
        ("CLIP", "same label"),
        ("HuBERT", "share of frames"),
        ("AST", "same label"),
    ],
)
def test_the_accuracy_check_runs_for_every_kind_of_answer(fp: Make, name: str, words: str) -> None:
    subject = SUBJECTS[name]
    report = fp(subject.task, subject.model, QUICK, precision="auto").report
    tried = [candidate for candidate in report.candidates if candidate.figures is not None]
    assert tried, str(report)
    assert all(0 < candidate.figures.agreement <= 1 and candidate.rate > 0 for candidate in tried)
    assert all(candidate.figures.drift > 0 for candidate in tried), "no quantized model is the same to the last bit"
    assert words in report.agreement
    assert "made-up" in report.sample


def test_static_int8_is_calibrated_on_the_users_pictures(models: Models) -> None:
    pictures = media.pictures()[:6]
    options = {"backend": QUICK, "precision": "int8-static", "accuracy": None, "calibration_data": pictures}
    pipe = fastpipe.pipeline("image-classification", models["vit"], **options)
    assert pipe.plan.precision == "int8-static"
    exact = fastpipe.pipeline("image-classification", models["vit"], backend=QUICK)
    for one, other in zip(pipe(pictures), exact(pictures), strict=True):
        found = {entry["label"]: entry["score"] for entry in other}
        assert max(abs(found[entry["label"]] - entry["score"]) for entry in one) < 0.2


def test_a_pipeline_of_sounds_can_be_copied_and_pickled(fp: Make) -> None:
    import pickle

    pipe = fp("audio-classification", "wav2vec2cls", QUICK)
    clips = media.clips()
    assert_same(pickle.loads(pickle.dumps(pipe))(clips), pipe(clips))


@pytest.mark.skipif(shutil.which("ffmpeg") is not None, reason="ffmpeg reads them here")
def test_bytes_without_ffmpeg_fail_as_in_transformers(fp: Make) -> None:
    with pytest.raises(ValueError, match="ffmpeg was not found"):
        fp("audio-classification", "wav2vec2cls", QUICK)(b"RIFF")


@pytest.mark.parametrize("name", ["ViT", "DINOv2 features", "YOLOS", "SegFormer", "DPT", "CLIP", "HuBERT", "AST"])
def test_a_pipeline_is_verified_on_the_users_own_inputs(fp: Make, name: str) -> None:
    subject = SUBJECTS[name]
    items = subject.items()[:3]
    found = fastpipe.verify(fp(subject.task, subject.model, QUICK), items, **subject.call)
    assert (found.samples, found.task) == (3, subject.task)
    assert found.agreement == pytest.approx(1, abs=1e-5), "fp32 beside itself"


@pytest.mark.parametrize("name", ["CLIP", "ViT", "wav2vec2"])
def test_on_torch_it_is_transformers_own_call(fp: Make, expected: Callable[[str], list[Any]], name: str) -> None:
    subject = SUBJECTS[name]
    pipe = fp(subject.task, subject.model, "torch")
    assert pipe.plan.backend == "torch"
    assert_same(plain(pipe(subject.items(), **subject.call)), expected(name))


@pytest.mark.parametrize(
    ("task", "config", "said"),
    [
        ("automatic-speech-recognition", transformers.WhisperConfig(), "encoder-decoder"),
        ("automatic-speech-recognition", transformers.ASTConfig(), "no CTC model"),
        ("automatic-speech-recognition", transformers.HubertConfig(), ""),
        ("object-detection", transformers.DetrConfig(), ""),
        ("text-classification", transformers.BartConfig(), "encoder-decoder"),
    ],
)
def test_only_models_that_answer_at_once_have_an_engine_path(task: str, config: Any, said: str) -> None:
    found = obstacle_of(TASKS[task], config)
    assert said in found
    assert bool(found) == bool(said)
