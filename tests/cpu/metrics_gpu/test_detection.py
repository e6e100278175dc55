"""Scores of boxes: counts against drawn masks, a reference without compiled code, and what must not change them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from box_files import made, read
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching
from xbench_fast.metrics_gpu.detection.average_precision import average_precision
from xbench_fast.metrics_gpu.detection.boxes import Answers, BoxLists, centres, pointed
from xbench_fast.metrics_gpu.detection.error_kinds import KINDS, anatomy, fixed, mended
from xbench_fast.metrics_gpu.detection.overlaps import matched, overlaps
from xbench_fast.metrics_gpu.detection.scores import hallucination, matched_scores
from xbench_fast.metrics_gpu.detection.unions import on_grid, pixel_rectangles, union_counts
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.runtime.data.datasets.region_boxes import Boxes
from xbench_fast.runtime.data.datasets.region_grid import region_grid

FILES = (
    "duplicates", "half_missing", "half_silent", "jitter", "largest_only", "mirrored", "negatives", "perfect", "scored",
    "several", "swapped_xy", "whole",
)  # fmt: skip


def random_lists(rng: np.random.Generator, pairs: int, size: tuple[int, int], most: int = 4) -> BoxLists:
    """Boxes with fractions, from less than a pixel to the whole image; some lists are empty."""
    lists = []
    for _ in range(pairs):
        own = []
        for _ in range(int(rng.integers(0, most + 1))):
            low = rng.uniform(0, 1, 2) * size
            high = np.minimum(low + np.exp(rng.uniform(-1, 7, 2)), size)
            own.append([*low, *high])
        lists.append(own)
    return BoxLists.of(lists)


@pytest.mark.parametrize("size", [(1024, 1024), (2544, 3056), (300, 97)])
def test_counts_of_unions_are_those_of_drawn_masks(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    given, truth = random_lists(rng, 60, size), random_lists(rng, 60, size)
    sizes = np.tile(np.array(size), (60, 1))
    mine, true = pixel_rectangles(given, sizes), pixel_rectangles(truth, sizes)
    native, small = union_counts(mine, true), union_counts(on_grid(mine, sizes), on_grid(true, sizes))
    tiny = 0
    for p in range(60):
        shapes = [
            Boxes(tuple(tuple(box) for box in lists.boxes[lists.offsets[p] : lists.offsets[p + 1]]))
            for lists in (given, truth)
        ]
        a, b = (shape.mask(size[1], size[0]) for shape in shapes)
        assert (native.area[p], native.overlap[p], native.region[p]) == (a.sum(), (a & b).sum(), b.sum())
        (a, kept), (b, _) = (region_grid(shape, size[1], size[0]) for shape in shapes)
        tiny += kept
        assert (small.area[p], small.overlap[p], small.region[p]) == (a.sum(), (a & b).sum(), b.sum())
    assert tiny or size[0] < 1000


def test_the_matching_is_the_largest() -> None:
    rng = np.random.default_rng(1)
    given, truth = random_lists(rng, 200, (50, 50), 7), random_lists(rng, 200, (50, 50), 7)
    table = overlaps(given, truth)
    found = matched(table, (0.1, 0.3))
    for t, threshold in enumerate((0.1, 0.3)):
        for p in range(200):
            values = table.values[table.offsets[p] : table.offsets[p + 1]]
            grid = values.reshape(given.lengths[p], truth.lengths[p]) >= threshold
            best = int((maximum_bipartite_matching(csr_matrix(grid)) >= 0).sum()) if grid.size else 0
            assert found[t, p] == best


def test_a_second_choice_is_matched_where_a_greedy_one_is_not() -> None:
    true = [[[0, 0, 10, 10], [6, 0, 16, 10]]]
    answers = made([[[3, 0, 13, 10], [0, 0, 10, 10]]], true)
    assert matched(overlaps(answers.given, answers.truth), (0.5,)).tolist() == [[2]]


def reference_of(answers: Answers) -> dict[str, float]:
    """The numbers of reference.json, by path."""
    table = overlaps(answers.given, answers.truth)
    mine, true = (pixel_rectangles(lists, answers.sizes) for lists in (answers.given, answers.truth))
    native = union_counts(mine, true)
    grid = union_counts(on_grid(mine, answers.sizes), on_grid(true, answers.sizes))
    columns = {
        "dice": grid.dice, "iou": grid.iou, "dice_native": native.dice, "iou_native": native.iou,
        "inside": native.inside, "pointing": pointed(centres(answers.given, answers.sizes), true),
    }  # fmt: skip
    found: dict[str, float] = {}
    for name, values in columns.items():
        found[f"{name}/pairs"] = float(values.mean())
        found[f"{name}/classes"] = float(np.mean([values[answers.class_of == c].mean() for c in range(10)]))
    for scores in matched_scores(answers, table):
        at = f"f1@{scores.threshold}"
        found |= {f"{at}/classes": float(scores.f1_classes[0]), f"{at}/tp": scores.tp}
        for name in ("f1", "f1_with_negatives", "precision", "recall"):
            found[f"{at}/{name}"] = float(getattr(scores, name)[0])
    invented = hallucination(answers)
    found |= {f"negatives/{name}": getattr(invented, name) for name in ("asked", "boxes", "with_boxes")}
    kinds = anatomy(answers)
    counts, before = kinds.counts(answers.truth), fixed(answers, kinds, None)
    for k, kind in enumerate(KINDS):
        found |= {f"errors/{kind}/boxes": int(counts[k].sum()), f"errors/{kind}/pairs": int((counts[k] > 0).sum())}
        if kind != "hit":
            after = fixed(answers, kinds, kind)
            found[f"errors/{kind}/dice_gain"] = float(after.dice.mean() - before.dice.mean())
            found[f"errors/{kind}/f1@0.5_gain"] = after.f1(answers.truth) - before.f1(answers.truth)
    found |= {"boxes": len(answers.given.boxes), "truth_boxes": len(answers.truth.boxes), "pairs": len(answers.truth)}
    return found


def flat(values: dict[str, Any], before: str = "") -> dict[str, float]:
    found: dict[str, float] = {}
    for key, value in values.items():
        found |= flat(value, f"{before}{key}/") if isinstance(value, dict) else {f"{before}{key}": value}
    return found


@pytest.mark.parametrize("name", FILES)
def test_the_default_protocol_and_the_kinds_of_errors_are_those_of_the_reference(
    reference_files: Path, name: str
) -> None:
    expected = flat(json.loads((reference_files / "boxes/reference.json").read_text())[name])
    for left in ("silent", "missing", "spoke"):  # the reader's counters
        expected.pop(left)
    found = reference_of(read(reference_files, name))
    assert {key: found[key] for key in expected} == pytest.approx(expected, abs=1e-9)


def test_all_kinds_fixed_leave_nothing(reference_files: Path) -> None:
    answers = read(reference_files, "scored")
    for _ in range(len(KINDS)):
        kinds = anatomy(answers)
        present = [kind for k, kind in enumerate(KINDS[1:], 1) if (kinds.kind == k).any() or (kinds.left == k).any()]
        if not present:
            break
        answers = replace(answers, given=mended(answers, kinds, present[0]))
    assert fixed(answers, anatomy(answers), None).f1(answers.truth) == 1.0


def kinds_of(answers: Answers) -> list[str]:
    return [KINDS[k] for k in anatomy(answers).kind]


def test_each_kind_of_error() -> None:
    true = [[[10, 10, 30, 30]]]
    boxes = {
        "hit": [10, 10, 30, 31], "too_large": [0, 0, 40, 40], "too_small": [12, 12, 18, 18],
        "poorly_placed": [20, 10, 40, 30], "wrong_side": [70, 10, 90, 30], "hallucinated": [40, 40, 60, 60],
    }  # fmt: skip
    for kind, box in boxes.items():
        assert kinds_of(made([[box]], true)) == [kind]
    assert kinds_of(made([[boxes["hit"], boxes["hit"]]], true)) == ["hit", "duplicate"]
    surest_last = made([[[10, 10, 30, 40], [10, 10, 30, 30]]], true, scores=[[0.1, 0.9]])
    assert kinds_of(surest_last) == ["hit", "duplicate"]
    assert anatomy(surest_last).given.boxes[0].tolist() == [10, 10, 30, 30]


def test_a_true_box_that_nothing_is_about_is_silent_or_missed() -> None:
    true = [[[10, 10, 30, 30], [50, 50, 70, 70]]] * 2
    found = anatomy(made([[], [[10, 10, 30, 30]]], true))
    assert [KINDS[k] if k >= 0 else "" for k in found.left] == ["silent", "silent", "", "missed"]


def test_pointing_takes_the_surest_box_and_else_the_first() -> None:
    true, near, far = [[[10, 10, 30, 30]]], [12, 12, 20, 20], [60, 60, 80, 80]
    size = np.array([[100, 100]])
    where = pixel_rectangles(made([[]], true).truth, size)

    def hit(boxes: Any, scores: Any = None) -> bool:
        return bool(pointed(centres(made([boxes], true, scores=scores).given, size), where)[0])

    assert hit([near, far])
    assert not hit([far, near])
    assert hit([far, near], [[0.2, 0.3]])
    assert not hit([far, near], [[0.2, 0.2]])
    assert not hit([])
    # The middle of 10 and 51 is 30.5, in pixel 30, before which the region ends.
    assert not hit([[10, 10, 51, 20]])


def test_average_precision_needs_scores_and_stands_between_precision_and_recall() -> None:
    true = [[[0, 0, 10, 10]], [[0, 0, 10, 10]]]
    with pytest.raises(ValueError, match="score"):
        average_precision(made([[], []], true))
    good, bad = [0, 0, 10, 10], [50, 50, 60, 60]
    sure = average_precision(made([[good], [bad]], true, scores=[[0.9], [0.1]]))
    unsure = average_precision(made([[good], [bad]], true, scores=[[0.1], [0.9]]))
    assert sure["ap@0.5"] == pytest.approx(51 / 101)
    assert unsure["ap@0.5"] == pytest.approx(51 / 101 / 2)
    half = average_precision(made([[[0, 0, 10, 5]], [good]], true, scores=[[0.9], [0.1]]))
    assert half["ap@0.5"] == 1.0, "an IoU of exactly 0.5 meets it"
    # An absent class that was asked lowers the precision of the boxes that follow.
    answers = made([[good], [good]], true, scores=[[0.9], [0.1]])
    asked = BoxLists.of([[bad]], [[0.5]])
    one = np.zeros(1, np.int64)
    more = replace(answers, negatives=asked, negative_class=one, negative_case=one, tried=np.array([True]))
    assert average_precision(answers)["ap"] == 1.0
    assert average_precision(more)["ap"] == pytest.approx((51 + 50 * 2 / 3) / 101)


def test_replicates_weigh_patients_and_the_estimate_is_their_row_0(reference_files: Path) -> None:
    answers = read(reference_files, "negatives")
    cases, names = answers.cases, answers.names
    draws = draw_patients(cases, 50)
    patients = (answers.case_of.astype(np.intp), answers.negative_case.astype(np.intp))
    table = overlaps(answers.given, answers.truth)
    found = matched_scores(answers, table, draws, patients)[2]
    weight = draws.counts[7]
    given, true, tp = (
        np.array([(weight[answers.case_of] * values)[answers.class_of == c].sum() for c in range(len(names))])
        for values in (answers.given.lengths, answers.truth.lengths, matched(table, (0.5,))[0])
    )
    extra = (weight[answers.negative_case] * answers.negatives.lengths).sum()
    assert found.by_class[8] == pytest.approx(2 * tp / (given + true))
    assert found.f1_with_negatives[8] == pytest.approx(2 * tp.sum() / (given.sum() + true.sum() + extra))


def test_boxes_that_were_dropped_on_a_negative_pair_still_count_as_an_answer_with_a_box() -> None:
    asked = BoxLists.of([[], [], [[0, 0, 5, 5], [0, 0, 5, 5]]])
    three = np.zeros(3, np.int64)
    answers = replace(
        made([[]], [[[0, 0, 5, 5]]]),
        negatives=asked, negative_class=three, negative_case=three, tried=np.array([True, False, True]),
    )  # fmt: skip
    found = hallucination(answers)
    assert (found.asked, found.with_boxes, found.boxes, found.share) == (3, 2, 2, 2 / 3)


def changed(answers: Answers, boxes: Any) -> Answers:
    """The answers with every box, given and true, moved by `boxes`."""
    given, truth = answers.given, answers.truth
    return replace(
        answers,
        given=BoxLists(boxes(given.boxes), given.offsets, given.scores),
        truth=BoxLists(boxes(truth.boxes), truth.offsets),
    )


def test_scaling_and_flipping_the_image_with_its_boxes_changes_nothing(reference_files: Path) -> None:
    answers = read(reference_files, "scored")
    before = reference_of(answers)
    double = replace(changed(answers, lambda boxes: boxes * 2), sizes=answers.sizes * 2)
    assert reference_of(double) == pytest.approx(before, abs=1e-12)
    after = reference_of(
        changed(answers, lambda boxes: np.array([1024, 0, 1024, 0]) + boxes[:, [2, 1, 0, 3]] * [-1, 1, -1, 1])
    )
    # The 224 grid samples the left side of each cell, and the middle pixel of an even width is its right one.
    exact = [key for key in before if "native" in key or key.startswith(("f1", "inside")) or key.endswith("/boxes")]
    assert {key: after[key] for key in exact} == pytest.approx({key: before[key] for key in exact}, abs=1e-12)


def test_doubling_every_box_changes_no_score_of_unions_but_f1(reference_files: Path) -> None:
    answers = read(reference_files, "jitter")
    twice = BoxLists(np.repeat(answers.given.boxes, 2, axis=0), answers.given.offsets * 2)
    before, after = reference_of(answers), reference_of(replace(answers, given=twice))
    unions = [key for key in before if key.split("/")[0].startswith(("dice", "iou", "inside", "pointing"))]
    assert {key: after[key] for key in unions} == {key: before[key] for key in unions}
    assert after["f1@0.5/f1"] < before["f1@0.5/f1"]


def test_lists_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="offsets"):
        BoxLists(np.zeros((1, 4)), np.array([0, 2]))
    with pytest.raises(ValueError, match="scores"):
        BoxLists(np.zeros((1, 4)), np.array([0, 1]), np.zeros(2))
    with pytest.raises(ValueError, match="class_of"):
        replace(made([[]], [[]]), class_of=np.zeros(2, np.int64))
