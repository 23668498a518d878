"""The decoding loop without what a stateful OpenVINO decoder does not need: a mixin for Optimum's model classes.

transformers prepares a generation (processors, stopping criteria, streamer) and then steps through it in `_sample`, or
`_beam_search`. There it rebuilds masks and positions as tensors, hands over everything again, copies the logits of all
positions, and asks every criterion at every token, which with a small model is a third of the time. Here each step
hands the engine what is new, and the rest is transformers' own: processors, criteria and the random numbers, in the
same order. So the tokens are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from transformers.generation.utils import GenerateDecoderOnlyOutput, GenerateEncoderDecoderOutput
from transformers.modeling_outputs import CausalLMOutputWithPast, Seq2SeqLMOutput

from fastpipe.backends.last_logits import KEEP, ONE, ask_for_all
from fastpipe.backends.processors import quick
from fastpipe.backends.torch_threads import one_thread
from fastpipe.batching.neutrality import TOLERANCE
from fastpipe.errors import InputTooLongError

Array: TypeAlias = "np.ndarray[Any, Any]"

# What `generate` passes on that changes nothing here; with any other argument its own loop runs.
_CAUSAL = {"attention_mask", "use_cache", "cache_position", "logits_to_keep", "past_key_values", "token_type_ids"}
_SEQ2SEQ = {
    "attention_mask",
    "encoder_outputs",
    "use_cache",
    "cache_position",
    "past_key_values",
    "decoder_attention_mask",
}
_KNOWN_CRITERIA = {"MaxLengthCriteria", "EosTokenCriteria"}


class CausalSteps:
    """Steps of a decoder-only model.

    Args:
        model: An `OVModelForCausalLM` with its state inside.
        ids: int64 (rows, tokens), the prompts, padded at the left.
        given: What `generate` passes on.

    Attributes:
        rows: int32 (rows,), which row of the last step each row of the next one continues; only beams change it.
        length: Tokens so far.
    """

    def __init__(self, model: Any, ids: torch.Tensor, given: Mapping[str, Any]) -> None:
        self._request, self._names = model.request, set(model.input_names)
        mask = given.get("attention_mask")
        self._mask = np.ones(ids.shape, np.int64) if mask is None else mask.numpy().astype(np.int64)
        self._positions = np.maximum(self._mask.cumsum(axis=1) - 1, 0)
        self._positions[self._mask == 0] = 1  # transformers' own number for a pad; it is masked
        self.rows = np.arange(ids.shape[0], dtype=np.int32)
        self.length, self._limit = 0, model.limit
        self._request.reset_state()

    def __call__(self, tokens: Array) -> Array:
        """Take tokens of shape (rows, n) in; give the logits after the last one: float32 (rows, vocabulary)."""
        check_positions(int(self._positions.max()) + 1, self._limit)
        feed = {
            "input_ids": tokens,
            "attention_mask": self._mask,
            "position_ids": self._positions,
            "beam_idx": self.rows,
            KEEP: ONE,
        }
        logits = _run(self._request, {name: values for name, values in feed.items() if name in self._names})
        self.length += tokens.shape[1]
        self._mask = np.concatenate([self._mask, np.ones((len(self.rows), 1), np.int64)], axis=1)
        self._positions = self._positions[:, -1:] + 1
        return logits


class Seq2SeqSteps:
    """Steps of the decoder of an encoder-decoder model.

    Args:
        model: An `OVModelForSeq2SeqLM` whose decoder has its state inside.
        ids: int64 (rows, tokens), what the decoder starts with.
        given: What `generate` passes on, with the encoder's outputs.
        beams: Rows that follow one another and go on with the same outputs of the encoder.

    Attributes:
        rows: As in `CausalSteps`.
        length: Tokens so far.
    """

    def __init__(self, model: Any, ids: torch.Tensor, given: Mapping[str, Any], beams: int) -> None:
        decoder = model.decoder
        decoder.compile()
        self._request, self._names = decoder.request, set(decoder.input_names)
        # What was heard stays with the request from the first step on, and is kept here, as the request borrows it.
        states = given["encoder_outputs"][0].numpy()[:: beams if model.shares_beams else 1]
        self._heard = {"encoder_hidden_states": np.ascontiguousarray(states)}
        mask = given.get("attention_mask")
        if mask is not None:
            self._heard["encoder_attention_mask"] = mask.numpy()
        self.rows = np.arange(ids.shape[0], dtype=np.int32)
        self.length, self._limit = 0, model.limit
        self._request.reset_state()

    def __call__(self, tokens: Array) -> Array:
        """Take tokens of shape (rows, n) in; give the logits after the last one: float32 (rows, vocabulary)."""
        check_positions(self.length + tokens.shape[1], self._limit)
        places = np.arange(self.length, self.length + tokens.shape[1], dtype=np.int64)
        feed = {"input_ids": tokens, "cache_position": places, "beam_idx": self.rows}
        if not self.length:
            feed |= self._heard
        self.length += tokens.shape[1]
        return _run(self._request, {name: values for name, values in feed.items() if name in self._names})


def _run(request: Any, feed: Mapping[str, Array]) -> Array:
    request.start_async(dict(feed), share_inputs=True)
    request.wait()
    logits: Array = np.array(request.get_tensor("logits").data[:, -1, :], dtype=np.float32)
    return logits


def check_positions(tokens: int, limit: int | None) -> None:
    """Refuse more tokens than the model has positions for: an engine would read past its table, and say nothing.

    Raises:
        InputTooLongError: There are more.
    """
    if limit is not None and tokens > limit:
        raise InputTooLongError(
            f"{tokens} tokens, the answer among them, and the model takes at most {limit}",
            remedy="Shorten the prompt, or ask for fewer with max_new_tokens=.",
        )


class LeanSampling:
    """Stands before a model class of Optimum, and steps through a generation with what the engine needs only.

    Attributes:
        lengths: After a generation by this loop: how many tokens of each row's result are its own, the prompt among
            them; what follows is padding.
        limit: Tokens that the decoder has positions for.
        shares_beams: Whether the decoder takes one row of encoder states for all beams of a search.
    """

    lengths: list[int] | None = None
    limit: int | None = None
    shares_beams = False
    _steps: CausalSteps | Seq2SeqSteps | None = None  # while transformers' search goes on

    def forward(self, *args: Any, attention_mask: torch.Tensor | None = None, **kwargs: Any) -> Any:
        """Run one step of transformers' own loop."""
        behind_encoder = self.config.is_encoder_decoder  # type: ignore[attr-defined]
        if self._steps is not None:
            logits = torch.from_numpy(self._steps(kwargs["tokens"].numpy())[:, None])
            return (Seq2SeqLMOutput if behind_encoder else CausalLMOutputWithPast)(logits=logits, past_key_values=((),))
        if attention_mask is not None and not behind_encoder:
            check_positions(int(attention_mask.sum(dim=1).max()), self.limit)
        if not behind_encoder and KEEP in self.input_names:  # type: ignore[attr-defined]
            # Not among the inputs that Optimum prepares: in a search it takes rows out of each of them.
            ask_for_all(self.request)  # type: ignore[attr-defined]
        outputs = super().forward(*args, attention_mask=attention_mask, **kwargs)  # type: ignore[misc]
        if behind_encoder and self.decoder.stateful:  # type: ignore[attr-defined]
            check_positions(self.decoder._past_length, self.limit)  # type: ignore[attr-defined]
        return outputs

    @property
    def is_lean(self) -> bool:
        """Whether this model can be stepped through here: its decoder keeps its state, and takes what we know of."""
        decoder: Any = getattr(self, "decoder", self)
        known = _DECODER_INPUTS if self.config.is_encoder_decoder else _CAUSAL_INPUTS  # type: ignore[attr-defined]
        return bool(getattr(decoder, "stateful", False)) and set(decoder.input_names) <= known

    def _is_plain(self, generation_config: Any, given: Mapping[str, Any]) -> bool:
        """Tell whether a generation asks for nothing but tokens."""
        known = _SEQ2SEQ if self.config.is_encoder_decoder else _CAUSAL  # type: ignore[attr-defined]
        asked = {name for name, value in given.items() if value is not None and value is not False}
        return not (
            asked - known
            or given.get("past_key_values") is not None
            or generation_config.output_attentions
            or generation_config.output_hidden_states
            or generation_config.output_logits
            or generation_config.prefill_chunk_size is not None
            or not generation_config.use_cache
        )

    def _new_tokens(self, ids: torch.Tensor, **given: Any) -> dict[str, torch.Tensor]:
        assert self._steps is not None
        return {"tokens": ids[:, self._steps.length :]}

    def _reorder_cache(self, past_key_values: Any, beam_idx: torch.Tensor) -> Any:
        if self._steps is None:
            return super()._reorder_cache(past_key_values, beam_idx)  # type: ignore[misc]
        self._steps.rows = beam_idx.numpy().astype(np.int32)
        return past_key_values

    def _stepper(self, ids: torch.Tensor, given: Mapping[str, Any], beams: int = 1) -> CausalSteps | Seq2SeqSteps:
        if self.config.is_encoder_decoder:  # type: ignore[attr-defined]
            return Seq2SeqSteps(self, ids, given, beams)
        return CausalSteps(self, ids, given)

    @one_thread()
    def _beam_search(
        self,
        input_ids: torch.Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        synced_gpus: bool = False,
        **given: Any,
    ) -> Any:
        """Search as transformers does, by its own code, over our steps."""
        self.lengths = None
        if not synced_gpus and self.is_lean and self._is_plain(generation_config, given):
            self._steps = self._stepper(input_ids, given, generation_config.num_beams)
            logits_processor = quick(logits_processor)
            # On the instance and for as long as the search: `generate` reads the signature of the class's own.
            self.prepare_inputs_for_generation = self._new_tokens
            self._first_iter_beam_search = False  # Optimum's own first step of a search, which would come later
        try:
            return super()._beam_search(  # type: ignore[misc]
                input_ids, logits_processor, stopping_criteria, generation_config, synced_gpus, **given
            )
        finally:
            self._steps = None
            self.__dict__.pop("prepare_inputs_for_generation", None)

    @one_thread()
    def _sample(
        self,
        input_ids: torch.Tensor,
        logits_processor: Any,
        stopping_criteria: Any,
        generation_config: Any,
        synced_gpus: bool = False,
        streamer: Any = None,
        **given: Any,
    ) -> Any:
        if synced_gpus or not (self.is_lean and self._is_plain(generation_config, given)):
            self.lengths = None
            return super()._sample(  # type: ignore[misc]
                input_ids, logits_processor, stopping_criteria, generation_config, synced_gpus, streamer, **given
            )
        step, logits_processor = self._stepper(input_ids, given), quick(logits_processor)
        told = bool(generation_config.return_dict_in_generate)
        scores: list[torch.Tensor] | None = [] if told and generation_config.output_scores else None
        ends = _ends(stopping_criteria)
        pad = generation_config._pad_token_tensor
        fills = any(hasattr(criterion, "eos_token_id") for criterion in stopping_criteria)
        rows = input_ids.shape[0]
        unfinished = np.ones(rows, bool)
        lengths = [0] * rows
        tokens = input_ids.numpy()
        while unfinished.any():
            chosen = _choose(step(tokens), input_ids, logits_processor, generation_config.do_sample, scores)
            if fills:
                chosen = np.where(unfinished, chosen, int(pad))
            tokens = chosen[:, None]
            input_ids = torch.cat([input_ids, torch.from_numpy(tokens)], dim=1)
            if streamer is not None:
                streamer.put(input_ids[:, -1])
            length = input_ids.shape[1]
            over = ends.over(chosen, length) if ends else stopping_criteria(input_ids, _told(scores)).numpy()
            for row in np.flatnonzero(unfinished & over):
                lengths[row] = length
            unfinished &= ~over
        if streamer is not None:
            streamer.end()
        self.lengths = lengths
        if not told:
            return input_ids
        if self.config.is_encoder_decoder:  # type: ignore[attr-defined]
            return GenerateEncoderDecoderOutput(sequences=input_ids, scores=_told(scores), past_key_values=((),))
        return GenerateDecoderOnlyOutput(sequences=input_ids, scores=_told(scores), past_key_values=((),))


