"""What a generator is compared on: texts to continue, texts to rewrite, sounds to transcribe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from fastpipe.batching.collate import Feed
from fastpipe.precision import sample
from fastpipe.precision.recipes import CAUSAL, SEQ2SEQ, SPEECH

EXAMPLES = 3  # inputs that an export is compared on
_INPUTS = {CAUSAL: 12, SEQ2SEQ: 12, SPEECH: 4}
_TOKENS = 32  # of a text to continue: half of it is the prompt
_STEPS = 16  # tokens that a decoder says
_SECONDS = 4


def rows_of(pipe: Any, model: Any, kind: str, limit: int | None, count: int | None = None) -> list[Feed]:
    """Make rows of the built-in sample, as `fastpipe.backends.generators.forced` takes them.

    Args:
        pipe: The pipeline; its `preprocess` makes what an encoder takes.
        model: A model of fp32 that says what is to be said again.
        kind: A kind of generator.
        limit: Tokens that the decoder has positions for.
        count: How many at most.
    """
    count = min(count or _INPUTS[kind], _INPUTS[kind])
    items: Sequence[Any] = [*_sounds(pipe)] if kind == SPEECH else _texts()
    rows: list[Feed] = []
    for item in items:
        if len(rows) < count:
            rows += _rows(pipe, model, kind, limit, item)
    return rows


def given_rows(pipe: Any, model: Any, kind: str, limit: int | None, items: Iterable[Any]) -> list[Feed]:
    """The same of a user's inputs."""
    return [row for item in items for row in _rows(pipe, model, kind, limit, item)]


def _texts() -> list[str]:
    """Take texts from all over the built-in sample that are more than a few words."""
    long = [text for text in sample.TEXTS if len(text) > 40]
    return [text for start in range(3) for text in long[start::3]]


def _rows(pipe: Any, model: Any, kind: str, limit: int | None, item: Any) -> list[Feed]:
    if kind == CAUSAL:
        ids = _prepared(pipe, item)["input_ids"][:, : min(limit or _TOKENS, _TOKENS)]
        return [{"input_ids": ids.numpy()}] if ids.shape[1] > 1 else []
    made = pipe.preprocess(item, **pipe._preprocess_params)
    first = next(iter(made)) if isinstance(made, Iterator) else made
    name = model.main_input_name
    if limit is not None and kind == SEQ2SEQ and first[name].shape[1] > limit:
        return []
    row = {name: first[name].numpy()}
    if "attention_mask" in first:
        row["attention_mask"] = first["attention_mask"].numpy()
    row["decoder_input_ids"] = _said(model, row, limit)
    return [row]


def _prepared(pipe: Any, item: Any) -> Any:
    """Tokenize a prompt, or a chat by its template."""
    if isinstance(item, str):
        return pipe.tokenizer(item, return_tensors="pt")
    return pipe.tokenizer.apply_chat_template(item, return_dict=True, return_tensors="pt")


def _said(model: Any, row: Feed, limit: int | None) -> Any:
    """Give what the model says to a row, greedily: int64 (1, tokens), from what its decoder starts with."""
    with torch.no_grad():
        mask = {"attention_mask": torch.from_numpy(row["attention_mask"])} if "attention_mask" in row else {}
        name = model.main_input_name
        encoded = model.get_encoder()(**{name: torch.from_numpy(row[name])}, **mask)
        ids, new, cache = _start(model), _start(model), None
        ends = model.generation_config.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        for _ in range(min(_STEPS, (limit or _STEPS + ids.shape[1]) - ids.shape[1])):
            out = model(decoder_input_ids=new, encoder_outputs=encoded, past_key_values=cache, use_cache=True, **mask)
            new, cache = out.logits[:, -1:].argmax(dim=-1), out.past_key_values
            if int(new) in ends:
                break
            ids = torch.cat([ids, new], dim=1)
    return ids.numpy()


def _start(model: Any) -> torch.Tensor:
    """Give the tokens that a decoder starts with; Whisper's say the language, the task, and that there are no times."""
    config = model.generation_config
    start = config.decoder_start_token_id
    ids = [model.config.decoder_start_token_id if start is None else start]
    languages, tasks = getattr(config, "lang_to_id", None) or {}, getattr(config, "task_to_id", None) or {}
    if getattr(config, "is_multilingual", False) and "<|en|>" in languages and "transcribe" in tasks:
        ids += [languages["<|en|>"], tasks["transcribe"]]
    if getattr(config, "no_timestamps_token_id", None) is not None:
        ids.append(config.no_timestamps_token_id)
    return torch.tensor([ids])


def _sounds(pipe: Any) -> Iterator[Any]:
    """Make sounds like voices: a gliding pitch with formants, in syllables. Seeded; no two alike."""
    rate = pipe.feature_extractor.sampling_rate
    time = np.arange(_SECONDS * rate) / rate
    for seed in range(_INPUTS[SPEECH]):
        chance = np.random.default_rng(seed)
        pitch = chance.uniform(90, 220) * (1 + 0.15 * np.sin(2 * np.pi * chance.uniform(0.2, 0.8) * time))
        phase = 2 * np.pi * np.cumsum(pitch) / rate
        middles = np.array([[550], [1450], [2600]]) * chance.uniform(0.8, 1.2, (3, 1))
        formants = middles * (1 + 0.2 * np.sin(2 * np.pi * chance.uniform(1, 4, (3, 1)) * time))
        voice = sum(
            np.sin(n * phase) * np.exp(-(((n * pitch - formants) / 200) ** 2)).sum(axis=0) for n in range(1, 30)
        )
        syllables = np.clip(np.sin(2 * np.pi * chance.uniform(2, 4) * time), 0, None)
        sound = voice * syllables + 0.02 * chance.standard_normal(len(time))
        yield {"raw": (0.3 * sound / np.abs(sound).max()).astype(np.float32), "sampling_rate": rate}
