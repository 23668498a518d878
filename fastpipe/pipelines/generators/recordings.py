"""Recordings for Whisper, or pieces of a long one: decoded in batches, where each says what it would say alone.

Whisper hears 30 s of every recording, so that no row of the encoder is padded, and every row's decoder starts with as
many tokens. The encoder takes the rows one by one all the same (see the engines' generators): it is decoding that a
batch makes faster. A search with beams keeps each row's apart, and adds nothing to a row that is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from fastpipe.backends import lean
from fastpipe.pipelines.generators.batches import Spoken
from fastpipe.pipelines.generators.model import GeneratorModel
from fastpipe.pipelines.guards import exclusively, naming
from fastpipe.pipelines.inputs import check
from fastpipe.pipelines.standin import standing_in

# Rows of the decoder in a batch, of which each beam is one, and recordings: more gain little on a CPU.
_BEAMS, _ROWS = 40, 16
# Batches that are prepared at once, so that rows of like lengths can be decoded together.
_WINDOW = 2
# What the decoder may remember of the recordings of a batch, in bytes: where beams do not share it, each has a copy.
_MEMORY = 2**30
_FEATURES = ("input_features", "attention_mask")
# Arguments of a generation that leave its rows apart.
_PLAIN = {
    "generation_config",
    "max_new_tokens",
    "max_length",
    "num_beams",
    "do_sample",
    "early_stopping",
    "length_penalty",
    "return_timestamps",
    "language",
    "task",
}
# Settings with which a generation is more than a search: rows read each other, are heard again, or have other prompts.
_MORE = (
    "do_sample",
    "constraints",
    "force_words_ids",
    "penalty_alpha",
    "dola_layers",
    "guidance_scale",
    "watermarking_config",
    "stop_strings",
    "prompt_lookup_num_tokens",
    "cache_implementation",
    "return_dict_in_generate",
    "condition_on_prev_tokens",
    "compression_ratio_threshold",
    "logprob_threshold",
    "no_speech_threshold",
)


@dataclass(kw_only=True, eq=False)
class _Row:
    """What one generation hears: a recording, or a piece of it.

    Attributes:
        owner: Place of its input.
        index: What that is called in an error.
        prepared: What `preprocess` made.
        outputs: What `_forward` makes of it; `None` until it has.
    """

    owner: int
    index: int | None
    prepared: dict[str, Any]
    outputs: Any = None

    @property
    def frames(self) -> int:
        """How long the sound is, in frames."""
        return int(self.prepared["attention_mask"].sum())


class Recordings:
    """How a Whisper pipeline takes a list.

    Args:
        model: Its model.
        exact: Whether the decoder computes in floats alone; else it is tried whether rows change with those beside.

    Attributes:
        alike: Whether every input is one row: a recording may be hours long.
    """

    alike = False

    def __init__(self, model: GeneratorModel, exact: bool) -> None:
        self._model, self._exact = model, exact
        self._tried: dict[tuple[int, int], bool] = {}

    def together(
        self,
        pipe: Any,
        items: Sequence[Any],
        indices: Sequence[int | None],
        most: int | None,
        parameters: Sequence[Mapping[str, Any]],
    ) -> list[Any] | None:
        """Transcribe every recording, and give the results in their order.

        Args:
            pipe: The pipeline.
            items: Recordings, as its class hands them on.
            indices: What each is called in an error; `None` for the input of a call with one.
            most: Upper bound of rows in a batch.
            parameters: Of the call: those of `preprocess`, of `_forward` and of `postprocess`.

        Returns:
            The results; `None` where each recording must go in transformers' own way: where there is chance, words get
            times, what was said before decides how a recording is heard, or there is but one and it is not cut.
        """
        before, during, after = parameters
        single = len(items) < 2 and not before.get("chunk_length_s")
        config = None if single else self.config(pipe, during)
        if config is None:
            return None
        beams = config.num_beams or 1
        most = min(self.rows(most), _BEAMS // beams, self._fitting(beams))
        if most < 2 or not self._same(beams, most):
            return None
        decode = partial(self._decode, pipe, most, during, config.pad_token_id)
        rows: list[_Row] = []
        waiting: list[_Row] = []
        for place, (index, item) in enumerate(zip(indices, items, strict=True)):
            check(item, index, "audio")
            with naming(index, before), exclusively(pipe.tokenizer):
                new = [_Row(owner=place, index=index, prepared=one) for one in pipe.preprocess(item, **before)]
            rows += new
            for row in new:
                if self._is_short(row.prepared):
                    waiting.append(row)
                else:
                    self._alone(pipe, row, during)
            while len(waiting) >= most * _WINDOW:
                decode(waiting[: most * _WINDOW])
                del waiting[: most * _WINDOW]
        decode(waiting)
        owned: list[list[Any]] = [[] for _ in items]
        for row in rows:
            owned[row.owner].append(row.outputs)
        results = []
        for index, outputs in zip(indices, owned, strict=True):
            with naming(index, after), exclusively(pipe.tokenizer):
                results.append(pipe.postprocess(outputs, **after))
        return results

    def rows(self, most: int | None) -> int:
        """Say how many rows a batch has at most, where the user asked for so many."""
        return min(most or _ROWS, _ROWS)

    def config(self, pipe: Any, during: Mapping[str, Any]) -> Any:
        """Give the config of a generation whose rows stay apart; `None` for another."""
        if pipe.type != "seq2seq_whisper" or not set(during) <= _PLAIN or isinstance(during.get("language"), list):
            return None
        config, _ = self._model.whole_config(dict(during), pipe.generation_config)
        times = (getattr(config, "return_timestamps", None), during.get("return_timestamps"))
        ends = isinstance(config.eos_token_id, int) and config.pad_token_id == config.eos_token_id
        single = all((getattr(config, name, None) or 1) == 1 for name in ("num_return_sequences", "num_beam_groups"))
        more = any(getattr(config, name, None) for name in _MORE) or "word" in times
        return config if ends and single and not more else None

    def _fitting(self, beams: int) -> int:
        """Say how many recordings the decoder may remember at once."""
        config = self._model.config
        numbers = 2 * config.decoder_layers * config.max_source_positions * config.d_model
        copies = 1 if getattr(self._model.engine, "shares_beams", False) else beams
        return int(_MEMORY // (4 * numbers * copies))

    def _same(self, beams: int, most: int) -> bool:
        if self._exact:
            return True
        if (beams, most) not in self._tried:
            with self._model.lent() as twin:
                self._tried[beams, most] = lean.same_beside_others(twin, beams, beams * most)
        return self._tried[beams, most]

    def _is_short(self, prepared: Mapping[str, Any]) -> bool:
        """Tell whether a row is what Whisper hears at once."""
        features, mask = map(prepared.get, _FEATURES)
        frames = 2 * self._model.config.max_source_positions
        if not isinstance(features, torch.Tensor) or not isinstance(mask, torch.Tensor):
            return False
        return len(features) == 1 and features.shape[-1] == frames and tuple(mask.shape) == (1, frames)

    def _decode(self, pipe: Any, most: int, during: Mapping[str, Any], pad: int, rows: Sequence[_Row]) -> None:
        """Give rows their outputs, in batches of like lengths."""
        ordered = sorted(rows, key=lambda row: -row.frames)
        for start in range(0, len(ordered), most):
            batch = ordered[start : start + most]
            if len(batch) == 1:
                self._alone(pipe, batch[0], during)
                continue
            features = {name: torch.cat([row.prepared[name] for row in batch]) for name in _FEATURES}
            said = pipe.forward({"is_last": True, **features}, **during)["tokens"]
            for place, row in enumerate(batch):
                answer = _without_pads(said[place : place + 1], pad)
                with naming(row.index, during), standing_in(Spoken(pipe, self._model, answer)):
                    row.outputs = pipe._forward(row.prepared, **during)

    def _alone(self, pipe: Any, row: _Row, during: Mapping[str, Any]) -> None:
        with naming(row.index, during):
            row.outputs = pipe.forward(row.prepared, **during)
        row.prepared = {}


def _without_pads(tokens: torch.Tensor, pad: int) -> torch.Tensor:
    """Cut what makes a row as long as the longest: tokens is int64 (1, length)."""
    length = tokens.shape[1]
    while length and int(tokens[0, length - 1]) == pad:
        length -= 1
    return tokens[:, :length]