_CAUSAL_INPUTS = {"input_ids", "attention_mask", "position_ids", "beam_idx", KEEP}
_DECODER_INPUTS = {"input_ids", "encoder_hidden_states", "encoder_attention_mask", "cache_position", "beam_idx"}


class _Ends:
    """The two criteria that every generation has, without tensors."""

    def __init__(self, criteria: Any) -> None:
        by_kind = {type(one).__name__: one for one in criteria}
        length, ends = by_kind.get("MaxLengthCriteria"), by_kind.get("EosTokenCriteria")
        self.longest = length.max_length if length is not None else None
        self.tokens = set(ends.eos_token_id.tolist()) if ends is not None else set()

    def over(self, chosen: Array, length: int) -> Array:
        """Tell which rows end with the tokens chosen, of shape (rows,)."""
        at_length = self.longest is not None and length >= self.longest
        ended: Array = np.array([at_length or token in self.tokens for token in chosen.tolist()])
        return ended


def _ends(criteria: Any) -> _Ends | None:
    kinds = [type(one).__name__ for one in criteria]
    return _Ends(criteria) if set(kinds) <= _KNOWN_CRITERIA and len(set(kinds)) == len(kinds) else None


def _told(scores: list[torch.Tensor] | None) -> tuple[torch.Tensor, ...] | None:
    return None if scores is None else tuple(scores)


