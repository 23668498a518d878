"""What fastpipe knows about the tasks it batches, as data.

A task that is not listed runs on torch, through transformers' own call path.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Task:
    """Facts about one task of `transformers.pipeline`.

    Attributes:
        name: transformers' name of the task.
        export: The name that exporters know the task's model by.
        outputs: The model outputs that the task reads, in order. An empty tuple stands for "the first one".
        per_token: Whether those outputs have one row per token in axis 1, so that padding must be stripped from it.
    """

    name: str
    export: str
    outputs: tuple[str, ...] = ("logits",)
    per_token: bool = False


TASKS = {
    task.name: task
    for task in (
        Task(name="text-classification", export="text-classification"),
        Task(name="zero-shot-classification", export="text-classification"),
        Task(name="token-classification", export="token-classification", per_token=True),
        Task(name="fill-mask", export="fill-mask", per_token=True),
        Task(name="feature-extraction", export="feature-extraction", outputs=(), per_token=True),
        Task(
            name="question-answering",
            export="question-answering",
            outputs=("start_logits", "end_logits"),
            per_token=True,
        ),
    )
}
