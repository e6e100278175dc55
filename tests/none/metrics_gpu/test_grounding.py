"""Grounding metrics against sums over pairs written out by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from xbench_fast.metrics_gpu.grounding.pairs import Pairs
from xbench_fast.metrics_gpu.grounding.protocols import GroundingOptions
from xbench_fast.metrics_gpu.grounding.scores import grounding
from xbench_fast.metrics_gpu.statistics.bootstrap import macro_mean, mean_over_classes, micro_mean
from xbench_fast.metrics_gpu.statistics.measured_numbers import Measured
from xbench_fast.metrics_gpu.sweep.counts import Counts, dice_curves, iou_curves
from xbench_fast.metrics_gpu.sweep.pointing import pointing_hits
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.metrics_gpu.sweep.sweep_options import Sweeping


def random_counts(rng, pairs=40, pixels=400):
    """Counts of random maps and regions, by brute force on small grids."""
    side = int(pixels**0.5)
    grids = rng.random((pairs, 5, 5), dtype=np.float32)
    masks = rng.random((pairs, side, side)) < rng.uniform(0.02, 0.5, (pairs, 1, 1))
    masks[:, 0, 0] = True
    grids[0] = 0.5
    return sweep(grids, masks)


def counts_of(area, overlap, region, hit=None, degenerate=None, argmax=None):
    pairs = len(region)
    flags = np.zeros(pairs, bool)
    return Counts(
        np.asarray(area, np.int32),
        np.asarray(overlap, np.int32),
        np.asarray(region, np.int32),
        np.zeros(pairs, np.int32) if argmax is None else argmax,
        flags if hit is None else np.asarray(hit, bool),
        flags if degenerate is None else np.asarray(degenerate, bool),
    )


def steps(*values):
    """[101] with values given as (from level, value)."""
    out = np.zeros(101, np.int32)
    for start, value in values:
        out[start:] = value
    return out


def naive_curves(counts):
    dice = [
        [2 * int(o) / (int(a) + int(r)) for a, o in zip(area, overlap, strict=True)]
        for area, overlap, r in zip(counts.area, counts.overlap, counts.region, strict=True)
    ]
    iou = [
        [int(o) / (int(a) + int(r) - int(o)) for a, o in zip(area, overlap, strict=True)]
        for area, overlap, r in zip(counts.area, counts.overlap, counts.region, strict=True)
    ]
    return dice, iou


def one(scores, name):
    """The numbers of a class, or of `macro` or `micro`, as attributes."""
    return SimpleNamespace(**scores.record(name))


def mean(values):
    values = list(values)
    return sum(values) / len(values)


@pytest.mark.parametrize("tau_from", [0.0, 0.01])
@pytest.mark.parametrize("iou_at", ["joint", "independent"])
@pytest.mark.parametrize("unit", ["per_class", "per_dataset", "per_image"])
def test_every_option_against_loops(unit, iou_at, tau_from):
    rng = np.random.default_rng(0)
    counts = random_counts(rng)
    names = ["a", "b", "empty", "c"]
    class_of = rng.choice([0, 1, 3], len(counts))
    result = grounding(Pairs(counts, class_of, names), GroundingOptions(tau_from=tau_from, unit=unit, iou_at=iou_at))
    dice, iou = naive_curves(counts)
    first = 0 if tau_from == 0.0 else 1
    levels = range(first, 101)
    members = {c: [p for p in range(len(counts)) if class_of[p] == c] for c in (0, 1, 3)}

    def class_mean(curve, c, k):
        return mean(curve[p][k] for p in members[c])

    def best(curve):
        return {c: max(levels, key=lambda k: (class_mean(curve, c, k), -k)) for c in members}

    if unit == "per_dataset":
        k_dice = dict.fromkeys(members, max(levels, key=lambda k: mean(class_mean(dice, c, k) for c in members)))
        k_iou = dict.fromkeys(members, max(levels, key=lambda k: mean(class_mean(iou, c, k) for c in members)))
    else:
        k_dice, k_iou = best(dice), best(iou)
    if iou_at == "joint":
        k_iou = k_dice

    empty = one(result, "empty")
    assert empty.n == 0 and empty.dice_best is None and empty.best_tau is None and empty.iou_tau is None
    for c, pairs in members.items():
        got = one(result, names[c])
        assert (got.name, got.n) == (names[c], len(pairs))
        assert got.degenerate == sum(bool(counts.degenerate[p]) for p in pairs)
        assert got.pointing == pytest.approx(mean(int(counts.hit[p]) for p in pairs))
        assert got.dice_fixed == pytest.approx(class_mean(dice, c, 50))
        assert got.iou_fixed == pytest.approx(class_mean(iou, c, 50))
        assert got.floor_dice == pytest.approx(
            mean(2 * int(counts.region[p]) / (400 + int(counts.region[p])) for p in pairs)
        )
        assert got.floor_iou == got.chance == pytest.approx(mean(int(counts.region[p]) / 400 for p in pairs))
        if unit == "per_image":
            each = [max(levels, key=lambda k, p=p: (dice[p][k], -k)) for p in pairs]
            assert got.dice_best == pytest.approx(mean(dice[p][k] for p, k in zip(pairs, each, strict=True)))
            at = (
                [iou[p][k] for p, k in zip(pairs, each, strict=True)]
                if iou_at == "joint"
                else [max(iou[p][first:]) for p in pairs]
            )
            assert got.iou_best == pytest.approx(mean(at))
            assert got.best_tau is None and got.iou_tau is None
        else:
            assert (got.best_tau, got.iou_tau) == (k_dice[c] / 100, k_iou[c] / 100)
            assert got.dice_best == pytest.approx(class_mean(dice, c, k_dice[c]))
            assert got.iou_best == pytest.approx(class_mean(iou, c, k_iou[c]))
        assert got.delta_dice == pytest.approx(100 * (got.dice_best - got.dice_fixed))
        if unit != "per_dataset":
            assert got.delta_dice >= 0
    used = [one(result, names[c]) for c in members]
    for field in ("pointing", "dice_fixed", "iou_fixed", "dice_best", "iou_best", "delta_dice", "floor_dice", "chance"):
        values = [getattr(scores, field) for scores in used]
        assert result.value(field) == pytest.approx(mean(values))
        weighted = sum(v * s.n for v, s in zip(values, used, strict=True)) / len(counts)
        assert result.value(field, "micro") == pytest.approx(weighted)
    macro, micro = one(result, "macro"), one(result, "micro")
    assert macro.n == micro.n == len(counts)
    assert macro.degenerate == micro.degenerate == int(counts.degenerate.sum()) > 0


def test_searches_are_ordered():
    rng = np.random.default_rng(3)
    counts = random_counts(rng, 60)
    class_of = rng.integers(0, 3, 60)
    value = {
        unit: grounding(Pairs(counts, class_of, "abc"), GroundingOptions(unit=unit)).value("dice_best")
        for unit in ("per_dataset", "per_class", "per_image")
    }
    result = grounding(Pairs(counts, class_of, "abc"))
    assert result.value("floor_dice") <= value["per_dataset"] <= value["per_class"] <= value["per_image"]
    for scores in (one(result, name) for name in "abc"):
        assert scores.dice_best >= max(scores.floor_dice, scores.dice_fixed)


def test_equal_means_take_the_smallest_threshold():
    area = [steps((0, 100), (1, 10))]
    counts = counts_of(area, [steps((0, 10), (1, 10))], [10])
    scores = one(grounding(Pairs(counts, np.array([0]), ["x"])), "x")
    assert scores.best_tau == 0.01 and scores.dice_best == 1.0 and scores.iou_best == 1.0


def test_the_search_from_one_per_cent_can_fall_below_the_floor():
    counts = counts_of([steps((0, 100), (1, 50))], [steps((0, 30), (1, 0))], [30])
    floor = 2 * 30 / 130
    assert grounding(Pairs(counts, np.array([0]), ["x"])).value("dice_best", "x") == pytest.approx(floor)
    late = one(grounding(Pairs(counts, np.array([0]), ["x"]), GroundingOptions(tau_from=0.01)), "x")
    assert late.dice_best == 0 and late.best_tau == 0.01 and late.floor_dice == pytest.approx(floor)


def test_iou_at_its_own_threshold_differs_from_the_joint_one():
    # two pairs whose best common thresholds differ between Dice and IoU
    area = [steps((0, 100), (1, 100), (60, 10)), steps((0, 100), (1, 40), (60, 1))]
    overlap = [steps((0, 10), (1, 10), (60, 10)), steps((0, 40), (1, 30), (60, 1))]
    counts = counts_of(area, overlap, [10, 40])
    dice, iou = naive_curves(counts)
    k_dice = max(range(101), key=lambda k: (dice[0][k] + dice[1][k], -k))
    k_iou = max(range(101), key=lambda k: (iou[0][k] + iou[1][k], -k))
    joint = one(grounding(Pairs(counts, np.zeros(2, int), ["x"])), "x")
    own = one(grounding(Pairs(counts, np.zeros(2, int), ["x"]), GroundingOptions(iou_at="independent")), "x")
    assert joint.iou_tau == joint.best_tau == k_dice / 100 and own.iou_tau == k_iou / 100
    assert own.iou_best >= joint.iou_best


def test_pointing_ties():
    grids = np.zeros((3, 2, 2), np.float32)
    grids[0, 0, 0] = grids[0, 1, 1] = 1  # two tied cells of 4 pixels each, the second one half in the region
    grids[1, 0, 1] = 1
    masks = np.zeros((3, 4, 4), bool)
    masks[0, 2, 2:] = True
    masks[1, :2, 2:] = True
    masks[2] = True  # degenerate map: a miss under every rule
    counts = sweep(grids, masks, sweeping=Sweeping(upsample="nearest"))
    assert pointing_hits(counts, "first").tolist() == [0, 1, 0]
    assert pointing_hits(counts, "any").tolist() == [1, 1, 0]
    assert pointing_hits(counts, "expected").tolist() == [2 / 8, 1, 0]
    for rule, expected in (("first", 1 / 3), ("any", 2 / 3), ("expected", 1.25 / 3)):
        result = grounding(Pairs(counts, np.zeros(3, int), ["x"]), GroundingOptions(ties=rule))
        assert result.value("pointing", "x") == pytest.approx(expected) and result.count("degenerate", "x") == 1


def test_curves_refuse_pairs_without_region():
    counts = counts_of([steps((0, 4))] * 2, [steps((0, 1)), steps((0, 0))], [1, 0])
    for function in (dice_curves, iou_curves, lambda c: grounding(Pairs(c, np.zeros(2, int), ["x"]))):
        with pytest.raises(ValueError, match=r"1 pairs have no region .*pair 1"):
            function(counts)


def test_counts_are_whole_where_the_first_threshold_marks_every_pixel():
    for area, overlap, whole in (
        ((100, 100), (10, 10), True),
        ((100, 90), (10, 10), False),
        ((90, 90), (10, 9), False),
    ):
        counts = counts_of(*([steps((0, value)) for value in values] for values in (area, overlap)), [10, 10])
        assert counts.marks_every_pixel == whole


def test_a_class_that_is_not_there_has_no_number():
    result = grounding(Pairs(random_counts(np.random.default_rng(4)), np.zeros(40, int), ["x"]))
    assert result.count("n", "y") == 0 and result.count("n", "x") == result.count("n") == 40
    assert result.number("pointing", "y") == Measured() and result.value("pointing", "y") is None
    assert (
        result.number("pointing", "x").value == result.value("pointing", "micro")
        and result.number("chance", "x").n == 40
    )


def test_a_threshold_of_all_classes_is_that_of_both_means():
    counts, class_of = random_counts(np.random.default_rng(5)), np.arange(40) % 2
    result = grounding(Pairs(counts, class_of, ["x", "y"]), GroundingOptions(unit="per_dataset"))
    taus = [result.value("best_tau", name) for name in ("x", "y", "macro", "micro")]
    assert taus[0] is not None and len(set(taus)) == 1


def test_no_pair_at_all():
    result = grounding(Pairs(Counts.empty(), np.zeros(0, int), ["x", "y"]))
    assert result.count("n") == 0 and result.value("pointing") is result.value("dice_best", "micro") is None
    shared = grounding(Pairs(Counts.empty(), np.zeros(0, int), ["x"]), GroundingOptions(unit="per_dataset"))
    assert shared.value("best_tau") is None


def test_misuse():
    counts = counts_of([steps((0, 4))], [steps((0, 1))], [1])
    with pytest.raises(ValueError, match="shape"):
        grounding(Pairs(counts, np.zeros(2, int), ["x"]))
    with pytest.raises(ValueError, match=r"0\.\.0, got 1\.\.1"):
        grounding(Pairs(counts, np.ones(1, int), ["x"]))
    for options in ({"tau_from": 0.5}, {"ties": "last"}, {"unit": "per_pixel"}, {"iou_at": "both"}):
        with pytest.raises(ValueError, match=next(iter(options))):
            GroundingOptions(**options)
    with pytest.raises(ValueError, match="shape"):
        Counts(counts.area, counts.overlap, counts.region, counts.argmax, np.zeros(2, bool), counts.degenerate)
    with pytest.raises(TypeError, match="int32"):
        Counts(
            counts.area.astype(np.int64), counts.overlap, counts.region, counts.argmax, counts.hit, counts.degenerate
        )


def test_means():
    assert macro_mean([1.0, None, 0.0]) == 0.5 and macro_mean([None]) is None and macro_mean([]) is None
    assert micro_mean([1.0, None, 0.0], [3, 5, 1]) == 0.75 and micro_mean([1.0], [0]) is None


def test_means_over_classes_in_rows():
    values = np.array([[0.1] * 10, [0.5, np.nan, *[0.2] * 8], [np.nan] * 10])
    weights = np.array([[4.0] * 10, [4.0, 0.0, *[0.5] * 8], [0.0] * 10])
    found, weighted = mean_over_classes(values), mean_over_classes(values, weights)
    assert found[0] == weighted[0] == 0.1, "the estimate is summed without rounding"
    assert found[1] == pytest.approx(2.1 / 9) and weighted[1] == pytest.approx((2.0 + 0.8) / 8)
    assert np.isnan(found[2]) and np.isnan(weighted[2])
    assert np.isnan(mean_over_classes(np.zeros((4, 0)))).tolist() == [True] * 4
