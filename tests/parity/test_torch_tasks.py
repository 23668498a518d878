"""Tasks that no engine takes yet: torch runs them, the answers are transformers' own, and the plan says why."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas
import pytest
import torch
import transformers
from PIL import Image
from transformers.pipelines import PIPELINE_REGISTRY

import fastpipe
from fastpipe.errors import FallbackWarning, InputTooLongError
from tests import media, tasks
from tests.compare import assert_same
from tests.conftest import V5
from tests.torch_models import TorchModels, both

PICTURES = [picture.convert("RGB") for picture in media.pictures()[:3]]
SOUNDS = media.clips()[:3]
# What is written in a picture, and where.
WRITTEN = [
    (word, [90 * place, 20, 90 * place + 80, 40])
    for place, word in enumerate(["Anna", "built", "the", "old", "mill", "in", "Lyon"])
]
TABLE = pandas.DataFrame(
    {"Mill": ["Anna", "Lyon", "Ada"], "Year": ["1895", "1901", "1910"], "Wheels": ["2", "3", "5"]}, dtype=object
)
DECISION = {
    "state": "the river runs past the mill",
    "questions": {
        "turns": {"type": "noul", "instructions": "does it turn?"},
        "where": {"type": "choice", "criteria": {"the mill": None, "the river": "it runs"}},
        "old": {"type": "score", "criteria": ["new", "old", "very old"]},
    },
}
MASKS = {"points_per_crop": 4, "pred_iou_thresh": -9.0, "stability_score_thresh": 0.0, "output_bboxes_mask": True}


def shown(picture: Image.Image, text: str = "a small river") -> list[dict[str, Any]]:
    """A chat about a picture."""
    return [{"role": "user", "content": [{"type": "image", "image": picture}, {"type": "text", "text": text}]}]


@dataclass(frozen=True)
class Subject:
    """A task, a model, and how it is called: with one input, and with several; and how near answers must come."""

    task: str
    model: str
    one: Callable[[Any], Any]
    several: Callable[[Any], Any]
    tolerance: float = 0


SUBJECTS = {
    "TAPAS": Subject(
        "table-question-answering",
        "tapas",
        lambda pipe: pipe(table=TABLE, query="How many wheels?"),
        lambda pipe: pipe([{"table": TABLE, "query": "Who?"}, {"table": TABLE[:2], "query": "When was it built?"}]),
    ),
    "TAPAS, asked one after another": Subject(
        "table-question-answering",
        "tapas",
        lambda pipe: pipe(TABLE, "How many wheels?", sequential=True),
        lambda pipe: pipe(TABLE, ["Who?", "When?"], sequential=True, padding=True),
    ),
    "LayoutLM": Subject(
        "document-question-answering",
        "layoutlm",
        lambda pipe: pipe(image=PICTURES[0], question="Who built it?", word_boxes=WRITTEN, top_k=2),
        lambda pipe: pipe(
            [
                {"image": PICTURES[0], "question": "Where is it?", "word_boxes": WRITTEN * 6},
                {"question": "When?", "word_boxes": WRITTEN[:4]},
            ],
            top_k=3,
            max_seq_len=40,
            doc_stride=8,
        ),
    ),
    "Donut": Subject(
        "document-question-answering",
        "donut",
        lambda pipe: pipe(image=PICTURES[0], question="Who built it?"),
        lambda pipe: pipe([{"image": picture, "question": "When?"} for picture in PICTURES]),
    ),
    "CLAP": Subject(
        "zero-shot-audio-classification",
        "clap",
        lambda pipe: pipe(SOUNDS[0], candidate_labels=["a river", "a mill", "a dog"]),
        lambda pipe: pipe(SOUNDS, candidate_labels=["a river", "a mill"], hypothesis_template="Hear {}!", batch_size=2),
        tolerance=1e-5,  # sounds are not batched here
    ),
    "MusicGen": Subject(
        "text-to-audio",
        "musicgen",
        lambda pipe: pipe("the old mill", generate_kwargs={"max_new_tokens": 6}),
        lambda pipe: pipe(["the old mill", "a river"], generate_kwargs={"max_new_tokens": 6, "do_sample": False}),
    ),
    "OWL-ViT": Subject(
        "zero-shot-object-detection",
        "owlvit",
        lambda pipe: pipe(PICTURES[0], candidate_labels=["a river", "a mill"]),
        lambda pipe: pipe(
            [{"image": picture, "candidate_labels": ["mill", "dog"]} for picture in PICTURES], threshold=0.3, top_k=5
        ),
    ),
    "SAM": Subject(
        "mask-generation",
        "sam",
        lambda pipe: pipe(PICTURES[0], points_per_batch=16, **MASKS),
        lambda pipe: pipe(PICTURES, points_per_batch=8, output_rle_mask=True, **MASKS),
    ),
    "SuperGlue": Subject(
        "keypoint-matching",
        "superglue",
        lambda pipe: pipe(PICTURES[:2]),
        lambda pipe: pipe([PICTURES[:2], [PICTURES[2], PICTURES[2]]], threshold=0.05),
    ),
    "LLaVA": Subject(
        "image-text-to-text",
        "llava",
        lambda pipe: pipe(PICTURES[0], text="<image> a small river", max_new_tokens=6),
        lambda pipe: pipe(PICTURES[:2], text=["<image> a mill", "<image> a small river"], max_new_tokens=6),
    ),
    "LLaVA, in chats": Subject(
        "image-text-to-text",
        "llava",
        lambda pipe: pipe(text=shown(PICTURES[0]), max_new_tokens=6, return_full_text=False),
        lambda pipe: pipe(text=[shown(picture) for picture in PICTURES], max_new_tokens=6),
    ),
    "Qwen2-Audio": Subject(
        "any-to-any",
        "listener",
        lambda pipe: pipe(text="<|AUDIO|> the mill", audio=SOUNDS[0], max_new_tokens=6),
        lambda pipe: pipe([{"text": "<|AUDIO|> turns", "audio": sound} for sound in SOUNDS], max_new_tokens=6),
    ),
    "a chat model": Subject(
        "decision", "chooser", lambda pipe: pipe(DECISION), lambda pipe: pipe([DECISION, {**DECISION, "state": "old"}])
    ),
}


def unsuppressed(processor: Any, masks: Any, scores: Any, boxes: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Stand in for the last step of mask generation, which takes one mask of several that overlap by torchvision."""
    return masks, scores, masks, boxes


