"""Calls of the tasks that transformers 5 dropped, by name; `record.py` keeps what transformers 4.57 answers to each."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tests.golden.models import RIVER

RESULTS = Path(__file__).with_name("results.json")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pipeline, and one call of it."""

    task: str
    model: str
    call: Callable[[Any], Any]
    options: dict[str, Any] = field(default_factory=dict)

    def answer(self, make: Callable[..., Any], folder: str, **options: Any) -> Any:
        """What the pipeline answers, as plain values."""
        return plain(self.call(make(self.task, model=folder, device="cpu", **self.options, **options)))


def plain(result: Any) -> Any:
    """Turn a result into what JSON has."""
    if isinstance(result, Image.Image):
        return {"mode": result.mode, "size": list(result.size), "bytes": base64.b64encode(result.tobytes()).decode()}
    if isinstance(result, torch.Tensor):
        return {"dtype": str(result.dtype), "values": result.tolist()}
    if isinstance(result, dict):
        return {name: plain(value) for name, value in result.items()}
    if isinstance(result, (list, tuple)):
        return [plain(item) for item in result]
    return result


@cache
def picture(seed: int = 0, size: tuple[int, int] = (32, 32)) -> Image.Image:
    """An image of coarse noise, the same on every machine."""
    noise = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.NEAREST)


TOWER = "The tower is in Paris, it is 330 metres high. " * 30
BEIJING = "北京是中华人民共和国的首都，位于华北平原。长城在北京的北边，建于明朝。"
MIXED = "Die Straße führt nach 東京, naïve café-goers (¿no?) say: 'it’s 12.5 km!' 🙂 #ok"
LONG = {"max_seq_len": 64, "doc_stride": 16}
ASKED = [{"question": "Where?", "context": RIVER}, {"question": "Who built it?", "context": TOWER}]


def _answers(call: Callable[[Any], Any], **options: Any) -> Case:
    return Case(task="question-answering", model="qa", call=call, options=options)


QUESTIONS = {
    "one": _answers(lambda p: p(question="Where is the mill?", context=RIVER)),
    "by position": _answers(lambda p: p("Where is the mill?", RIVER)),
    "a dict": _answers(lambda p: p(ASKED[0])),
    "dicts": _answers(lambda p: p(ASKED, **LONG)),
    "dicts as arguments": _answers(lambda p: p(*ASKED, **LONG)),
    "examples": _answers(lambda p: p([p.create_sample(question="Where?", context=c) for c in (RIVER, BEIJING)])),
    "samples of lists": _answers(lambda p: p(p.create_sample(question=["Where?", "Who?"], context=[RIVER, MIXED]))),
    "a generator": _answers(lambda p: list(p((item for item in ASKED), **LONG))),
    "data=": _answers(lambda p: p(data=ASKED[:1])),
    "X=": _answers(lambda p: p(X=ASKED, **LONG)),
    "lists": _answers(lambda p: p(question=["Where?", "When?"], context=[RIVER, TOWER], **LONG)),
    "one context": _answers(lambda p: p(question=["Where?", "When was it built?", "Who?"], context=RIVER)),
    "several answers": _answers(lambda p: p(question="Where?", context=RIVER, top_k=4)),
    "topk": _answers(lambda p: p(question="Where?", context=RIVER, topk=2)),
    "more answers than there are": _answers(lambda p: p(question="Who?", context="Anna.", top_k=5)),
    "windows": _answers(lambda p: p(question="Where?", context=TOWER, top_k=3, **LONG)),
    "windows of the default": _answers(lambda p: p(question="How high?", context=TOWER, top_k=2, max_seq_len=100)),
    "perhaps none": _answers(
        lambda p: p(question="Where?", context=TOWER, handle_impossible_answer=True, top_k=3, **LONG)
    ),
    "perhaps none, one": _answers(lambda p: p(question="Where?", context=RIVER, handle_impossible_answer=True)),
    "parts of words": _answers(lambda p: p(question="Where?", context=RIVER, align_to_words=False, top_k=3)),
    "short": _answers(lambda p: p(question="Where?", context=RIVER, max_answer_len=1, top_k=3)),
    "long": _answers(lambda p: p(question="Where?", context=TOWER, max_answer_len=50, top_k=2, **LONG)),
    "Chinese": _answers(lambda p: p(question="长城在哪里？", context=BEIJING, top_k=3)),
    "Chinese windows": _answers(lambda p: p(question="在哪里？", context=BEIJING * 5, top_k=2, **LONG)),
    "scripts": _answers(lambda p: p(question="Wohin?", context=MIXED, top_k=4)),
    "padded": _answers(lambda p: p(question="Where?", context=RIVER, padding="max_length", max_seq_len=64)),
    "set at construction": _answers(lambda p: p(question="Where?", context=TOWER), top_k=2, **LONG),
    "with spaces": _answers(lambda p: p(question=" Where ?", context="\n  " + RIVER + "\t \n", top_k=2)),
}


