"""Batches: how rows are split, padded, taken apart again, and what a model does with padding."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpipe.batching import neutrality
from fastpipe.batching.collate import Feed, pad, take
from fastpipe.batching.planner import Limits, Padding, split

# Few different lengths make ties; a few long ones exceed every budget alone.
_lengths = st.lists(st.one_of(st.integers(1, 12), st.integers(1, 600), st.sampled_from([2000, 5000])), max_size=80)
_limits = st.builds(
    Limits,
    padded_tokens=st.integers(1, 2048),
    wasted_tokens=st.integers(0, 200),
    rows=st.one_of(st.none(), st.integers(1, 9)),
)
_paddings = st.sampled_from(list(Padding))


@given(_lengths, _paddings, _limits)
def test_every_row_is_in_exactly_one_batch(lengths, padding, limits):
    batches = split(lengths, padding, limits)
    assert sorted(position for batch in batches for position in batch) == list(range(len(lengths)))
    assert all(batches)


@given(_lengths, _paddings, _limits)
def test_budgets_hold_unless_a_row_stands_alone(lengths, padding, limits):
    for batch in split(lengths, padding, limits):
        rows = [lengths[position] for position in batch]
        assert limits.rows is None or len(rows) <= limits.rows
        if len(rows) > 1:
            assert len(rows) * max(rows) <= limits.padded_tokens
            for before, (shorter, longer) in enumerate(itertools.pairwise(rows), start=1):
                assert before * (longer - shorter) <= limits.wasted_tokens


@given(_lengths, _limits)
def test_equal_lengths_are_never_mixed(lengths, limits):
    for batch in split(lengths, Padding.EQUAL_LENGTHS, limits):
        assert len({lengths[position] for position in batch}) == 1


@given(_lengths, _limits)
def test_a_model_that_takes_one_row_gets_one(lengths, limits):
    assert all(len(batch) == 1 for batch in split(lengths, Padding.SINGLE, limits))


@given(_lengths, _paddings, _limits)
def test_the_longest_rows_run_first_and_equal_ones_keep_their_order(lengths, padding, limits):
    batches = split(lengths, padding, limits)
    longest = [max(lengths[position] for position in batch) for batch in batches]
    assert longest == sorted(longest, reverse=True)
    for batch in batches:
        assert batch == sorted(batch, key=lambda position: (lengths[position], position))


def test_rows_that_fit_share_a_batch():
    assert len(split([10] * 100, Padding.NEUTRAL, Limits())) == 1
    assert len(split([10] * 100, Padding.NEUTRAL, Limits(rows=7))) == 15
    assert len(split([10, 10, 11, 11], Padding.EQUAL_LENGTHS, Limits())) == 2
    assert len(split([10, 10, 11, 11], Padding.NEUTRAL, Limits())) == 1
    assert split([], Padding.NEUTRAL, Limits()) == []


@st.composite
def _feeds(draw) -> list[dict[str, np.ndarray]]:
    names = draw(st.sampled_from([("input_ids",), ("input_ids", "attention_mask", "token_type_ids")]))
    feeds = []
    for length in draw(st.lists(st.integers(1, 9), min_size=1, max_size=6)):
        row = st.lists(st.integers(0, 2**40), min_size=length, max_size=length)
        feeds.append({name: np.array([draw(row)], dtype=np.int64) for name in names})
    return feeds


@given(_feeds(), st.dictionaries(st.sampled_from(["input_ids", "token_type_ids"]), st.integers(0, 9)))
def test_a_row_comes_out_of_a_batch_as_it_went_in(feeds, values):
    batch = pad(feeds, values)
    longest = max(feed["input_ids"].shape[1] for feed in feeds)
    for name, array in batch.items():
        assert array.shape == (len(feeds), longest)
        assert array.dtype == feeds[0][name].dtype
    for position, feed in enumerate(feeds):
        length = feed["input_ids"].shape[1]
        row = take(batch, position, length, per_token=True)
        assert row.keys() == feed.keys()
        for name, array in feed.items():
            np.testing.assert_array_equal(row[name], array)
            assert (batch[name][position, length:] == values.get(name, 0)).all()


@given(st.integers(1, 5), st.integers(1, 4), st.booleans())
def test_what_is_taken_is_independent_of_the_batch(rows, width, per_token):
    outputs = {"logits": np.arange(rows * width * 2, dtype=np.float32).reshape(rows, width, 2)}
    kept = {name: values.copy() for name, values in outputs.items()}
    for position in range(rows):
        row = take(outputs, position, width, per_token=per_token)["logits"]
        np.testing.assert_array_equal(row, kept["logits"][position : position + 1])
        row += 1
    np.testing.assert_array_equal(outputs["logits"], kept["logits"])


def test_outputs_per_row_keep_their_width():
    outputs = {"logits": np.arange(12, dtype=np.float32).reshape(3, 4)}
    np.testing.assert_array_equal(take(outputs, 1, 2, per_token=False)["logits"], [[4, 5, 6, 7]])
    np.testing.assert_array_equal(take(outputs, 1, 2, per_token=True)["logits"], [[4, 5]])


# Four rows of different lengths, two of the same length with different content among them.
FEEDS: list[Feed] = [
    {
        "input_ids": np.array([ids], dtype=np.int64),
        "attention_mask": np.ones((1, len(ids)), dtype=np.int64),
    }
    for ids in ([7, 3, 9, 4, 8], [5], [6, 2, 1], [9, 9, 1], [4, 4, 4, 4, 4, 4, 4, 4])
]


def _ids(batch: Feed) -> np.ndarray:
    return batch["input_ids"].astype(np.float32)


def masked_mean(batch: Feed) -> Feed:
    mask = batch["attention_mask"]
    return {"logits": (_ids(batch) * mask).sum(1, keepdims=True) / mask.sum(1, keepdims=True)}


def mean_without_a_mask(batch: Feed) -> Feed:
    return {"logits": _ids(batch).mean(1, keepdims=True)}


def last_position(batch: Feed) -> Feed:
    return {"logits": _ids(batch)[:, -1:]}


def minus_the_mean_of_the_batch(batch: Feed) -> Feed:
    rows = masked_mean(batch)["logits"]
    return {"logits": rows - rows.mean()}


def one_row_only(batch: Feed) -> Feed:
    if len(batch["input_ids"]) > 1:
        raise RuntimeError("cannot handle batch sizes > 1 if no padding token is defined")
    return masked_mean(batch)


def nan_where_padded(batch: Feed) -> Feed:
    padded = (batch["attention_mask"] == 0).any(1, keepdims=True)
    return {"logits": np.where(padded, np.nan, masked_mean(batch)["logits"]).astype(np.float32)}


@pytest.mark.parametrize(
    ("run", "padding"),
    [
        (masked_mean, Padding.NEUTRAL),
        (last_position, Padding.EQUAL_LENGTHS),
        (mean_without_a_mask, Padding.EQUAL_LENGTHS),
        (nan_where_padded, Padding.EQUAL_LENGTHS),
        (one_row_only, Padding.SINGLE),
        (minus_the_mean_of_the_batch, Padding.SINGLE),
    ],
)
def test_what_a_model_does_with_padding_is_measured(run: Callable[[Feed], Feed], padding: Padding):
    assert neutrality.measure(run, FEEDS, {}, per_token=False) is padding


def per_token_with_mask(batch: Feed) -> Feed:
    return {"logits": _ids(batch)[:, :, None] * batch["attention_mask"][:, :, None]}


def counted_from_the_right(batch: Feed) -> Feed:
    ids = _ids(batch)
    return {"logits": (ids + np.arange(ids.shape[1])[::-1])[:, :, None]}


@pytest.mark.parametrize(
    ("run", "padding"), [(per_token_with_mask, Padding.NEUTRAL), (counted_from_the_right, Padding.EQUAL_LENGTHS)]
)
def test_the_same_for_outputs_per_token(run: Callable[[Feed], Feed], padding: Padding):
    assert neutrality.measure(run, FEEDS, {}, per_token=True) is padding


def test_the_pad_value_decides_for_a_model_that_looks_at_it():
    def mask_from_the_ids(batch: Feed) -> Feed:
        mask = batch["input_ids"] != 99
        return masked_mean({"input_ids": batch["input_ids"], "attention_mask": mask})

    assert neutrality.measure(mask_from_the_ids, FEEDS, {"input_ids": 99}, per_token=False) is Padding.NEUTRAL
    assert neutrality.measure(mask_from_the_ids, FEEDS, {"input_ids": 1}, per_token=False) is Padding.EQUAL_LENGTHS


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_last_bits_do_not_count(scale):
    def with_noise(batch: Feed) -> Feed:
        return {"logits": masked_mean(batch)["logits"] * scale * (1 + 1e-6 * len(batch["input_ids"]))}

    assert neutrality.measure(with_noise, FEEDS, {}, per_token=False) is Padding.NEUTRAL