@pytest.fixture(autouse=True)
def what_is_missing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace steps that the libraries here do not allow, for both sides alike."""
    if not importlib.util.find_spec("torchvision"):
        sam = type(media.processor("Sam"))
        monkeypatch.setattr(sam, "post_process_for_mask_generation", unsuppressed)
    if not V5 and int(pandas.__version__.partition(".")[0]) > 2:  # which finds no column of a row by its number
        tapas = importlib.import_module("transformers.models.tapas.tokenization_tapas")
        monkeypatch.setattr(tapas, "_get_column_values", lambda table, column: {})
        monkeypatch.setattr(transformers.TapasTokenizer, "_get_column_values", lambda *args: {})


def answered(call: Callable[[Any], Any], pipe: Any) -> Any:
    """Call it with what it draws by chance drawn alike."""
    torch.manual_seed(3)
    np.random.seed(3)
    return call(pipe)


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_answers_are_those_of_transformers(torch_models: TorchModels, name: str) -> None:
    subject = SUBJECTS[name]
    pipe, reference = both(torch_models, subject.task, subject.model)
    assert pipe.plan.backend == "torch"
    assert {choice.reason for choice in pipe.plan.rejected} == {f"{subject.task} has no engine path yet"}
    assert isinstance(pipe, type(reference))
    for call in (subject.one, subject.several):
        wanted = answered(call, reference)
        assert wanted, "there is something to compare"
        assert_same(answered(call, pipe), wanted, subject.tolerance)


@pytest.mark.parametrize("name", [name for name in SUBJECTS if "," not in name])
def test_copies_and_pickles_answer_alike(torch_models: TorchModels, name: str) -> None:
    subject = SUBJECTS[name]
    pipe, reference = both(torch_models, subject.task, subject.model)
    twins = [copy.deepcopy(pipe)]
    try:
        pickle.dumps(reference)
    except (AttributeError, TypeError, RuntimeError) as theirs:  # a cache of a function in it, say
        with pytest.raises(type(theirs)):
            pickle.dumps(pipe)
    else:
        twins.append(pickle.loads(pickle.dumps(pipe)))
    for twin in twins:
        assert type(twin) is type(pipe)
        assert_same(answered(subject.one, twin), answered(subject.one, reference), tolerance=1e-5)


@pytest.mark.parametrize("task", ["text-to-audio", "text-to-speech"])
@pytest.mark.parametrize("text", ["the old mill", ["a", "the river"]], ids=["one", "a list"])
def test_text_is_spoken_alike(torch_models: TorchModels, task: str, text: Any) -> None:
    """The voice draws its rhythm by chance, and the numbers are drawn in the same order."""
    with pytest.warns(FallbackWarning, match="text-to-audio has no engine path yet"):
        pipe = tasks.noted(fastpipe.pipeline(task, model=torch_models["vits"]))
    reference = transformers.pipeline(task, model=torch_models["vits"], device="cpu")
    assert pipe.plan.backend == "torch"
    assert isinstance(pipe, type(reference))
    wanted = answered(lambda one: one(text), reference)
    assert_same(answered(lambda one: one(text), pipe), wanted, tolerance=0)
    assert all(one["audio"].size > 50 for one in (wanted if isinstance(text, list) else [wanted]))


@pytest.mark.skipif(not hasattr(transformers, "ParakeetForTDT"), reason="no transducers in this transformers")
def test_transducers_run_on_torch(torch_models: TorchModels) -> None:
    """No engine has a way for them, with Optimum or without, and so nobody is told to install it."""
    task, said = "automatic-speech-recognition", "neither as CTC nor as sequence-to-sequence models do"
    with pytest.warns(FallbackWarning, match=said):
        pipe = tasks.noted(fastpipe.pipeline(task, model=torch_models["parakeet"]))
    assert all(choice.reason.endswith(said) for choice in pipe.plan.rejected)
    reference = transformers.pipeline(task, model=torch_models["parakeet"], device="cpu")
    for given in (SOUNDS[0], SOUNDS):
        wanted = reference(copy.deepcopy(given))
        assert_same(pipe(given), wanted, tolerance=0)
        assert all(one["text"] for one in (wanted if isinstance(wanted, list) else [wanted]))


@pytest.mark.parametrize("name", ["CLAP", "OWL-ViT", "LayoutLM"])
def test_a_generator_is_answered_one_by_one(torch_models: TorchModels, name: str) -> None:
    subject = SUBJECTS[name]
    pipe, reference = both(torch_models, subject.task, subject.model)
    labels = ["a river", "a mill"]
    items: list[Any] = {
        "CLAP": SOUNDS,
        "OWL-ViT": [{"image": picture, "candidate_labels": labels} for picture in PICTURES],
        "LayoutLM": [{"question": "Who?", "word_boxes": WRITTEN[: 3 * n]} for n in (1, 2, 3)],
    }[name]
    options = {"candidate_labels": labels} if name == "CLAP" else {}

    def call(one: Any) -> Any:
        return list(one((item for item in items), **options))

    assert_same(answered(call, pipe), answered(call, reference), tolerance=1e-5)


class WordCountPipeline(transformers.Pipeline):
    """A task that nobody has heard of."""

    def _sanitize_parameters(self, scale: Any = None, **kwargs: Any) -> tuple[dict[str, Any], ...]:
        return {}, {}, {} if scale is None else {"scale": scale}

    def preprocess(self, text: str) -> Any:
        return self.tokenizer(text, return_tensors="pt")

    def _forward(self, inputs: Any) -> Any:
        return {"states": self.model(**inputs)[0]}

    def postprocess(self, outputs: Any, scale: float = 1.0) -> dict[str, Any]:
        return {"words": outputs["states"].shape[1] - 2, "size": scale * float(outputs["states"].abs().mean())}


@pytest.fixture
def registered() -> Iterator[str]:
    """A task as a later transformers may have it, or as a user adds it."""
    PIPELINE_REGISTRY.register_pipeline("word-count", WordCountPipeline, pt_model=transformers.AutoModel)
    yield "word-count"
    del PIPELINE_REGISTRY.supported_tasks["word-count"]


def test_a_task_that_is_not_known_yet(torch_models: TorchModels, registered: str) -> None:
    """It runs on torch, with a reason, and can be copied and pickled as any other."""
    pipe, reference = both(torch_models, registered, "feat")
    tasks.used.remove(pipe)  # the page is of tasks that there are
    assert pipe.plan.backend == "torch"
    assert isinstance(pipe, WordCountPipeline)
    for twin in (pipe, copy.deepcopy(pipe), pickle.loads(pickle.dumps(pipe))):
        assert type(twin) is type(pipe)
        for given in ("the old mill", ["a river", "the old mill by the river"]):
            assert_same(twin(given, scale=3.0), reference(given, scale=3.0), tolerance=1e-5)
    assert pipe("the old mill")["words"] == 3
    with pytest.raises(InputTooLongError, match="> 128"):
        pipe("mill " * 200)
