"""One call of a fast pipeline: rows, batches, results in the order of the inputs.

Batching is a prefetch. Each input goes through the task's own `preprocess`; the rows that come out run in sorted
batches; then each row goes through the task's own `_forward` and `postprocess`, with the model's answer to exactly
those tensors already at hand. A `_forward` that asks the model something else is answered by the model. So a task's
code is transformers' own, and results have the shapes of single calls. Where its steps are simple, `shortcuts` does the
same for many items at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
from transformers.pipelines.base import ChunkPipeline

from fastpipe.artifacts.build import examples
from fastpipe.backends.base import INPUTS, TEXT_INPUTS
from fastpipe.batching import neutrality, shapes
from fastpipe.batching.collate import pad_values, run_batch
from fastpipe.batching.cost import USUAL, Cost
from fastpipe.batching.planner import Limits, Padding, split
from fastpipe.batching.streams import ENOUGH, PADDED_TOKENS, in_order
from fastpipe.pipelines import shortcuts
from fastpipe.pipelines.guards import evaluating, exclusively, naming
from fastpipe.pipelines.inputs import check, check_length
from fastpipe.pipelines.quiet import quietly
from fastpipe.pipelines.rows import Answer, Row, row_of
from fastpipe.pipelines.standin import StandIn, standing_in
from fastpipe.tasks import Task

Run: TypeAlias = "Callable[[Mapping[str, np.ndarray[Any, Any]]], Answer]"


class RowRunner(Protocol):
    """What the call path needs of a model: see `fastpipe.backends.base.Runner`."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the model's inputs."""
        ...

    def run(self, batch: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Run one batch."""
        ...

    def beside(self, streams: int) -> Run | None:
        """Give what runs a batch while others run; asked for where `Batching.streams` is more than one."""
        ...


@dataclass(kw_only=True)
class Batching:
    """How a pipeline batches.

    Attributes:
        runner: Runs a batch.
        per_token: Whether axis 1 of the outputs counts tokens.
        max_tokens: Tokens that the model has positions for; `None` for no limit.
        padding: What the model does with padded rows; `None` until it has been measured.
        cost: What batches cost.
        limits: What one batch may hold.
        streams: Batches of a list that run at once.
        overlaps: Whether it can run in one thread while another tokenizes.
        task: What is known of the task; `None` stands for a task of texts.
        numbers: What a batch of rows that are no texts may hold, in numbers of their inputs.
    """

    runner: RowRunner
    per_token: bool
    max_tokens: int | None
    padding: Padding | None
    cost: Cost = USUAL
    limits: Limits = field(default_factory=Limits)
    streams: int = 1
    overlaps: bool = False
    task: Task | None = None
    numbers: int = 0

    @property
    def modality(self) -> str:
        """What an input is."""
        return self.task.modality if self.task else "text"

    @property
    def shared(self) -> frozenset[str]:
        """Inputs of the model that belong to all rows of a batch."""
        return self.task.shared if self.task else frozenset()


class Call:
    """One call of a pipeline: its parameters, and the steps on the way."""

    def __init__(
        self,
        pipe: Any,
        batching: Batching,
        preprocess: dict[str, Any],
        forward: dict[str, Any],
        postprocess: dict[str, Any],
        *,
        batch_size: int | None,
    ) -> None:
        self.pipe = pipe
        self.batching = batching
        self.preprocess = preprocess
        self.forward = forward
        self.postprocess = postprocess
        self.batch_size = batch_size
        self.done: Callable[[int], object] = int  # told how many more inputs have results
        self.abandoned = False  # set where nobody waits for the rest any more
        self.chunks = isinstance(pipe, ChunkPipeline)
        self.shortcut = shortcuts.find(pipe, preprocess)
        self.window = batching.task.window if batching.task else sys.maxsize  # inputs on their way at once

    def one(self, item: Any) -> Any:
        """Process a single input, without the detours that only batches need."""
        rows = self.rows([item], start=None)
        if len(rows) > 1:
            return self.run(rows, [None])[0]
        if self.shortcut and rows[0].feed:
            answered = list(zip(rows, self._run_batch(rows, [None], self.batching.runner.run), strict=True))
            made = self._decode([answered])
            return made[0] if made else self._replay(answered, None)
        return self._finish([self._ask(rows[0])], None)

    def alone(self, item: Any, index: int) -> Any:
        """Process an input of a call by itself."""
        return self.run(self.prepare(item, index, 0), [index])[0]

    def rows(self, items: list[Any], start: int | None = 0) -> list[Row]:
        """Take a list through the task's `preprocess`.

        Args:
            items: The inputs.
            start: Index of the first in the whole call; `None` for a single input, which has none.
        """
        together = self._tokenized(items, start)
        if together is not None:
            return together
        return [row for owner, item in enumerate(items) for row in self.prepare(item, _index(start, owner), owner)]

    def _tokenized(self, items: list[Any], start: int | None) -> list[Row] | None:
        """Tokenize texts together; `None` where each must go through `preprocess`, if only to find the one at fault."""
        encode = self.shortcut.encode if self.shortcut else None
        if encode is None or not all(isinstance(item, str) for item in items):
            return None
        for owner, item in enumerate(items):
            self.check(item, _index(start, owner))
        try:
            with exclusively(self.pipe.tokenizer), quietly():
                rows = encode(self.pipe, items, self.preprocess)
        except Exception:
            return None
        for row in rows or ():
            check_length(row.tokens, self.batching.max_tokens, _index(start, row.owner))
        return rows

    def check(self, item: Any, index: int | None) -> None:
        """Raise where an input cannot be meant: see `fastpipe.pipelines.inputs`."""
        check(item, index, self.batching.modality)

    def prepare(self, item: Any, index: int | None, owner: int) -> list[Row]:
        """Take one input through the task's `preprocess`."""
        self.check(item, index)
        with naming(index, self.preprocess), exclusively(self.pipe.tokenizer), quietly():
            prepared = self.pipe.preprocess(item, **self.preprocess)
            rows = [self._row(inputs, owner) for inputs in (prepared if self.chunks else [prepared])]
        for row in rows:
            check_length(row.tokens, self.batching.max_tokens, index)
        return rows

    def _row(self, inputs: Any, owner: int) -> Row:
        """Find the tensors among what `preprocess` gave; a row that is not of shape (1, tokens) is never batched."""
        if self.batching.task and self.batching.modality != "text":
            return row_of(inputs, owner, INPUTS, self.batching.task)
        tensors = {name: inputs[name] for name in TEXT_INPUTS if name in inputs}
        plain = "input_ids" in tensors and all(t.ndim == 2 and t.shape[0] == 1 for t in tensors.values())
        return Row(owner=owner, prepared=inputs, feed={n: t.numpy() for n, t in tensors.items()} if plain else {})

    def run(self, rows: list[Row], indices: Any) -> list[Any]:
        """Run rows in batches, and give each owner's result as soon as its last row is there."""
        twins: dict[Any, list[int]] = {}
        for position, row in enumerate(rows):
            twins.setdefault(row.content() if row.feed else position, []).append(position)
        groups = list(twins.values())
        owned = [0] * len(indices)
        for row in rows:
            owned[row.owner] += 1
        waiting: list[dict[int, Answer | None]] = [{} for _ in indices]
        results: list[Any] = [None] * len(indices)
        padding = self._padding() if len(groups) > 1 else Padding.SINGLE
        batches, run, streams = self._planned([rows[group[0]] for group in groups], padding)

        def answer_to(batch: list[int]) -> list[Answer | None]:
            if self.abandoned:
                raise CancelledError
            return self._run_batch([rows[groups[member][0]] for member in batch], indices, run)

        for batch, answers in zip(batches, in_order(answer_to, batches, streams), strict=True):
            complete: list[int] = []
            for member, answer in zip(batch, answers, strict=True):
                for twin, position in enumerate(groups[member]):
                    if twin and answer is not None:  # what one caller does to a result stays with that result
                        answer = {name: values.copy() for name, values in answer.items()}
                    owner = rows[position].owner
                    waiting[owner][position] = answer
                    if len(waiting[owner]) == owned[owner]:
                        complete.append(owner)
            answered = [[(rows[p], answer) for p, answer in sorted(waiting[owner].items())] for owner in complete]
            made = self._decode(answered) if complete else []
            for place, owner in enumerate(complete):
                waiting[owner] = {}
                results[owner] = made[place] if made else self._replay(answered[place], indices[owner])
            self.done(len(complete))
        return results

    def _planned(self, rows: list[Row], padding: Padding) -> tuple[list[list[int]], Run, int]:
        """Split rows into batches; say what runs one, and how many run at once."""
        limits, streams = replace(self.batching.limits, rows=self.batch_size), self.batching.streams
        if self.batching.modality != "text":
            shared, most = self.batching.shared, self.batching.numbers
            keys = [shapes.key_of(row.feed, shared) for row in rows]
            sizes = [shapes.size_of(row.feed, shared) for row in rows]
            batches = shapes.split(keys, sizes, padding, most=most, rows=self.batch_size)
            beside = self.batching.runner.beside(streams) if streams > 1 and len(batches) >= ENOUGH * streams else None
            return (batches, beside, streams) if beside else (batches, self.batching.runner.run, 1)
        lengths = [row.tokens for row in rows]
        if streams > 1 and len(lengths) > streams:
            narrow = replace(limits, padded_tokens=min(PADDED_TOKENS, limits.padded_tokens))
            batches = split(lengths, padding, narrow, self.batching.cost)
            beside = self.batching.runner.beside(streams) if len(batches) >= ENOUGH * streams else None
            if beside is not None:
                return batches, beside, streams
        return split(lengths, padding, limits, self.batching.cost), self.batching.runner.run, 1

    def _decode(self, answered: list[list[tuple[Row, Answer | None]]]) -> list[Any] | None:
        """Make inputs' results by the shortcut; `None` where each must go through the task's own steps."""
        if self.shortcut is None:
            return None
        known = [[(row, answer) for row, answer in parts if answer] for parts in answered]
        if list(map(len, known)) != list(map(len, answered)):
            return None
        try:
            return self.shortcut.decode(self.pipe, known, self.postprocess)
        except Exception:  # the task's own steps raise it in their own words, or know better
            return None

    def _run_batch(self, rows: list[Row], indices: Any, run: Run) -> list[Answer | None]:
        """Give each row's outputs; `None` stands for a row that only the task's own `_forward` can run."""
        if not all(row.feed for row in rows):
            return [answer for row in rows for answer in (self._run_batch([row], indices, run) if row.feed else [None])]
        values = pad_values(self.pipe.tokenizer)
        try:
            with evaluating(self.pipe.model):
                per_token, shared = self.batching.per_token, self.batching.shared
                return list(run_batch(run, [r.feed for r in rows], values, per_token=per_token, shared=shared))
        except Exception:
            if len(rows) > 1:  # find the row it fails for
                return [answer for row in rows for answer in self._run_batch([row], indices, run)]
            with naming(indices[rows[0].owner], {}):
                raise

    def _replay(self, answered: list[tuple[Row, Answer | None]], index: int | None) -> Any:
        """Take one input's rows through the task's own steps, with the model's answers at hand."""
        outputs = []
        for row, answer in answered:
            with naming(index, {}):
                if answer is None:
                    outputs.append(self._ask(row))
                else:
                    with standing_in(StandIn(self.pipe, row, answer)):
                        outputs.append(self.pipe._forward(row.inputs, **self.forward))
        return self._finish(outputs, index)

    def _ask(self, row: Row) -> Any:
        """Take one row through the task's `forward` and the model."""
        with evaluating(self.pipe.model):
            return self.pipe.forward(row.inputs, **self.forward)

    def _finish(self, outputs: list[Any], index: int | None) -> Any:
        """Take one input's rows through the task's `postprocess`."""
        with naming(index, self.postprocess), exclusively(self.pipe.tokenizer):
            return self.pipe.postprocess(outputs if self.chunks else outputs[0], **self.postprocess)

    def _padding(self) -> Padding:
        batching = self.batching
        if batching.padding is None:
            with evaluating(self.pipe.model), exclusively(self.pipe.tokenizer):
                batching.padding = neutrality.measure(
                    batching.runner.run,
                    examples(self.pipe.tokenizer, batching.runner.inputs, batching.max_tokens),
                    pad_values(self.pipe.tokenizer),
                    per_token=batching.per_token,
                )
        return batching.padding


def _index(start: int | None, offset: int) -> int | None:
    return None if start is None else start + offset
