"""Put rows into one batch, and take its results apart again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

Feed = Mapping[str, "np.ndarray[Any, Any]"]


def pad_values(tokenizer: Any) -> dict[str, int]:
    """Give what to pad each input of a text model with; 0 where the tokenizer does not pad, nothing without one."""
    if tokenizer is None:
        return {}
    return {"input_ids": tokenizer.pad_token_id or 0, "token_type_ids": getattr(tokenizer, "pad_token_type_id", 0)}


def pad(feeds: Sequence[Feed], values: Mapping[str, int]) -> dict[str, np.ndarray[Any, Any]]:
    """Stack rows, padding each on the right to the longest.

    Args:
        feeds: One mapping per row, all with the same names: arrays of shape (1, tokens).
        values: What to pad each name with; 0 where it is not listed.

    Returns:
        Arrays of shape (rows, tokens of the longest).
    """
    if len(feeds) == 1:
        return dict(feeds[0])
    longest = max(feed["input_ids"].shape[1] for feed in feeds)
    batch = {}
    for name, first in feeds[0].items():
        array = np.full((len(feeds), longest), values.get(name, 0), dtype=first.dtype)
        for row, feed in enumerate(feeds):
            array[row, : feed[name].shape[1]] = feed[name][0]
        batch[name] = array
    return batch


def stack(feeds: Sequence[Feed], shared: Collection[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Stack rows whose arrays have the same shapes.

    Args:
        feeds: One mapping per row, all with the same names: arrays whose axis 0 is 1.
        shared: Names of arrays that are the same for all rows, of any shape; they are taken once.

    Returns:
        Arrays with rows as axis 0, and those that are shared.
    """
    if len(feeds) == 1:
        return dict(feeds[0])
    return {
        name: first if name in shared else np.concatenate([feed[name] for feed in feeds])
        for name, first in feeds[0].items()
    }


def run_batch(
    run: Callable[[Feed], Feed],
    feeds: Sequence[Feed],
    values: Mapping[str, int],
    *,
    per_token: bool,
    shared: Collection[str] = (),
) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Run rows as one batch.

    Args:
        run: Runs one batch, as `Runner.run`.
        feeds: One mapping per row: arrays of shape (1, tokens), or arrays of any shape that is the same in all rows.
        values: What to pad each input with.
        per_token: Whether axis 1 of the outputs counts tokens.
        shared: Names of inputs that belong to all rows.

    Returns:
        Each row's outputs, as `take` gives them.
    """
    tokens = [feed["input_ids"].shape[1] if "input_ids" in feed else 0 for feed in feeds]
    outputs = run(pad(feeds, values) if "input_ids" in feeds[0].keys() - set(shared) else stack(feeds, shared))
    return [take(outputs, row, tokens[row], per_token=per_token) for row in range(len(feeds))]


def take(outputs: Feed, row: int, tokens: int, *, per_token: bool) -> dict[str, np.ndarray[Any, Any]]:
    """Copy one row out of a batch's outputs, without its padding.

    Args:
        outputs: Arrays with rows as axis 0, and tokens as axis 1 where `per_token`.
        row: Which row.
        tokens: How many tokens that row has.
        per_token: Whether axis 1 counts tokens.

    Returns:
        Arrays with axis 0 of length 1, independent of the batch.
    """
    if per_token:
        return {name: values[row : row + 1, :tokens].copy() for name, values in outputs.items()}
    return {name: values[row : row + 1].copy() for name, values in outputs.items()}