def _choose(
    logits: Array, input_ids: torch.Tensor, processors: Any, at_random: bool, kept: list[torch.Tensor] | None
) -> Array:
    """Choose each row's next token, int64 (rows,); its scores are kept where somebody asks for them."""
    chosen: Array
    if not processors and not at_random and kept is None:
        chosen = logits.argmax(axis=-1)
        return chosen
    scores = processors(input_ids, torch.from_numpy(logits))
    if kept is not None:
        kept.append(scores)
    drawn = (
        torch.multinomial(torch.softmax(scores, dim=-1), num_samples=1)[:, 0] if at_random else scores.argmax(dim=-1)
    )
    chosen = drawn.numpy()
    return chosen


def same_behind_padding(model: Any, prompts: Sequence[Array]) -> bool:
    """Tell whether a decoder-only model gives prompts the same answers in one batch, padded at the left.

    Args:
        model: A model whose class is made of `LeanSampling`.
        prompts: int64 (1, tokens) each, of different lengths.
    """
    if not model.is_lean:
        return False
    alone = [_two_steps(model, prompt, np.ones_like(prompt)) for prompt in prompts]
    longest = max(prompt.shape[1] for prompt in prompts)
    pads = [((0, 0), (longest - prompt.shape[1], 0)) for prompt in prompts]
    ids = np.concatenate([np.pad(prompt, pad) for prompt, pad in zip(prompts, pads, strict=True)])
    mask = np.concatenate([np.pad(np.ones_like(p), pad) for p, pad in zip(prompts, pads, strict=True)])
    together = _two_steps(model, ids, mask)
    scale = max(1.0, float(np.abs(together).max()))
    return bool(np.abs(np.concatenate(alone) - together).max() <= TOLERANCE * scale)