QUESTIONS["no token types"] = Case(
    task="question-answering",
    model="distilled",
    call=lambda p: p(question=["Where?", "Who built it?"], context=[TOWER, RIVER], top_k=2, **LONG),
)


def _by_words(call: Callable[[Any], Any]) -> Case:
    return Case(task="question-answering", model="by words", call=call)


QUESTIONS |= {
    "by words": _by_words(lambda p: p(question="Where is it?", context=RIVER)),
    "by words, several": _by_words(lambda p: p(question="Who built it?", context=RIVER, top_k=3)),
    "by words, windows": _by_words(
        lambda p: p(question="Who?", context="  " + RIVER * 4, top_k=4, max_seq_len=40, doc_stride=12)
    ),
    "by words, cut": _by_words(lambda p: p(question="Who built it? " * 9, context=RIVER, max_question_len=5)),
    "by words, perhaps none": _by_words(
        lambda p: p(question=["Who?", "Where?"], context=RIVER, handle_impossible_answer=True, top_k=2)
    ),
}


def _texts(task: str, model: str, call: Callable[[Any], Any], **options: Any) -> Case:
    return Case(task=task, model=model, call=call, options=options)


TEXT = "a small river runs past the old mill, and the mill still turns when it rains on the hills"
TEXTS = [TEXT, "the old mill", "rivers run"]
FEW = {"max_new_tokens": 8}
GENERATED = {
    "summary": _texts("summarization", "summarizer", lambda p: p(TEXT)),
    "summaries": _texts("summarization", "summarizer", lambda p: p(TEXTS, **FEW)),
    "summary, lengths": _texts("summarization", "summarizer", lambda p: p(TEXT, min_length=6, max_length=12)),
    "summary, tensors": _texts("summarization", "summarizer", lambda p: p(TEXT, return_tensors=True, **FEW)),
    "summary, text": _texts("summarization", "summarizer", lambda p: p(TEXT, return_text=True, **FEW)),
    "summary, beams": _texts(
        "summarization", "summarizer", lambda p: p(TEXT, num_beams=3, num_return_sequences=2, **FEW)
    ),
    "summaries, several each": _texts(
        "summarization", "summarizer", lambda p: p(TEXTS, num_beams=2, num_return_sequences=2, **FEW)
    ),
    "summary, truncation": _texts("summarization", "summarizer", lambda p: p(TEXT * 4, truncation=True, **FEW)),
    "summary, spaces": _texts(
        "summarization", "summarizer", lambda p: p(TEXT, clean_up_tokenization_spaces=True, max_new_tokens=12)
    ),
    "summary, at construction": _texts(
        "summarization", "summarizer", lambda p: p(TEXT), max_new_tokens=7, num_beams=1, truncation=True
    ),
    "summary, prefix": _texts("summarization", "prefixed", lambda p: p(TEXT, max_new_tokens=10)),
    "summary, its config's lengths": _texts(
        "summarization", "prefixed", lambda p: p("the old mill", max_new_tokens=12)
    ),
    "summary, nested list": _texts("summarization", "summarizer", lambda p: p([TEXTS], **FEW)),
    "summary, a generator": _texts("summarization", "summarizer", lambda p: list(p((text for text in TEXTS), **FEW))),
    "translation": _texts("translation_en_to_fr", "translator", lambda p: p(TEXTS)),
    "translation, one": _texts("translation_en_to_de", "translator", lambda p: p(TEXT, max_length=10)),
    "translation, greedy": _texts("translation_en_to_de", "translator", lambda p: p(TEXT, num_beams=1, **FEW)),
    "translation, no languages": _texts("translation", "translator", lambda p: p(TEXTS, **FEW)),
    "translation, prefix": _texts("translation_en_to_fr", "prefixed", lambda p: p(TEXTS, max_new_tokens=9)),
    "translation, prefix of another": _texts("translation_en_to_de", "prefixed", lambda p: p(TEXTS, max_new_tokens=9)),
    "translation, the config's": _texts("translation", "prefixed", lambda p: p(TEXTS, max_new_tokens=9)),
    "translation, tensors": _texts(
        "translation_en_to_fr", "translator", lambda p: p(TEXTS, return_tensors=True, **FEW)
    ),
    "text": _texts("text2text-generation", "prefixed", lambda p: p(TEXT, max_new_tokens=9)),
    "texts": _texts("text2text-generation", "prefixed", lambda p: p(TEXTS, max_new_tokens=9, num_beams=1)),
    "texts, batch": _texts("text2text-generation", "prefixed", lambda p: p(TEXTS, max_new_tokens=9, batch_size=2)),
    "text, stop": _texts("text2text-generation", "prefixed", lambda p: p(TEXT, stop_sequence="a", max_new_tokens=20)),
    "text, penalty": _texts(
        "text2text-generation",
        "prefixed",
        lambda p: p(TEXT, repetition_penalty=1.5, length_penalty=0.5, max_new_tokens=9),
    ),
    "text, usual lengths": _texts("text2text-generation", "prefixed", lambda p: p("the mill", num_beams=2)),
}

