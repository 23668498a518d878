"""Lists of prompts in batches of like lengths, where each row says what it would say alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from fastpipe.pipelines.generators.model import GeneratorModel
from fastpipe.pipelines.guards import exclusively, naming
from fastpipe.pipelines.inputs import check_length
from fastpipe.pipelines.standin import standing_in

# Decoding reads all weights for every token, however many rows there are; more rows than this gain little on a CPU.
ROWS = 8
# Prompts of a batch are at most this many times as long as its shortest, and a few tokens.
_STRETCH, _SLACK = 1.5, 16
# Arguments of a generation that only say when to stop or what pads are.
_PLAIN = {"generation_config", "max_new_tokens", "max_length", "eos_token_id", "pad_token_id", "do_sample", "num_beams"}


class Prompts:
    """How a pipeline that generates takes a list.

    Args:
        model: Its model.
        left_padding: Whether the model gives a prompt the same answers behind padding.

    Attributes:
        alike: Whether every input is one row.
    """

    alike = True

    def __init__(self, model: GeneratorModel, left_padding: bool) -> None:
        self._model, self._left_padding = model, left_padding

    def together(
        self,
        pipe: Any,
        items: Sequence[Any],
        indices: Sequence[int | None],
        most: int | None,
        parameters: Sequence[Mapping[str, Any]],
    ) -> list[Any] | None:
        """Generate from every prompt, and give the results in their order.

        Args:
            pipe: The pipeline.
            items: Texts or chats, as its class hands them on.
            indices: What each is called in an error; `None` for the input of a call with one.
            most: Upper bound of rows in a batch.
            parameters: Of the call: those of `preprocess`, of `_forward` and of `postprocess`.

        Returns:
            The results; `None` where each prompt must go alone, in transformers' own way: where there is chance, whose
            numbers come in an order, or a search, or a processor that would read the padding, or no second prompt.
        """
        if len(items) < 2:
            return None
        before, during, after = parameters
        config = self.config(pipe, during)
        if config is None:
            return None
        prepared = []
        for index, item in zip(indices, items, strict=True):
            with naming(index, before), exclusively(pipe.tokenizer):
                prepared.append(pipe.preprocess(item, **before))
            check_length(prepared[-1]["input_ids"].shape[-1], pipe._max_tokens, index)
        results: list[Any] = [None] * len(items)
        for group in self._groups(prepared, config, self.rows(most)):
            answers = self._answers([prepared[place] for place in group], during, pipe)
            for place, answer in zip(group, answers, strict=True):
                with naming(indices[place], after):
                    outputs = self._forward(pipe, prepared[place], during, answer)
                    with exclusively(pipe.tokenizer):
                        results[place] = pipe.postprocess(outputs, **after)
        return results

    def config(self, pipe: Any, during: Mapping[str, Any]) -> Any:
        """Give the config of a generation whose rows may go together; `None` for another."""
        return self._model.plain_config(dict(during), pipe.generation_config) if set(during) <= _PLAIN else None

    def rows(self, most: int | None) -> int:
        """Say how many rows a batch has at most, where the user asked for so many."""
        return most or ROWS

    def _forward(self, pipe: Any, prepared: Any, during: Mapping[str, Any], answer: torch.Tensor | None) -> Any:
        if answer is None:
            return pipe.forward(prepared, **during)
        with standing_in(Spoken(pipe, self._model, answer)):
            return pipe._forward(prepared, **during)

    def _groups(self, prepared: Sequence[Any], config: Any, most: int) -> list[list[int]]:
        """Split rows into batches of like lengths, longest first."""
        lengths = [_length(one) for one in prepared]
        stretches = self._left_padding and config.max_new_tokens is not None
        groups: list[list[int]] = []
        for index in sorted(range(len(prepared)), key=lambda i: -lengths[i]):
            first = lengths[groups[-1][0]] if groups else 0
            near = first <= lengths[index] * _STRETCH + _SLACK if stretches else first == lengths[index]
            if groups and lengths[index] and near and len(groups[-1]) < most:
                groups[-1].append(index)
            else:
                groups.append([index])
        return groups

    def _answers(self, rows: Sequence[Any], during: Mapping[str, Any], pipe: Any) -> Sequence[torch.Tensor | None]:
        """Give each row's tokens, the prompt first: int64 (1, tokens); nothing for one that is alone."""
        if len(rows) == 1:
            return [None]
        longest = max(_length(row) for row in rows)
        ids = torch.zeros(len(rows), longest, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for place, row in enumerate(rows):
            ids[place, longest - _length(row) :] = row["input_ids"][0]
            mask[place, longest - _length(row) :] = 1
        arguments = {"generation_config": pipe.generation_config, **during}
        found, lengths = self._model.generate_rows(input_ids=ids, attention_mask=mask, **arguments)
        return [
            found[place : place + 1, longest - _length(row) : length]
            for place, (row, length) in enumerate(zip(rows, lengths, strict=True))
        ]


def _length(prepared: Mapping[str, Any]) -> int:
    """Count a prompt's tokens; 0 for one that no batch takes."""
    ids, mask = prepared["input_ids"], prepared.get("attention_mask")
    tensors = {name for name, value in prepared.items() if isinstance(value, torch.Tensor)}
    tensors.discard("token_type_ids")  # some tokenizers make them, and these tasks hand them to no model
    plain = ids.shape[0] == 1 and tensors <= {"input_ids", "attention_mask"} and (mask is None or bool(mask.all()))
    return int(ids.shape[1]) if plain else 0


class Spoken:
    """Answers for the model while one row, whose tokens are there, goes through the task's `_forward`."""

    def __init__(self, pipe: Any, model: Any, answer: torch.Tensor) -> None:
        self.pipe, self._model, self._answer = pipe, model, answer

    def generate(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Give the tokens that are there."""
        return self._answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)
