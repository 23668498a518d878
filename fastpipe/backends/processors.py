"""transformers' logits processors for the decoding loop: the same scores with less work for each token."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch
from transformers import SuppressTokensAtBeginLogitsProcessor, SuppressTokensLogitsProcessor

Processor: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Processors(list[Processor]):
    """Processors in their order, each called with tokens and scores."""

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Process scores, float32 (rows, vocabulary), of what follows the tokens, int64 (rows, tokens)."""
        for process in self:
            scores = process(ids, scores)
        return scores


class Suppressed:
    """Tokens that are never said: looked up once, not in the whole vocabulary for each token."""

    def __init__(self, tokens: torch.Tensor) -> None:
        self._tokens = tokens
        self._mask = torch.zeros(0, dtype=torch.bool)

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """See `Processors`."""
        size = scores.shape[-1]
        if len(self._mask) != size:
            self._mask = torch.isin(torch.arange(size), self._tokens)
        return scores.masked_fill(self._mask, -float("inf"))


class SuppressedAtBegin(Suppressed):
    """Tokens that are not said first."""

    def __init__(self, processor: SuppressTokensAtBeginLogitsProcessor) -> None:
        super().__init__(processor.begin_suppress_tokens)
        self._processor = processor  # it is told later where the begin is

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """See `Processors`."""
        return super().__call__(ids, scores) if ids.shape[-1] == self._processor.begin_index else scores


def quick(processors: Iterable[Any]) -> Any:
    """Give processors that do the same; those given, where one of them takes more than tokens and scores."""
    made = Processors()
    for processor in processors:
        if type(processor) is SuppressTokensLogitsProcessor:
            made.append(Suppressed(processor.suppress_tokens))
        elif type(processor) is SuppressTokensAtBeginLogitsProcessor:
            made.append(SuppressedAtBegin(processor))
        elif len(inspect.signature(processor.__call__).parameters) > 2:
            return processors
        else:
            made.append(processor)
    return made
