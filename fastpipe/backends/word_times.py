"""Times of words for Whisper on an engine: a mixin for Optimum's model classes.

The times come from the decoder's attention to what was heard, which the engines' graphs do not give. So the engine
listens and writes, and then torch's decoder reads what is written in a single pass, with what the engine's encoder
heard: that is a small part of the work, and gives the attention that torch has when it writes the same words itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeAlias

import torch
from transformers.generation.utils import GenerateEncoderDecoderOutput

# From tokens, int64 (rows, tokens), and what was heard, float32 (rows, frames, width): per layer the attention, float32
# (rows, heads, tokens, frames).
Attend: TypeAlias = Callable[[torch.Tensor, torch.Tensor], Sequence[torch.Tensor]]


class WordTimes:
    """Stands before a Whisper class of Optimum; generations that ask for no times go past it."""

    model: Any
    generate: Callable[..., Any]
    _attend: Attend | None = None
    _heard: torch.Tensor | None = None

    @contextmanager
    def attending(self, attend: Attend) -> Iterator[None]:
        """Let generations have times of words, by the attention that `attend` gives."""
        self._attend = attend
        try:
            yield
        finally:
            self._attend = self._heard = None

    def _set_return_outputs(self, *, generation_config: Any, **asked: Any) -> Any:
        told = super()._set_return_outputs(generation_config=generation_config, **asked)  # type: ignore[misc]
        if self._attend is None:
            return told
        generation_config.output_attentions = False
        if not hasattr(self.model, "config"):  # Optimum's stand-in for the torch model, which is told to give attention
            self.model = copy.copy(self.model)
            self.model.config = SimpleNamespace()
        return told

    def _prepare_encoder_decoder_kwargs_for_generation(self, *args: Any, **kwargs: Any) -> Any:
        given = super()._prepare_encoder_decoder_kwargs_for_generation(*args, **kwargs)  # type: ignore[misc]
        if self._attend is not None:
            self._heard = given["encoder_outputs"][0]
        return given

    def _extract_token_timestamps(self, generate_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        assert self._attend is not None
        assert self._heard is not None
        sequences = generate_outputs.sequences
        heard = self._heard.repeat_interleave(len(sequences) // len(self._heard), dim=0)
        attention = tuple(self._attend(sequences[:, :-1], heard))  # as when it writes: of all tokens but the last
        read = GenerateEncoderDecoderOutput(sequences=sequences, cross_attentions=(attention,))
        return super()._extract_token_timestamps(read, *args, **kwargs)  # type: ignore[misc]


def attention_of(model: Any) -> Attend:
    """Give the attention of a torch Whisper."""
    model.set_attn_implementation("eager")  # no other gives it; transformers does the same
    decoder = model.get_decoder()

    def attend(tokens: torch.Tensor, heard: torch.Tensor) -> Sequence[torch.Tensor]:
        with torch.no_grad():
            read = decoder(
                input_ids=tokens,
                encoder_hidden_states=heard.to(decoder.dtype),
                output_attentions=True,
                use_cache=False,
            )
        attention: Sequence[torch.Tensor] = read.cross_attentions
        return attention

    return attend
