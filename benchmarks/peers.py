"""Peers that are no pipelines of transformers, each behind the call that the other contenders have."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import data
from benchmarks.contenders import UnavailableError
from benchmarks.loaders import Loaded
from fastpipe.hardware import detect_hardware

# By backend of sentence-transformers: arguments for its engine.
_ENGINES: dict[str, dict[str, Any]] = {
    "torch": {},
    "onnx": {"provider": "CPUExecutionProvider"},
    # The engine's default would run fp32 weights in bf16 where the CPU has it, which is another precision.
    "openvino": {"ov_config": {"INFERENCE_PRECISION_HINT": "f32"}},
}


class Sentences:
    """A model of sentence-transformers, which sorts by length and batches on its own."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __call__(self, texts: Any, batch_size: int = 32, truncation: bool = True) -> Any:
        """Give the vector of each text, which is always truncated: float32 (texts, width), or (width,) for one."""
        return self.model.encode(texts, batch_size=batch_size, show_progress_bar=False)


def sentence_transformers(workspace: str, model: str, *, backend: str, quantized: bool) -> Loaded:
    """Load sentence-transformers on one of its backends; int8 is its dynamic ONNX quantization for AVX512-VNNI."""
    folder = Path(data.save_model(workspace, model))
    # The library is typed: as a name it would be checked from end to end.
    library: Any = importlib.import_module("sentence_transformers")
    engine = dict(_ENGINES[backend])
    if backend != "torch":
        exported = Path(workspace) / "sentence-transformers" / f"{model}-{backend}"
        if not exported.is_dir():
            made = library.SentenceTransformer(
                str(folder), backend=backend, device="cpu", model_kwargs={**engine, "export": True}
            )
            made.save_pretrained(str(exported))
        if quantized and not (exported / "onnx" / "model_qint8_avx512_vnni.onnx").is_file():
            plain = library.SentenceTransformer(str(exported), backend=backend, device="cpu", model_kwargs=dict(engine))
            library.export_dynamic_quantized_onnx_model(plain, "avx512_vnni", str(exported))
        if backend == "onnx":
            name = "model_qint8_avx512_vnni.onnx" if quantized else "model.onnx"
            engine = {**engine, "file_name": f"onnx/{name}"}
        folder = exported
    loaded = library.SentenceTransformer(str(folder), backend=backend, device="cpu", model_kwargs=engine)
    kind = "weights int8, activations int8 per tensor" if quantized else "weights and activations fp32"
    return Loaded(
        pipe=Sentences(loaded),
        config=loaded[0].auto_model.config,
        task=data.MODELS[model].task,
        detail=f"{kind}; sentence vectors (mean-pooled, of length 1)",
    )


class Encoder:
    """An encoder of CTranslate2's on rows sorted by length, and a model's own head in torch.

    Args:
        encoder: `ctranslate2.Encoder`.
        tokenizer: transformers' tokenizer.
        model: transformers' model, of which only the head is run.
        head: Gives each row's answer: see `_HEADS`.
    """

    def __init__(self, encoder: Any, tokenizer: Any, model: Any, head: Callable[..., list[Any]]) -> None:
        self.encoder = encoder
        self.tokenizer = tokenizer
        self.model = model
        self.head = head

    def __call__(self, texts: Any, batch_size: int = 32, truncation: bool = True) -> Any:
        """Give the answer for each text, or for a single one."""
        import torch

        rows = texts if isinstance(texts, list) else [texts]
        ids = self.tokenizer(rows, truncation=truncation)["input_ids"]
        order = sorted(range(len(ids)), key=lambda row: len(ids[row]))
        answers: list[Any] = [None] * len(ids)
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            states = self.encoder.forward_batch([ids[row] for row in batch]).last_hidden_state
            with torch.inference_mode():
                hidden = torch.from_numpy(np.array(states))  # (rows, tokens of the longest, width)
                made = self.head(self.model, hidden, [len(ids[row]) for row in batch])
            for row, answer in zip(batch, made, strict=True):
                answers[row] = answer
        return answers if isinstance(texts, list) else answers[0]


def _label(model: Any, hidden: Any, lengths: list[int]) -> list[Any]:
    """DistilBERT's head for text-classification: {"label", "score"} for each row."""
    logits = model.classifier(model.pre_classifier(hidden[:, 0]).relu())
    scores, labels = logits.softmax(-1).max(-1)
    names = model.config.id2label
    return [
        {"label": names[label], "score": score} for label, score in zip(labels.tolist(), scores.tolist(), strict=True)
    ]


def _entities(model: Any, hidden: Any, lengths: list[int]) -> list[Any]:
    """BERT's head for token-classification: a list of {"entity", "score", "index"} for each row, in place of words."""
    scores, labels = model.classifier(hidden).softmax(-1).max(-1)
    names = model.config.id2label
    return [
        [
            {"entity": names[labels_of[index]], "score": scores_of[index], "index": index}
            for index in range(1, length - 1)  # not the two special tokens
            if names[labels_of[index]] != "O"
        ]
        for labels_of, scores_of, length in zip(labels.tolist(), scores.tolist(), lengths, strict=True)
    ]


def _vectors(model: Any, hidden: Any, lengths: list[int]) -> list[Any]:
    """Hidden states of each row: float32 (1, tokens, width), without padding."""
    return [hidden[row : row + 1, :length].numpy() for row, length in enumerate(lengths)]


# By task: the head, and what the tables say of its answers.
_HEADS: dict[str, tuple[Callable[..., list[Any]], str]] = {
    "text-classification": (_label, "head fp32 in torch"),
    "token-classification": (_entities, "head fp32 in torch; entities without words and offsets"),
    "feature-extraction": (_vectors, "token vectors as arrays"),
}


def ctranslate2(workspace: str, model: str) -> Loaded:
    """Load CTranslate2's int8 encoder with all cores.

    Raises:
        UnavailableError: It cannot convert the model.
    """
    folder = data.save_model(workspace, model)
    import transformers

    library: Any = importlib.import_module("ctranslate2")
    task = data.MODELS[model].task
    head, answers = _HEADS[task]
    converted = Path(workspace) / "ctranslate2" / model
    if not converted.is_dir():
        try:
            library.converters.TransformersConverter(folder).convert(str(converted))
        except Exception as error:  # of many kinds: an unknown config, an attribute that a newer transformers lacks
            raise UnavailableError(f"CTranslate2 {library.__version__} cannot convert it: {error}") from error
    threads = detect_hardware().cores
    encoder = library.Encoder(str(converted), device="cpu", compute_type="int8", intra_threads=threads)
    family = transformers.AutoConfig.from_pretrained(folder).architectures[0]
    whole = getattr(transformers, family).from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return Loaded(
        pipe=Encoder(encoder, tokenizer, whole, head),
        config=whole.config,
        task=task,
        detail=f"weights int8 per channel, activations int8 per token, {encoder.compute_type}; {answers}",
    )