HERE, THERE = picture(0), picture(1, (40, 56))
SEEN = {
    "answers": _texts("visual-question-answering", "answerer", lambda p: p(image=HERE, question="What is it?")),
    "answers, alias": _texts("vqa", "answerer", lambda p: p(HERE, "What is it?", top_k=2)),
    "answers, a dict": _texts(
        "visual-question-answering", "answerer", lambda p: p({"image": HERE, "question": "What?"}, top_k=1)
    ),
    "answers, dicts": _texts(
        "visual-question-answering", "answerer", lambda p: p([{"image": i, "question": "What?"} for i in (HERE, THERE)])
    ),
    "answers, images": _texts("visual-question-answering", "answerer", lambda p: p([HERE, THERE], "What?", top_k=2)),
    "answers, questions": _texts(
        "visual-question-answering", "answerer", lambda p: p(HERE, ["What?", "Who?"], top_k=2)
    ),
    "answers, both": _texts(
        "visual-question-answering", "answerer", lambda p: p([HERE, THERE], ["What?", "Who is it?"], top_k=9)
    ),
    "answers, cut": _texts(
        "visual-question-answering", "answerer", lambda p: p(HERE, "What " * 50, truncation=True, top_k=3)
    ),
    "caption": _texts("image-to-text", "captioner", lambda p: p(HERE, max_new_tokens=8)),
    "captions": _texts("image-to-text", "captioner", lambda p: p([HERE, THERE], max_new_tokens=8)),
    "caption, options": _texts(
        "image-to-text", "captioner", lambda p: p(HERE, generate_kwargs={"num_beams": 2, "max_new_tokens": 6})
    ),
    "caption, at construction": _texts("image-to-text", "captioner", lambda p: p(THERE), max_new_tokens=5),
    "caption, batch": _texts("image-to-text", "captioner", lambda p: p([HERE, THERE], max_new_tokens=5, batch_size=2)),
    "answers, generated": _texts(
        "visual-question-answering", "blip answers", lambda p: p(HERE, ["What?", "Who is it?"]), max_new_tokens=5
    ),
    "caption, blip": _texts("image-to-text", "blip", lambda p: p([HERE, THERE], max_new_tokens=6)),
    "caption, prompt": _texts("image-to-text", "blip", lambda p: p(HERE, prompt="a picture of", max_new_tokens=6)),
    "caption, git": _texts("image-to-text", "git", lambda p: p([HERE, THERE], max_new_tokens=6)),
    "caption, git, batch": _texts("image-to-text", "git", lambda p: p([HERE, THERE], max_new_tokens=6, batch_size=2)),
    "caption, git, prompt": _texts("image-to-text", "git", lambda p: p(HERE, prompt="a picture", max_new_tokens=6)),
    "larger": _texts("image-to-image", "enlarger", lambda p: p(HERE.resize((16, 12)))),
    "larger, several": _texts("image-to-image", "enlarger", lambda p: p([HERE.resize((8, 8)), THERE.resize((12, 8))])),
}

CASES = {
    f"{kind}: {name}": case
    for kind, cases in (("questions", QUESTIONS), ("texts", GENERATED), ("images", SEEN))
    for name, case in cases.items()
}
