"""Batches: how rows are split, padded, taken apart again, and what a model does with padding."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpipe.batching import neutrality
from fastpipe.batching.collate import Feed, pad, take
from fastpipe.batching.cost import USUAL, Cost
from fastpipe.batching.planner import Limits, Padding, memory_limits, split

# Few different lengths make ties; a few long ones exceed every budget alone.
_lengths = st.lists(st.one_of(st.integers(1, 12), st.integers(1, 600), st.sampled_from([2000, 5000])), max_size=80)
_limits = st.builds(Limits, padded_tokens=st.integers(1, 2048), rows=st.one_of(st.none(), st.integers(1, 9)))
_paddings = st.sampled_from(list(Padding))
_costs = st.one_of(
    st.just(USUAL),
    st.builds(
        Cost,
        call_s=st.one_of(st.just(0.0), st.floats(1e-5, 1.0)),
        token_s=st.floats(1e-7, 1e-2),
        pair_s=st.one_of(st.just(0.0), st.floats(1e-9, 1e-4)),
    ),
)


def total_s(lengths: list[int], batches: list[list[int]], cost: Cost) -> float:
    return sum(cost.batch_s(len(batch), max(lengths[position] for position in batch)) for batch in batches)


def fits(rows: list[int], padding: Padding, limits: Limits) -> bool:
    if len(rows) == 1:
        return True
    if padding is Padding.SINGLE or (padding is Padding.EQUAL_LENGTHS and len(set(rows)) > 1):
        return False
    return len(rows) * max(rows) <= limits.padded_tokens and (limits.rows is None or len(rows) <= limits.rows)


@given(_lengths, _paddings, _limits, _costs)
def test_every_row_is_in_exactly_one_batch(lengths, padding, limits, cost):
    batches = split(lengths, padding, limits, cost)
    assert sorted(position for batch in batches for position in batch) == list(range(len(lengths)))
    assert all(batches)


@given(_lengths, _paddings, _limits, _costs)
def test_limits_hold_unless_a_row_stands_alone(lengths, padding, limits, cost):
    for batch in split(lengths, padding, limits, cost):
        assert fits([lengths[position] for position in batch], padding, limits)


@given(_lengths, _limits, _costs)
def test_equal_lengths_are_never_mixed(lengths, limits, cost):
    for batch in split(lengths, Padding.EQUAL_LENGTHS, limits, cost):
        assert len({lengths[position] for position in batch}) == 1


@given(_lengths, _limits)
def test_a_model_that_takes_one_row_gets_one(lengths, limits):
    assert all(len(batch) == 1 for batch in split(lengths, Padding.SINGLE, limits))


@given(_lengths, _paddings, _limits, _costs)
def test_the_longest_rows_run_first_and_equal_ones_keep_their_order(lengths, padding, limits, cost):
    batches = split(lengths, padding, limits, cost)
    ascending = [position for batch in reversed(batches) for position in batch]
    assert ascending == sorted(range(len(lengths)), key=lambda position: lengths[position])


# Short lists of few lengths, so that full batches, ties and remainders all occur.
_few_lengths = st.lists(st.one_of(st.integers(1, 4), st.integers(1, 40)), min_size=1, max_size=10)
_tight_limits = st.builds(Limits, padded_tokens=st.integers(1, 80), rows=st.one_of(st.none(), st.integers(1, 5)))


@settings(deadline=None)
@given(_few_lengths, _paddings, _tight_limits, _costs)
def test_no_other_split_of_the_sorted_rows_costs_less(lengths, padding, limits, cost):
    order = sorted(lengths)
    least_s = float("inf")
    for cuts in itertools.product([False, True], repeat=len(order) - 1):
        bounds = [0, *(place for place, cut in enumerate(cuts, start=1) if cut), len(order)]
        parts = [order[first:last] for first, last in itertools.pairwise(bounds)]
        if all(fits(part, padding, limits) for part in parts):
            least_s = min(least_s, sum(cost.batch_s(len(part), part[-1]) for part in parts))
    assert total_s(lengths, split(lengths, padding, limits, cost), cost) == pytest.approx(least_s, rel=1e-9)


def in_order_of_arrival(lengths: list[int]) -> list[list[int]]:
    """What needs no plan: rows by length, a new batch where one is full or a row would add 64 tokens of padding."""
    batches: list[list[int]] = []
    for position in sorted(range(len(lengths)), key=lambda position: lengths[position]):
        rows, length = batches[-1] if batches else [], lengths[position]
        if rows and (len(rows) + 1) * length <= 1024 and len(rows) * (length - lengths[rows[-1]]) <= 64:
            rows.append(position)
        else:
            batches.append([position])
    return batches


@given(st.lists(st.one_of(st.integers(1, 60), st.integers(1, 600)), min_size=1, max_size=300), _costs)
def test_it_costs_no_more_than_simpler_ways(lengths, cost):
    planned_s = total_s(lengths, split(lengths, Padding.NEUTRAL, Limits(), cost), cost)
    alone = [[position] for position in range(len(lengths))]
    assert planned_s <= total_s(lengths, alone, cost) * (1 + 1e-9)
    assert planned_s <= total_s(lengths, in_order_of_arrival(lengths), cost) * (1 + 1e-9)


def test_rows_that_fit_share_a_batch():
    assert len(split([10] * 100, Padding.NEUTRAL, Limits())) == 1
    assert len(split([10] * 100, Padding.NEUTRAL, Limits(rows=7))) == 15
    assert len(split([10, 10, 11, 11], Padding.EQUAL_LENGTHS, Limits())) == 2
    assert len(split([10, 10, 11, 11], Padding.NEUTRAL, Limits())) == 1
    assert split([], Padding.NEUTRAL, Limits()) == []


def test_one_long_row_does_not_make_short_ones_long():
    assert split([8] * 63 + [500], Padding.NEUTRAL, Limits(padded_tokens=10**6)) == [[63], list(range(63))]


def test_the_dearer_a_call_the_fewer_there_are():
    lengths = list(range(1, 101))
    batches = [
        len(split(lengths, Padding.NEUTRAL, Limits(), Cost(call_s=call_s, token_s=1.0, pair_s=0.0)))
        for call_s in (0.0, 8.0, 64.0, 512.0)
    ]
    assert batches == sorted(set(batches), reverse=True)
    assert batches[0] == 100


@pytest.mark.parametrize("padding", list(Padding))
def test_rows_of_no_tokens_are_rows(padding):
    batches = split([0, 3, 0], padding, Limits())
    assert sorted(position for batch in batches for position in batch) == [0, 1, 2]


def test_a_million_rows():
    lengths = np.random.default_rng(0).lognormal(np.log(30), 0.6, 1_000_000).astype(int).clip(1, 512).tolist()
    batches = split(lengths, Padding.NEUTRAL, Limits())
    order = [position for batch in reversed(batches) for position in batch]
    assert order == sorted(range(len(lengths)), key=lambda position: lengths[position])
    assert all(len(batch) * lengths[batch[-1]] <= 1024 for batch in batches)
    # With so many rows of each length, hardly a batch is left with room for another row.
    assert sum(lengths) / 1024 < len(batches) < sum(lengths) / 1024 * 1.05
    assert len(split([7] * 1_000_000, Padding.SINGLE, Limits())) == 1_000_000


def test_outputs_take_an_eighth_of_the_memory_at_most():
    cost = Cost(call_s=0.0, token_s=1.0, pair_s=0.0, bytes_per_token=1000.0)
    assert memory_limits(Limits(rows=5), cost, 8 * 200_000) == Limits(rows=5, padded_tokens=200)
    assert memory_limits(Limits(), cost, 10**12) == Limits()
    assert memory_limits(Limits(), cost, 10) == Limits(padded_tokens=1)
    assert memory_limits(Limits(), cost, 0) == Limits()
    assert memory_limits(Limits(), USUAL, 10) == Limits()


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