def _two_steps(model: Any, ids: Array, mask: Array) -> Array:
    step = CausalSteps(model, torch.from_numpy(ids), {"attention_mask": torch.from_numpy(mask)})
    logits: Array = np.stack([step(ids), step(ids[:, -1:])], axis=1)
    return logits


def same_beside_others(model: Any, alone: int, together: int) -> bool:
    """Tell whether the decoder of a model of speech says the same, to the last bit, however many rows there are.

    Args:
        model: A model whose class is made of `LeanSampling`.
        alone: Rows of one generation: its beams.
        together: Rows of a batch: so many for each recording.
    """
    chance = torch.Generator().manual_seed(0)
    hidden = torch.randn(together // alone, _FRAMES, model.config.d_model, generator=chance)
    hidden = hidden.repeat_interleave(alone, dim=0)
    ids = torch.full((len(hidden), 2), int(model.config.decoder_start_token_id))
    heard = [_three_steps(model, hidden[:rows], ids[:rows], alone) for rows in (alone, together)]
    return bool(np.array_equal(heard[0], heard[1][:alone]))


_FRAMES = 64  # that a decoder listens to in a trial; in use they are many more, which changes nothing for its rows


def _three_steps(model: Any, hidden: torch.Tensor, ids: torch.Tensor, beams: int) -> Array:
    step = Seq2SeqSteps(model, ids, {"encoder_outputs": (hidden,)}, beams)
    logits: Array = np.stack([step(tokens.numpy()) for tokens in (ids, ids[:, -1:], ids[:, -1:])], axis=1)
    return logits
