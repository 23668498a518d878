"""Rows of numbers: which run together, what the model makes of them, how many are fastest."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpipe.backends.base import complete
from fastpipe.batching import shapes
from fastpipe.batching.collate import run_batch, stack
from fastpipe.batching.planner import Padding
from fastpipe.errors import InputError, UnsupportedOnEngineError
from fastpipe.pipelines import inputs
from fastpipe.precision import synthetic

TEXTS = {"input_ids": np.ones((3, 5), np.int64), "attention_mask": np.ones((3, 5), np.int64)}


def picture(side: int, value: float = 0.0) -> dict[str, np.ndarray[Any, Any]]:
    return {"pixel_values": np.full((1, 3, side, side), value, np.float32)}


@settings(max_examples=50, deadline=None)
@given(
    sides=st.lists(st.integers(1, 4), max_size=30),
    most=st.integers(1, 200),
    rows=st.none() | st.integers(1, 5),
    padding=st.sampled_from(Padding),
)
def test_every_row_is_in_one_batch_with_its_like(sides, most, rows, padding):
    sizes = [3 * side**2 for side in sides]
    batches = shapes.split(sides, sizes, padding, most=most, rows=rows)
    assert sorted(position for batch in batches for position in batch) == list(range(len(sides)))
    for batch in batches:
        assert len({sides[position] for position in batch}) == 1
        assert batch == sorted(batch)
        assert len(batch) == 1 or len(batch) * sizes[batch[0]] <= most
        assert len(batch) <= (1 if padding is Padding.SINGLE else rows or len(sides))
    order = [sizes[batch[0]] for batch in batches]
    assert order == sorted(order, reverse=True)


def test_rows_fit_together_by_shape_and_by_what_they_share():
    one, other = {**picture(4), **TEXTS}, {**picture(4, 1.0), **TEXTS}
    longer = {**picture(4), **{name: values[:, :4] for name, values in TEXTS.items()}}
    assert shapes.key_of(one, TEXTS) == shapes.key_of(other, TEXTS) != shapes.key_of(longer, TEXTS)
    assert shapes.key_of(one, TEXTS) != shapes.key_of({**one, "input_ids": 2 * TEXTS["input_ids"]}, TEXTS)
    assert shapes.key_of(picture(4), ()) != shapes.key_of(picture(2), ())
    assert shapes.size_of(one, TEXTS) == 48
    assert stack([one, other], TEXTS)["pixel_values"].shape == (2, 3, 4, 4)
    assert stack([one, other], TEXTS)["input_ids"].shape == (3, 5)


def test_a_batch_is_taken_apart_again():
    def run(batch):
        return {"logits": batch["pixel_values"].mean(axis=(1, 2, 3))[:, None] + batch["input_ids"].sum()}

    rows = [{**picture(2, value), **TEXTS} for value in (1.0, 2.0, 3.0)]
    found = run_batch(run, rows, {}, per_token=False, shared=frozenset(TEXTS))
    assert [row["logits"].tolist() for row in found] == [[[16.0]], [[17.0]], [[18.0]]]


def norm_over_the_batch(batch):
    return {"logits": batch["pixel_values"] - batch["pixel_values"].mean()}


def only_one(batch):
    if len(batch["pixel_values"]) > 1:
        raise RuntimeError("one at a time")
    return {"logits": batch["pixel_values"]}


@pytest.mark.parametrize(
    ("run", "padding"),
    [
        (lambda batch: {"logits": 2 * batch["pixel_values"]}, Padding.EQUAL_LENGTHS),
        (norm_over_the_batch, Padding.SINGLE),
        (only_one, Padding.SINGLE),
    ],
)
def test_what_a_model_does_with_a_second_row_is_measured(run, padding):
    ramp = {"pixel_values": np.arange(48, dtype=np.float32).reshape(1, 3, 4, 4) ** 2}
    assert shapes.measure(run, ramp, ()) is padding


def test_rows_are_as_many_as_are_fastest(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(shapes.time, "perf_counter", lambda: now[0])

    def costs(call_s: float, row_s: float, worse_from: int = 99) -> Any:
        def run(batch: Any) -> dict[str, Any]:
            rows = len(batch["pixel_values"])
            now[0] += call_s + rows * row_s * (10 if rows >= worse_from else 1)
            return {}

        return run

    assert shapes.fastest_rows(costs(0.0, 0.01), picture(4), ()) == (1, pytest.approx(0.01))
    assert shapes.fastest_rows(costs(0.01, 0.001), picture(4), ())[0] == 8
    assert shapes.fastest_rows(costs(0.01, 0.001, worse_from=4), picture(4), ())[0] == 2
    assert shapes.fastest_rows(costs(1.0, 0.5), picture(4), ())[0] == 1, "there is no time to try"
    assert shapes.fastest_rows(costs(0.01, 0.001), picture(700), ())[0] == 1, "large rows run alone"


def test_axes_are_fixed_where_all_rows_agree():
    wide = {"pixel_values": np.zeros((1, 3, 4, 6), np.float32)}
    assert shapes.shapes_of([picture(4), picture(4)], ["pixel_values"]) == {"pixel_values": (3, 4, 4)}
    assert shapes.shapes_of([picture(4), wide], ["pixel_values"]) == {"pixel_values": (3, 4, None)}


def test_a_mask_of_ones_says_nothing_and_one_with_zeros_is_not_ignored():
    whole, part = np.ones((1, 4, 4), np.int64), np.eye(4, dtype=np.int64)[None]
    found = complete({**picture(4), "pixel_mask": whole}, ["pixel_values"])
    assert list(found) == ["pixel_values"]
    assert found["pixel_values"].dtype == np.float32
    with pytest.raises(UnsupportedOnEngineError, match="pixel_mask"):
        complete({**picture(4), "pixel_mask": part}, ["pixel_values"])
    with pytest.raises(UnsupportedOnEngineError, match="needs pixel_mask"):
        complete(picture(4), ["pixel_values", "pixel_mask"])
    with pytest.raises(UnsupportedOnEngineError, match="attention_mask"):
        complete({name: np.ones((1, 3), np.int64) for name in ("input_ids", "attention_mask")}, ["input_ids"])


def test_pictures_and_sounds_are_varied_and_always_the_same():
    pictures, sounds = synthetic.pictures(), synthetic.sounds()
    assert all(np.array_equal(one, other) for one, other in zip(pictures, synthetic.pictures(9), strict=False))
    assert all(np.array_equal(one, other) for one, other in zip(sounds, synthetic.sounds(9), strict=False))
    assert {one.dtype.name for one in pictures} == {"uint8"}
    assert {one.dtype.name for one in sounds} == {"float32"}
    assert len({one.shape for one in pictures}) > 4
    assert len({one.shape for one in sounds}) > 3
    assert len({one.tobytes() for one in pictures}) == len(pictures)
    assert all(one.std() > 0 and np.abs(one).max() <= 1 for one in sounds)
    assert len(synthetic.sounds(1, rate=8000)[0]) * 2 == len(sounds[0])


@pytest.mark.parametrize(("modality", "kind"), [("image", "an image"), ("audio", "sound")])
def test_what_cannot_be_a_picture_or_a_sound_is_named(modality, kind):
    for item in (None, 3, float("nan")):
        with pytest.raises(InputError, match=kind) as error:
            inputs.check(item, 4, modality)
        assert error.value.index == 4
    for item in ("a path.png", b"bytes", {"sampling_rate": 16_000, "raw": None}, np.zeros(3), [1, 2]):
        inputs.check(item, 0, modality)


def test_shapes_survive_json():
    found = shapes.shapes_of([picture(4)], ["pixel_values"])
    assert json.loads(json.dumps(found)) == {"pixel_values": [3, 4, 4]}
