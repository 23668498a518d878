"""What fastpipe knows about the tasks it batches, as data.

A task that is not listed runs on torch, through transformers' own call path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastpipe.options import Accuracy


@dataclass(frozen=True, kw_only=True)
class Task:
    """Facts about one task of `transformers.pipeline`.

    Attributes:
        name: transformers' name of the task.
        export: The name that exporters know the task's model by.
        outputs: The model outputs that the task reads, in order. An empty tuple stands for "the first one".
        per_token: Whether those outputs have one row per token in axis 1, so that padding must be stripped from it.
        measure: How two precisions are compared: a name in `fastpipe.precision.accuracy.MEASURES`.
        accuracy: What a recipe must reach to be taken.
        sample: What the built-in sample is made of: "texts", "masked" texts or "questions".
        parameters: Arguments of the call that the sample goes through.
        generates: What kind of generator its models are, as in `fastpipe.backends.generators`; empty for encoders.
    """

    name: str
    export: str
    outputs: tuple[str, ...] = ("logits",)
    per_token: bool = False
    measure: str
    accuracy: Accuracy
    sample: str = "texts"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    generates: str = ""


# Where these numbers come from: docs/precision.md.
_LABELS = Accuracy(agreement=0.98, drift=0.1, instability=0.01)
_TOKEN_LABELS = Accuracy(agreement=0.98, drift=0.25, instability=0.05)
_EMBEDDINGS = Accuracy(agreement=0.99, worst=0.98, instability=0.0005)
_NEXT_TOKENS = Accuracy(agreement=0.93, drift=0.15)
# One number per text, where the order of the texts is what counts.
ORDER = Accuracy(agreement=0.95, drift=0.4, instability=0.05)


TASKS = {
    task.name: task
    for task in (
        Task(
            name="text-classification",
            export="text-classification",
            measure="labels",
            accuracy=_LABELS,
            parameters={"truncation": True},
        ),
        Task(
            name="zero-shot-classification",
            export="text-classification",
            measure="labels",
            accuracy=_LABELS,
            parameters={"candidate_labels": ["travel", "politics"]},
        ),
        Task(
            name="token-classification",
            export="token-classification",
            per_token=True,
            measure="token-labels",
            accuracy=_TOKEN_LABELS,
            parameters={"is_split_into_words": False},
        ),
        Task(
            name="fill-mask",
            export="fill-mask",
            per_token=True,
            measure="masked-tokens",
            accuracy=_TOKEN_LABELS,
            sample="masked",
            parameters={"tokenizer_kwargs": {"truncation": True}},
        ),
        Task(
            name="feature-extraction",
            export="feature-extraction",
            outputs=(),
            per_token=True,
            measure="embeddings",
            accuracy=_EMBEDDINGS,
            parameters={"truncation": True},
        ),
        Task(
            name="question-answering",
            export="question-answering",
            outputs=("start_logits", "end_logits"),
            per_token=True,
            measure="answers",
            accuracy=_TOKEN_LABELS,
            sample="questions",
        ),
    )
}

# Tasks whose models generate. Of speech recognition it is those with a decoder; the others are encoders.
GENERATORS = {
    name: Task(name=name, export=kind, measure="next-tokens", accuracy=_NEXT_TOKENS, generates=kind)
    for name, kind in (
        ("text-generation", "causal"),
        ("text2text-generation", "seq2seq"),
        ("summarization", "seq2seq"),
        ("translation", "seq2seq"),
        ("automatic-speech-recognition", "speech"),
    )
}


def find_task(name: str, config: Any) -> Task | None:
    """Find what is known of a task for a model; nothing where transformers' own call path serves.

    Args:
        name: transformers' name of the task.
        config: The model's config.
    """
    has_decoder = bool(getattr(config, "is_encoder_decoder", False))
    generator = GENERATORS.get(name)
    if generator is not None and has_decoder == (generator.generates != "causal"):
        return generator
    return TASKS.get(name)
