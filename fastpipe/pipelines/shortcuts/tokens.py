"""Token-classification: a row for each text, and what its tokens are called, alone or in groups."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from transformers import TokenClassificationPipeline

from fastpipe.backends.base import TEXT_INPUTS
from fastpipe.pipelines.rows import Row
from fastpipe.pipelines.shortcuts.base import STEPS, Answered, Shortcut, rounded, softmax
from fastpipe.pipelines.shortcuts.words import OF_WORDS, Tokens, best

# What the task asks of a tokenizer beside the model's inputs.
_ASKED = {"return_special_tokens_mask": True, "return_offsets_mapping": True}
_BESIDE = ("special_tokens_mask", "offset_mapping")
# Entities, each with the position of its text.
_Found = Iterator[tuple[int, dict[str, Any]]]


def _encode(pipe: Any, texts: Sequence[str], parameters: Mapping[str, Any]) -> list[Row] | None:
    if parameters.get("is_split_into_words"):
        return None
    limit = pipe.tokenizer.model_max_length
    encoded = pipe.tokenizer(list(texts), truncation=limit and limit > 0, **_ASKED)
    names = encoded.keys() & TEXT_INPUTS.keys()
    if encoded.keys() - names != set(_BESIDE) or len(encoded["input_ids"]) != len(texts):
        return None
    columns = {name: [np.array([row], dtype=np.int64) for row in rows] for name, rows in encoded.items()}
    return [
        Row(
            owner=owner,
            feed={name: columns[name][owner] for name in names},
            beside={**{name: columns[name][owner] for name in _BESIDE}, "sentence": text, "is_last": True},
        )
        for owner, text in enumerate(texts)
    ]


def _entities(pipe: Any, answered: Sequence[Answered], parameters: Mapping[str, Any]) -> list[Any]:
    """Make of logits (1, tokens, labels) what token-classification gives."""
    strategy = getattr(parameters.get("aggregation_strategy"), "value", "none")
    ignored = parameters.get("ignore_labels")
    ignored = ("O",) if ignored is None else ignored
    tokens = _gather(pipe, answered)
    names = [pipe.model.config.id2label[number] for number in range(tokens.scores.shape[1])]
    if len(names) < 2 or not isinstance(ignored, (list, tuple, set)) or None in ignored:
        raise LookupError("the task's own code knows")
    results: list[list[dict[str, Any]]] = [[] for _ in answered]
    found = _alone(tokens, names, ignored) if strategy == "none" else _grouped(pipe, tokens, names, ignored, strategy)
    for text, entity in found:
        results[text].append(entity)
    return results


def _gather(pipe: Any, answered: Sequence[Answered]) -> Tokens:
    """Collect the tokens that are not special, and their scores.

    Raises:
        LookupError: Something is there that only the task's own steps know what to do with.
    """
    rows, dtype = [row for ((row, _),) in answered], pipe.model.dtype
    lengths = [row.tokens for row in rows]
    special = np.concatenate([row.beside["special_tokens_mask"][0] for row in rows])
    kept = np.flatnonzero(special == 0)
    logits = rounded(np.concatenate([answer["logits"][0] for ((_, answer),) in answered]), dtype)
    logits = logits.float() if dtype in (torch.bfloat16, torch.float16) else logits
    offsets = np.concatenate([row.beside["offset_mapping"][0] for row in rows])[kept]
    tokens = Tokens(
        tokenizer=pipe.tokenizer,
        texts=[row.beside["sentence"] for row in rows],
        text=np.repeat(np.arange(len(rows)), lengths)[kept],
        index=np.concatenate([np.arange(length) for length in lengths])[kept],
        ids=np.concatenate([row.feed["input_ids"][0] for row in rows])[kept],
        start=offsets[:, 0],
        end=offsets[:, 1],
        scores=softmax(logits.numpy()[kept]),
    )
    ends = np.array([len(text) for text in tokens.texts])[tokens.text]
    if np.isnan(tokens.scores).any() or not np.all((tokens.start <= tokens.end) & (tokens.end <= ends)):
        raise LookupError("scores that are no numbers, or tokens of no characters")
    return tokens


def _alone(tokens: Tokens, names: list[str], ignored: Collection[str]) -> _Found:
    """Give each token whose label is not ignored."""
    labels, scores = best(tokens.scores)
    shown = np.array([name not in ignored for name in names])
    chosen = np.flatnonzero(shown[labels])
    for token, word in zip(chosen.tolist(), tokens.spell(chosen), strict=True):
        yield (
            int(tokens.text[token]),
            {
                "entity": names[labels[token]],
                "score": scores[token],
                "index": int(tokens.index[token]),
                "word": word,
                "start": int(tokens.start[token]),
                "end": int(tokens.end[token]),
            },
        )


def _grouped(pipe: Any, tokens: Tokens, names: list[str], ignored: Collection[str], strategy: str) -> _Found:
    """Give each run of tokens, or of words, with labels of one kind that is not ignored."""
    join = pipe.tokenizer.convert_tokens_to_string
    if strategy == "simple":
        words = np.arange(len(tokens.ids))
        labels, scores = best(tokens.scores)
    else:
        words = tokens.words()
        labels, scores = OF_WORDS[strategy](tokens.scores, words)
    tags = [pipe.get_tag(name) for name in names]
    begins = np.array([position == "B" for position, _ in tags])
    kinds = np.unique([kind for _, kind in tags], return_inverse=True)[1]
    changes = np.diff(kinds[labels], prepend=-1) != 0
    groups = np.flatnonzero(tokens.first()[words] | begins[labels] | changes)
    called = [name.split("-", 1)[-1] for name in names]
    edges = [*words.tolist(), len(tokens.ids)]
    for group, after in pairwise([*groups.tolist(), len(words)]):
        name = called[labels[group]]
        if name in ignored:
            continue
        first, end = edges[group], edges[after]
        if strategy == "simple":
            spelled = tokens.spell(range(first, end))
        else:
            spelled = [join(tokens.spell(range(*word))) for word in pairwise(edges[group : after + 1])]
        yield (
            int(tokens.text[first]),
            {
                "entity_group": name,
                "score": scores[group:after].sum() / (after - group),
                "word": join(spelled),
                "start": int(tokens.start[first]),
                "end": int(tokens.end[end - 1]),
            },
        )


ENTITIES = Shortcut(
    task=TokenClassificationPipeline,
    encode=_encode,
    decode=_entities,
    parameters=frozenset({"is_split_into_words"}),
    steps=(
        *STEPS,
        *("gather_pre_entities", "aggregate", "aggregate_word", "aggregate_words", "group_sub_entities"),
        *("get_tag", "group_entities", "aggregate_overlapping_entities"),
    ),
)
