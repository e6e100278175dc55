"""Scores of boxes where the usual files do not lead: tables of any form, and more boxes than are ranked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from box_files import made
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching
from xbench_fast.metrics_gpu.detection.average_precision import average_precision
from xbench_fast.metrics_gpu.detection.boxes import Answers, BoxLists
from xbench_fast.metrics_gpu.detection.overlaps import HIT, BoxOverlaps, matched, matched_in_order, overlaps
from xbench_fast.metrics_gpu.detection.published.scorer import Values
from xbench_fast.metrics_gpu.detection.scores import matched_scores
from xbench_fast.runtime.host.protocols import SCORERS


def test_the_matching_is_the_largest_of_any_table() -> None:
    """Tables that boxes seldom have, in which a box that gave way must look at every true box again."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(3, 9, (1500, 2))
    tables = [(rng.random(size) < rng.uniform(0.15, 0.5)).astype(np.float64) for size in sizes]
    given, truth, cells = (
        np.concatenate([[0], np.cumsum(counts)]) for counts in (sizes[:, 0], sizes[:, 1], sizes.prod(axis=1))
    )
    found = matched(BoxOverlaps(np.concatenate([grid.ravel() for grid in tables]), cells, given, truth), (0.5,))[0]
    assert found.tolist() == [int((maximum_bipartite_matching(csr_matrix(grid)) >= 0).sum()) for grid in tables]


def test_boxes_in_order_take_the_last_of_equal_true_boxes_or_above_a_threshold_the_first() -> None:
    left, right, between = [0.0, 0.0, 10.0, 10.0], [10.0, 0.0, 20.0, 10.0], [5.0, 0.0, 15.0, 10.0]
    two = overlaps(BoxLists.of([[between, left]]), BoxLists.of([[left, right]]))
    for above, wanted in ((False, [HIT, HIT]), (True, [HIT, 0])):
        assert matched_in_order(two, (0.3,), above=above)[0].tolist() == wanted
    half = overlaps(BoxLists.of([[[0, 0, 5, 10]]]), BoxLists.of([[left]]))
    for above, wanted in ((False, [[HIT], [0]]), (True, [[0], [0]])):
        assert matched_in_order(half, (0.5, 0.6), above=above).tolist() == wanted


def test_chex_asks_for_more_than_its_threshold() -> None:
    answers = made([[[0, 0, 16, 32]]], [[[0, 0, 32, 32]]], (128, 128), scores=[[0.9]])
    found = SCORERS["chex"].compute(answers, overlaps(answers.given, answers.truth))
    assert found["AP@0.5"] == 0 and found["mAP"] == pytest.approx(2 / 8)


def test_average_precision_takes_the_surest_100_boxes_of_an_image() -> None:
    """The 101st box of an image is neither a hit nor a miss, whatever is ranked below it."""
    wrong, right = [50.0, 50.0, 60.0, 60.0], [0.0, 0.0, 10.0, 10.0]
    answers = made([[wrong] * 100 + [right], [right]], [[right], [right]])
    scores = np.concatenate([np.linspace(1.0, 0.6, 101), [0.5]])
    found = average_precision(replace(answers, given=replace(answers.given, scores=scores)))
    # One of two true boxes is found, at rank 101: recall 0 to 0.5 are 51 of 101 points.
    assert found["ap@0.5"] == pytest.approx(51 / 101 / 101)


def test_a_model_that_says_nothing_has_precision_0_and_no_number_where_nothing_is_asked() -> None:
    right = [0.0, 0.0, 10.0, 10.0]
    for given, truth, wanted in (([[]], [[right]], 0.0), ([[right]], [[right]], 1.0)):
        answers = made(given, truth)
        (scores,) = matched_scores(answers, overlaps(answers.given, answers.truth), thresholds=(0.5,))
        assert scores.precision.tolist() == scores.recall.tolist() == scores.f1_with_negatives.tolist() == [wanted]
    answers = made([], [])
    (scores,) = matched_scores(answers, overlaps(answers.given, answers.truth), thresholds=(0.5,))
    assert np.isnan([scores.precision, scores.recall, scores.f1, scores.f1_with_negatives]).all()


def published(name: str, given: list[list[list[float]]], truth: list[list[list[float]]]) -> Values:
    answers = made(given, truth)
    return SCORERS[name].compute(answers, overlaps(answers.given, answers.truth))


def test_radvlm_takes_the_first_of_two_true_boxes_that_overlap_equally() -> None:
    """And misses where another box then finds it taken."""
    left, right = [0.0, 0.0, 20.0, 10.0], [20.0, 0.0, 40.0, 10.0]
    between = [10.0, 0.0, 30.0, 10.0]
    assert published("radvlm", [[between, left]], [[left, right]])["mAP_0.25"] == pytest.approx(0.5)
    assert published("radvlm", [[between, right]], [[left, right]])["mAP_0.25"] == pytest.approx(1.0)


def test_an_overlap_of_exactly_a_half_is_correct_for_acc50() -> None:
    found = published("acc50", [[[0.0, 0.0, 100.0, 50.0]]], [[[0.0, 0.0, 100.0, 100.0]]])
    assert (found["pairs_with_one_box.acc_0.5"], found["pairs_with_one_box.at_threshold"]) == (1.0, 1.0)


LEFT, RIGHT = [0.0, 0.0, 10.0, 10.0], [20.0, 0.0, 30.0, 10.0]


@pytest.mark.parametrize(
    ("given", "others", "distances"),
    [
        ([[15.0, 0.0, 25.0, 10.0], [5.0, 0.0, 15.0, 10.0]], False, [0.5, 0.5]),
        ([[8.0, 0.0, 18.0, 10.0], [12.0, 0.0, 22.0, 10.0]], True, [0.8, 0.8, 0.0, 0.0]),
    ],
)
def test_a_class_counts_for_rodeo_as_far_as_the_classes_of_images_are_right(
    given: list[list[float]], others: bool, distances: list[float]
) -> None:
    """One image has both classes, given and true, so the class of a box says nothing and its place decides. With two
    images whose classes are exchanged the correlation is negative, and a class still costs nothing."""
    pairs = 6 if others else 2
    answers = Answers(
        given=BoxLists.of([[given[0]], [given[1]], [], [LEFT], [LEFT], []][:pairs]),
        truth=BoxLists.of([[LEFT], [RIGHT], [LEFT], [], [], [LEFT]][:pairs]),
        class_of=np.array([0, 1, 0, 1, 0, 1][:pairs]),
        case_of=np.array([0, 0, 1, 1, 2, 2][:pairs]),
        sizes=np.full((pairs, 2), 100),
        names=("Mass", "Nodule"),
        cases=pairs // 2,
    )
    found = SCORERS["rodeo"].compute(answers, overlaps(answers.given, answers.truth))
    wanted = np.exp(-np.log(2) * np.square(distances)).mean()
    assert found["localization"] == pytest.approx(wanted)
