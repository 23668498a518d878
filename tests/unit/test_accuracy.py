"""The measures of the accuracy check, on arrays whose answers are known."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpipe.options import Accuracy
from fastpipe.precision.accuracy import MEASURES, Array, Figures, figures, instability, shortfalls
from fastpipe.tasks import GENERATORS, TASKS

MASK = 9
IDS = np.array([[1, MASK, 2, MASK]])


def reduced(measure: str, *outputs: Any, ids: Array = IDS) -> Array:
    """What is compared of one row; outputs are given without the axis of rows."""
    return MEASURES[measure].reduce([np.array(output, np.float32)[None] for output in outputs], ids, MASK)


def compared(measure: str, reference: list[Array], candidate: list[Array]) -> tuple[list[float], list[float]]:
    agreement, drift = MEASURES[measure].compare(reference, candidate)
    assert agreement.shape == drift.shape == (len(reference),)
    return agreement.tolist(), drift.tolist()


def test_every_task_has_a_measure_and_every_measure_a_task():
    tasks = (*TASKS.values(), *GENERATORS.values())
    assert {task.measure for task in tasks} | {"order", "label-sets"} == set(MEASURES)
    for measure in MEASURES.values():
        assert measure.agreement
        assert measure.drift
        assert measure.headline in ("agreement", "worst")


def test_labels_agree_where_the_highest_score_is_the_same():
    reference = [reduced("labels", [0, np.log(3)]), reduced("labels", [0, np.log(3)])]
    candidate = [reduced("labels", [0, np.log(4)]), reduced("labels", [np.log(4), 0])]
    agreement, drift = compared("labels", reference, candidate)
    assert agreement == [1, 0]
    assert drift == pytest.approx([0.05, 0.55], abs=1e-6)


@pytest.mark.parametrize("measure", ["labels", "token-labels", "masked-tokens", "answers"])
@pytest.mark.parametrize(
    ("reference", "agreement"), [([1.0, 1.0, 0.5], 1), ([1.0, 0.99, 0.5], 1), ([1.0, 0.9, 0.5], 0)]
)
def test_a_near_tie_of_the_reference_has_no_right_side(measure, reference, agreement):
    swapped = np.array([[reference[1], reference[0], reference[2]]])
    found = compared(measure, [np.array([reference]) / 2.5], [swapped / 2.5 + [[-0.01, 0.01, 0]]])
    assert found[0] == [agreement]


def test_huge_logits_are_probabilities_all_the_same():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for measure in ("labels", "label-sets"):
            one = reduced(measure, [1e4, -1e4, 1e4])
            assert np.isfinite(one).all()
            assert ((one >= 0) & (one <= 1)).all()


def test_label_sets_agree_by_the_share_of_labels_on_the_same_side_of_one_half():
    reference = reduced("label-sets", [2, -2, 2, -2])
    assert reference == pytest.approx([0.880797, 0.119203, 0.880797, 0.119203], abs=1e-5)
    agreement, drift = compared("label-sets", [reference] * 2, [reduced("label-sets", [2, -2, 2, 2]), reference])
    assert agreement == [0.75, 1]
    assert drift == pytest.approx([0.761594, 0], abs=1e-5)
    near = reduced("label-sets", [0.1, -0.1, 0.1, -0.1])
    assert compared("label-sets", [reference, reference], [near, -near + 1])[0] == [1, 0]


def test_token_labels_agree_by_the_share_of_tokens():
    reference = reduced("token-labels", [[9, 0, 0], [0, 9, 0], [0, 0, 9], [9, 0, 0]])
    candidate = reduced("token-labels", [[9, 0, 0], [0, 9, 0], [0, 9, 0], [8, 0, 0]])
    agreement, drift = compared("token-labels", [reference], [candidate])
    assert agreement == [0.75]
    assert drift == pytest.approx([1.0], abs=1e-3)


def test_only_masks_count_and_each_of_them_does():
    reference = reduced("masked-tokens", [[5, 0], [5, 0], [0, 5], [0, 5]])
    assert reference.shape == (2, 2)
    elsewhere = reduced("masked-tokens", [[0, 5], [5, 0], [5, 0], [0, 5]])
    one_mask = reduced("masked-tokens", [[5, 0], [0, 5], [0, 5], [0, 5]])
    agreement, drift = compared("masked-tokens", [reference] * 2, [elsewhere, one_mask])
    assert agreement == [1, 0.5]
    assert drift == pytest.approx([0, math.tanh(2.5)], abs=1e-5)


@pytest.mark.parametrize("masks", [1, 2, 3])
def test_rows_may_hold_different_numbers_of_masks(masks):
    ids = np.array([[1, *[MASK] * masks, 2]])
    scores = np.eye(masks + 2)
    assert reduced("masked-tokens", scores, ids=ids).shape == (masks, masks + 2)


def test_answers_agree_by_the_share_of_their_two_ends():
    start, end = [0, 6, 0, 0], [0, 0, 6, 0]
    reference = reduced("answers", start, end)
    assert reference.sum(axis=1) == pytest.approx([1, 1])
    candidates = [reduced("answers", start, end), reduced("answers", start, start), reduced("answers", end, start)]
    agreement, drift = compared("answers", [reference] * 3, candidates)
    assert agreement == [1, 0.5, 0]
    assert drift[0] == 0
    assert min(drift[1:]) > 0.9


def test_embeddings_are_means_over_tokens_and_compared_by_cosine():
    reference = reduced("embeddings", [[2, 0], [0, 0]])
    assert reference.tolist() == [1, 0]
    candidates = [
        reduced("embeddings", [[4, 0], [4, 0]]),
        reduced("embeddings", [[1, 0], [0, 1]]),
        reduced("embeddings", [[0, 3], [0, 3]]),
    ]
    agreement, drift = compared("embeddings", [reference] * 3, candidates)
    assert agreement == pytest.approx([1, math.sqrt(0.5), 0], abs=1e-6)
    assert drift == pytest.approx([0, 1 - math.sqrt(0.5), 1], abs=1e-6)


@pytest.mark.parametrize("vector", [[1, 0], [1, 1, 1], [0.1, 0.7, -0.3], list(range(1, 385)), [1e-3] * 7])
def test_an_embedding_is_one_with_itself(vector):
    one = reduced("embeddings", [vector])
    assert compared("embeddings", [one], [one.copy()]) == ([1], [0])


def test_vectors_of_zeros_agree_with_one_another_and_with_nothing_else():
    zero, one = np.zeros(3, np.float32), np.ones(3, np.float32)
    agreement, drift = compared("embeddings", [zero, zero, one], [zero.copy(), one, zero])
    assert agreement == [1, 0, 0]
    assert drift == [0, 1, 1]


def test_opposite_embeddings_agree_in_nothing():
    agreement, drift = compared("embeddings", [np.array([1.0, 2.0])], [np.array([-1.0, -2.0])])
    assert agreement == [0]  # `Measure`: from 0 to 1 for each row
    assert drift[0] >= 1


def scores(values: list[float]) -> list[Array]:
    return [reduced("order", [value]) for value in values]


@pytest.mark.parametrize("seed", range(5))
def test_the_mean_agreement_of_orders_is_kendalls_tau(seed):
    random = np.random.default_rng(seed)
    r, c = random.permutation(9.0 * np.arange(12)), random.permutation(np.arange(12.0))
    signs = [np.sign(r[i] - r[j]) * np.sign(c[i] - c[j]) for i, j in itertools.combinations(range(12), 2)]
    agreement, _ = compared("order", scores(r), scores(c))
    assert 2 * np.mean(agreement) - 1 == pytest.approx(np.mean(signs))
    for i in range(12):
        others = [j for j in range(12) if j != i]
        same = [np.sign(r[i] - r[j]) == np.sign(c[i] - c[j]) for j in others]
        assert agreement[i] == pytest.approx(np.mean(same))


@pytest.mark.parametrize(
    ("reference", "candidate", "agreement"),
    [
        ([1, 2, 3], [1, 2, 3], [1, 1, 1]),
        ([1, 2, 3], [10, 20, 30], [1, 1, 1]),
        ([1, 2, 3], [3, 2, 1], [0, 0, 0]),
        ([1, 2, 3], [2, 1, 3], [0.5, 0.5, 1]),
        ([5, 5, 5], [1, 2, 3], [1, 1, 1]),  # equal in the reference: any order is as good
        ([1, 1, 2], [2, 1, 3], [1, 1, 1]),
        ([1, 2, 3], [7, 7, 8], [0.5, 0.5, 1]),  # equal in the candidate alone: an order was lost
        ([1], [9], [1]),
    ],
)
def test_order_with_ties(reference, candidate, agreement):
    assert compared("order", scores(reference), scores(candidate))[0] == agreement


def test_the_drift_of_an_order_is_in_standard_deviations():
    _, drift = compared("order", scores([0, 2]), scores([0.5, 2]))
    assert drift == [0.5, 0]
    _, drift = compared("order", scores([0, 200]), scores([50, 200]))
    assert drift == [0.5, 0]
    _, drift = compared("order", scores([3, 3]), scores([3, 3.25]))  # no spread: in the score's own unit
    assert drift == [0, 0.25]


def test_what_is_reduced_does_not_hang_on_the_engines_buffer():
    outputs = np.ones((1, 4), np.float32)
    for measure in ("labels", "label-sets", "order"):
        kept = MEASURES[measure].reduce([outputs], IDS, MASK)
        assert not np.shares_memory(kept, outputs), measure


_shapes = st.tuples(*[st.integers(1, 4)] * 3, st.sampled_from([0.125, 3.0]), st.integers(0, 2**32 - 1))


def pairs(measure: str, shape: tuple[Any, ...]) -> tuple[list[Array], list[Array]]:
    """Rows of a reference and of a candidate; few different numbers, so that there are ties, zeros and opposites."""
    rows, tokens, width, step, seed = shape
    random = np.random.default_rng(seed)
    one = {"answers": (tokens,), "labels": (width,), "label-sets": (width,), "order": (1,)}.get(
        measure, (tokens, width)
    )
    outputs = {"boxes": [(tokens, width), (tokens, 4)], "pixel-labels": [(width, tokens, 2)]}.get(measure, [one, one])
    ids = random.choice([1, MASK], (1, tokens))
    ids[0, -1] = MASK
    found = [
        [reduced(measure, *(step * random.integers(-4, 5, one) for one in outputs), ids=ids) for _ in range(rows)]
        for _ in range(2)
    ]
    return found[0], found[1]


@pytest.mark.parametrize("measure", MEASURES)
@settings(max_examples=25)
@given(shape=_shapes)
def test_a_candidate_that_is_the_reference_agrees_and_does_not_drift(measure, shape):
    rows, _ = pairs(measure, shape)
    assert compared(measure, rows, [row.copy() for row in rows]) == ([1] * len(rows), [0] * len(rows))
    assert figures(MEASURES[measure], rows, rows) == Figures(agreement=1, worst=1, drift=0)
    assert instability(MEASURES[measure], rows, dict(enumerate(rows))) == 0


@pytest.mark.parametrize("measure", MEASURES)
@settings(max_examples=25)
@given(shape=_shapes)
def test_agreement_is_from_0_to_1_and_drift_0_or_more(measure, shape):
    agreement, drift = compared(measure, *pairs(measure, shape))
    assert all(0 <= value <= 1 for value in agreement)
    assert all(value >= 0 for value in drift)


def test_a_query_counts_where_its_label_and_its_box_are_the_same():
    labels, boxes = np.array([[4.0, 0], [0, 4], [4, 0]]), np.full((3, 4), 0.5)
    moved, other = boxes.copy(), labels.copy()
    moved[0, 2] += 0.015
    moved[1, 3] += 0.025
    other[2] = other[2, ::-1]
    agreement, drift = compared("boxes", [reduced("boxes", labels, boxes)], [reduced("boxes", other, moved)])
    assert agreement == [pytest.approx(1 / 3)]
    assert drift == [pytest.approx(np.tanh(2), abs=1e-6)]  # of a label's probability; boxes have no part in it


def test_masks_of_queries_are_labels_of_pixels():
    """Two queries, two labels and "none": each covers half of four pixels."""
    labels = np.array([[9.0, 0, 0], [0, 9, 0]])
    masks = np.array([[[9.0, 9], [-9, -9]], [[-9, -9], [9, 9]]])
    found = reduced("pixel-labels", labels, masks)
    assert found.shape == (2, 2, 2)
    assert found.argmax(axis=-1).tolist() == [[0, 0], [1, 1]]
    swapped = reduced("pixel-labels", labels, masks[::-1].copy())
    assert compared("pixel-labels", [found], [swapped])[0] == [0]


def test_depths_are_compared_as_shares_of_their_range():
    reference, candidate = np.array([[0.0, 10], [5, 5]]), np.array([[0.0, 10], [5, 6]])
    agreement, drift = compared("depths", [reduced("depths", reference)], [reduced("depths", candidate)])
    assert (agreement, drift) == ([pytest.approx(0.975)], [pytest.approx(0.1)])


def test_figures_are_the_mean_the_worst_and_the_largest_drift():
    reference = [reduced("labels", [0, 1]), reduced("labels", [0, 1]), reduced("labels", [1, 0])]
    candidate = [reference[0], reference[1], reduced("labels", [0, 2])]
    found = figures(MEASURES["labels"], reference, candidate)
    assert found.agreement == pytest.approx(2 / 3)
    assert found.worst == 0
    assert found.drift == pytest.approx(1 / (1 + np.exp(-1)) - 1 / (1 + np.exp(2)), abs=1e-6)
    assert found.instability is None
    assert found.to_dict() == {
        "agreement": found.agreement,
        "worst": 0.0,
        "drift": found.drift,
        "instability": None,
    }
    assert all(type(value) is float for value in found.to_dict().values() if value is not None)


def test_rows_that_are_missing_are_not_left_out_of_the_comparison():
    one = reduced("labels", [0, 1])
    with pytest.raises(ValueError, match="shorter"):
        figures(MEASURES["labels"], [one, one], [one])


def test_instability_looks_at_the_rows_that_were_run_alone_by_their_position():
    together = [np.array([0.1 * row, 1.0]) for row in range(6)]
    alone = {0: together[0], 3: together[3] + [0.02, 0.0], 5: together[5] - [0.05, 0.0]}
    assert instability(MEASURES["token-labels"], together, alone) == pytest.approx(0.05)
    assert instability(MEASURES["token-labels"], together, {2: together[2]}) == 0.0
    assert instability(MEASURES["token-labels"], together, {}) == 0.0


def test_a_row_that_is_no_number_is_in_the_figures():
    rows = [reduced("labels", [0, 1]), reduced("labels", [0, 1])]
    broken = [rows[0], np.full(2, np.nan, np.float32)]
    assert math.isnan(figures(MEASURES["labels"], rows, broken).drift)
    assert math.isnan(instability(MEASURES["labels"], rows, {1: broken[1]}))


GOOD = Figures(agreement=0.99, worst=0.9, drift=0.05, instability=0.001)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Accuracy(), []),
        (Accuracy(agreement=0.99, worst=0.9, drift=0.05, instability=0.001), []),  # a limit is met where it is reached
        (Accuracy(agreement=0.995), ["agreement 0.99, at least 0.995 is wanted"]),
        (Accuracy(worst=0.95), ["worst agreement 0.9, at least 0.95 is wanted"]),
        (Accuracy(drift=0.01), ["drift 0.05, at most 0.01 is wanted"]),
        (Accuracy(instability=0.0), ["instability 0.001, at most 0 is wanted"]),
        (
            Accuracy(agreement=1, worst=0.5, drift=0.04),
            ["agreement 0.99, at least 1 is wanted", "drift 0.05, at most 0.04 is wanted"],
        ),
    ],
)
def test_each_threshold_that_is_missed_is_named_with_figure_and_limit(wanted, said):
    assert shortfalls(GOOD, wanted) == said


@pytest.mark.parametrize("name", ["agreement", "worst", "drift", "instability"])
def test_a_figure_that_is_no_number_misses(name):
    assert shortfalls(Figures(**{**GOOD.to_dict(), name: math.nan}), Accuracy(**{name: 0.5})) != []


@pytest.mark.parametrize("wanted", [Accuracy(agreement=0.9), Accuracy(worst=0.9), Accuracy(instability=0.1)])
def test_a_drift_that_is_no_number_misses_whatever_is_wanted(wanted):
    """`argmax` takes what is no number for a label; only the drift shows that it is none."""
    assert shortfalls(Figures(agreement=1, worst=1, drift=math.nan), wanted) != []


def test_an_instability_that_was_not_measured_is_not_missed():
    assert shortfalls(Figures(agreement=1, worst=1, drift=0), Accuracy(agreement=1, instability=0)) == []
