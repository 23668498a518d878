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
        sample: What the built-in sample is made of: "texts", "masked" texts, "questions", "images" or "sounds".
        parameters: Arguments of the call that the sample goes through.
        modality: What an input is: "text", whose rows are tokens and may be padded, or "image" or "audio", whose rows
            are numbers of some shape, never padded, and batched only among rows of the same shape.
        also: Outputs to keep beside those of `outputs`, where a model has them.
        shared: Inputs that belong to all rows of a batch, such as the texts that images are compared with.
        nested: The entry of what `preprocess` gives that holds more of the model's inputs; empty without one.
        window: Inputs of a list that are prepared and run together, which bounds the memory of what is on its way.
        generates: What kind of generator its models are, as in `fastpipe.precision.recipes`; empty for encoders.
    """

    name: str
    export: str
    outputs: tuple[str, ...] = ("logits",)
    per_token: bool = False
    measure: str
    accuracy: Accuracy
    sample: str = "texts"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    modality: str = "text"
    also: tuple[str, ...] = ()
    shared: frozenset[str] = frozenset()
    nested: str = ""
    # Lists are at hand: a window of one only bounds memory. Sorting more texts gains nothing; pictures are large.
    window: int = 4096
    generates: str = ""


# Where these numbers come from: docs/precision.md.
_LABELS = Accuracy(agreement=0.98, drift=0.1, instability=0.01)
_TOKEN_LABELS = Accuracy(agreement=0.98, drift=0.25, instability=0.05)
_EMBEDDINGS = Accuracy(agreement=0.99, worst=0.98, instability=0.0005)
_NEXT_TOKENS = Accuracy(agreement=0.93, drift=0.15)
# What is heard in made-up sounds is a close choice between tokens: how far the distributions move says more.
_HEARD_TOKENS = Accuracy(agreement=0.8, drift=0.1)
# One number per text, where the order of the texts is what counts.
ORDER = Accuracy(agreement=0.95, drift=0.4, instability=0.05)
# A few dozen pictures or sounds: one of them is a few percent.
_FEW_LABELS = Accuracy(agreement=0.96, drift=0.1, instability=0.01)
_FEATURES = Accuracy(agreement=0.99, worst=0.98, instability=0.002)
_PLACES = Accuracy(agreement=0.98, worst=0.95, instability=0.05)
_DEPTHS = Accuracy(agreement=0.98, worst=0.95, drift=0.2, instability=0.02)

# Pictures of 224 pixels square take 0.6 MB once they are prepared, those that detectors see twenty times as much.
_PICTURES: dict[str, Any] = {"modality": "image", "sample": "images", "window": 32}
_SOUNDS: dict[str, Any] = {"modality": "audio", "sample": "sounds", "window": 8}
_TEXTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})


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
        Task(
            name="image-classification",
            export="image-classification",
            measure="labels",
            accuracy=_FEW_LABELS,
            **_PICTURES,
        ),
        Task(
            name="image-feature-extraction",
            export="feature-extraction",
            outputs=(),
            also=("pooler_output",),
            measure="features",
            accuracy=_FEATURES,
            **_PICTURES,
        ),
        Task(
            name="object-detection",
            export="object-detection",
            outputs=("logits", "pred_boxes"),
            measure="boxes",
            accuracy=_PLACES,
            **_PICTURES,
        ),
        Task(
            name="image-segmentation",
            export="image-segmentation",
            outputs=(),
            also=("pred_boxes", "pred_masks", "masks_queries_logits"),
            measure="pixel-labels",
            accuracy=_PLACES,
            **_PICTURES,
        ),
        Task(
            name="depth-estimation",
            export="depth-estimation",
            outputs=("predicted_depth",),
            measure="depths",
            accuracy=_DEPTHS,
            **_PICTURES,
        ),
        Task(
            name="zero-shot-image-classification",
            export="zero-shot-image-classification",
            outputs=("logits_per_image",),
            measure="labels",
            accuracy=_FEW_LABELS,
            parameters={"candidate_labels": ["a red circle", "blue stripes", "noise", "a grey wall"]},
            shared=_TEXTS,
            nested="text_inputs",
            **_PICTURES,
        ),
        Task(
            name="audio-classification",
            export="audio-classification",
            measure="labels",
            accuracy=_FEW_LABELS,
            **_SOUNDS,
        ),
        # Only models with a CTC head: those that generate text have no engine path here.
        Task(
            name="automatic-speech-recognition",
            export="automatic-speech-recognition",
            measure="frames",
            accuracy=_TOKEN_LABELS,
            **_SOUNDS,
        ),
    )
}

# Tasks whose models generate. Of speech recognition it is those with a decoder; the others are encoders.
GENERATORS = {
    name: Task(
        name=name,
        export=kind,
        measure="next-tokens",
        accuracy=_HEARD_TOKENS if kind == "speech" else _NEXT_TOKENS,
        generates=kind,
    )
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
