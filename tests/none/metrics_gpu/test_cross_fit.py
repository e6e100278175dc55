"""Cross-fitting by leaving patients out: against naive loops and the reference values of tests/golden/shared/trust."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from exact_units import in_units
from test_grounding import random_counts
from xbench_fast.metrics_gpu.grounding.best_thresholds import (
    FOLDS,
    LEAVE_ONE_OUT,
    REPEATS,
    cross_fitted,
    pair_folds,
    patient_folds,
)
from xbench_fast.metrics_gpu.grounding.pairs import Pairs
from xbench_fast.metrics_gpu.grounding.protocols import GroundingOptions
from xbench_fast.metrics_gpu.grounding.scores import FIELDS, grounding
from xbench_fast.metrics_gpu.statistics.bootstrap import SEED, draw_patients
from xbench_fast.metrics_gpu.sweep.counts import Counts

OPTIONS = GroundingOptions(unit="cross_fit")


def curves(counts):
    dice = 2 * counts.overlap / (counts.area + counts.region[:, None])
    return in_units(dice), in_units(counts.overlap / (counts.area + counts.region[:, None] - counts.overlap))


def by_loops(dice, iou, members, fold_of, options):
    """Mean Dice and IoU over the repeats of the pairs `members`, one pair at a time; None where nothing is fitted."""
    first, got = round(100 * options.tau_from), []
    for folds in fold_of:
        for p in members:
            others = [q for q in members if folds[q] != folds[p]]
            if not others:
                return None
            k = k_iou = first + int(np.argmax(np.round(dice[others].sum(axis=0), 9)[first:]))
            if options.iou_at == "independent":
                k_iou = first + int(np.argmax(np.round(iou[others].sum(axis=0), 9)[first:]))
            got.append((dice[p, k], iou[p, k_iou]))
    return np.mean(got, axis=0)


def has_of(class_of, patient_of):
    has = np.zeros((patient_of.max(initial=-1) + 1, class_of.max(initial=-1) + 1), bool)
    has[patient_of, class_of] = True
    return has


def folds_of(class_of, patient_of):
    """The fold of each pair of a dataset of which no other truth is known."""
    return pair_folds(patient_folds(has_of(class_of, patient_of)), class_of, patient_of)


def test_up_to_500_patients_each_is_left_out_alone(reference_files: Path):
    told = json.loads((reference_files / "trust/statistics.json").read_text())["leave_one_patient_out"]
    dice, patient = np.array(told["dice_curves"]), np.array(told["patient"])
    folds = folds_of(np.zeros(len(dice), int), patient)
    assert folds.shape == (1, len(dice)) and np.array_equal(folds[0], patient)
    weights = np.ones((1, patient.max() + 1), np.uint16)
    sums, each = cross_fitted((dice, dice), folds, patient, weights, OPTIONS)
    assert each[0] == pytest.approx(told["dice"], abs=2**-33)
    assert each[0] == pytest.approx([row[k] for row, k in zip(dice, told["level_used"], strict=True)])
    assert sums[0, 0] / len(dice) == pytest.approx(told["mean"], abs=2**-33)
    assert dice.mean(axis=0).max() == pytest.approx(told["optimistic_best"], abs=1e-12)


@pytest.mark.parametrize("iou_at", ["joint", "independent"])
@pytest.mark.parametrize("tau_from", [0.0, 0.01])
def test_cross_fit_by_loops(iou_at, tau_from):
    rng = np.random.default_rng(3)
    counts = random_counts(rng)
    class_of = rng.choice([0, 1, 2], len(counts), p=[0.6, 0.38, 0.02])
    class_of[:1] = 2
    patient_of = rng.integers(0, 9, len(counts))
    fold_of = folds_of(class_of, patient_of)
    options = GroundingOptions(unit="cross_fit", iou_at=iou_at, tau_from=tau_from)
    result = grounding(Pairs(counts, class_of, ["a", "b", "c"], fold_of=fold_of), options)
    assert result.options.label == "cross_fitted" and GroundingOptions().label == "in_sample"
    for c in range(3):
        expected = by_loops(*curves(counts), np.flatnonzero(class_of == c), fold_of, options)
        name = "abc"[c]
        best = result.value("dice_best", name)
        assert (best, result.value("iou_best", name)) == pytest.approx(tuple(expected), abs=1e-12)
        assert result.value("best_tau", name) is None
        assert np.mean(result.each["dice_best"][class_of == c]) == pytest.approx(best)
    tuned = grounding(Pairs(counts, class_of, ["a", "b", "c"]), GroundingOptions(tau_from=tau_from))
    assert tuned.value("dice_best", "a") >= result.value("dice_best", "a")


def test_replicates_fit_anew_and_a_drawn_patient_is_left_out_with_all_copies():
    rng = np.random.default_rng(4)
    counts, class_of = random_counts(rng, 14), np.array([0] * 9 + [1] * 5)
    patient_of = np.array([0, 0, 1, 2, 3, 3, 4, 5, 6, 0, 1, 1, 7, 8])
    draws = draw_patients(9, 30, seed=2)
    fold_of = folds_of(class_of, patient_of)
    drawn = grounding(
        Pairs(counts, class_of, ["a", "b"], fold_of=fold_of, draws=draws, patient_of=patient_of), OPTIONS
    ).rows
    dice, iou = curves(counts)
    undefined = 0
    for b in range(draws.replicates):
        items = np.repeat(np.arange(14), draws.counts[b, patient_of])
        for c in range(2):
            members = np.flatnonzero(class_of[items] == c)
            expected = by_loops(dice[items], iou[items], members, fold_of[:, items], OPTIONS) if len(members) else None
            found = drawn["dice_best"][c, 1 + b], drawn["iou_best"][c, 1 + b]
            undefined += expected is None
            assert found == pytest.approx(
                (np.nan,) * 2 if expected is None else tuple(expected), abs=1e-12, nan_ok=True
            )
    assert undefined, "a replicate whose pairs are all of one patient has no fit"


def test_a_class_of_one_patient_is_not_fitted():
    """Neither 0.5 nor any other threshold is put in its place, and means are over the other classes."""
    rng = np.random.default_rng(5)
    counts, class_of = random_counts(rng, 12), np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 2])
    patient_of = np.array([0, 1, 2, 3, 3, 0, 1, 2, 3, 4, 5, 6])
    draws = draw_patients(7, 20, seed=1)
    asked = Pairs(counts, class_of, list("abc"), fold_of=folds_of(class_of, patient_of), draws=draws,
                  patient_of=patient_of)  # fmt: skip
    found = grounding(asked, OPTIONS)
    a, b, c = (SimpleNamespace(**found.record(name)) for name in "abc")
    assert found.unfitted == ("b",) and b.n == 2
    assert b.dice_best is b.iou_best is b.delta_dice is None and b.dice_fixed is not None and b.pointing is not None
    assert found.value("dice_best") == pytest.approx((a.dice_best + c.dice_best) / 2)
    assert found.value("delta_dice") == pytest.approx((a.delta_dice + c.delta_dice) / 2)
    assert found.value("dice_best", "micro") == pytest.approx((3 * a.dice_best + 7 * c.dice_best) / 10)
    assert np.isnan(found.rows["dice_best"][1]).all() and np.isnan(found.each["dice_best"][class_of == 1]).all()
    n = [draws.counts[:, patient_of[class_of == k]].sum(axis=1) for k in (0, 2)]
    parts = [found.number("dice_best", name).drawn for name in "ac"]
    known = ~np.isnan(parts[0]) & ~np.isnan(parts[1])
    assert known.any()
    micro = (n[0] * parts[0] + n[1] * parts[1]) / (n[0] + n[1])
    assert found.number("dice_best", "micro").drawn[known] == pytest.approx(micro[known])


def test_levels_that_are_equally_good_stay_so():
    """The other patient's curve has a plateau, which rounding of `whole - left out` would break at another level."""
    rng = np.random.default_rng(6)
    for _ in range(200):
        dice = np.repeat(rng.random((2, 21)), 5, axis=1)[:, :101]
        dice[0] = rng.random(101)
        dice = in_units(dice)
        weights = np.array([[1, 1], [3, 7]], np.uint16)
        sums, each = cross_fitted((dice, dice), np.array([[0, 1]]), np.array([0, 1]), weights, OPTIONS)
        k = [int(dice[1].argmax()), int(dice[0].argmax())]
        assert each[0].tolist() == [dice[0, k[0]], dice[1, k[1]]]
        assert sums[0, 1] == pytest.approx(3 * dice[0, k[0]] + 7 * dice[1, k[1]], abs=1e-12)


def many(patients=LEAVE_ONE_OUT + 1, seed=0):
    rng = np.random.default_rng(seed)
    class_of = rng.choice(4, 2 * patients, p=[0.01, 0.09, 0.3, 0.6])
    patient_of = np.concatenate([np.arange(patients), rng.integers(0, patients, patients)])
    return rng, class_of, patient_of


def test_more_patients_are_divided_into_stratified_folds():
    _, class_of, patient_of = many()
    has = has_of(class_of, patient_of)
    found = patient_folds(has)
    assert found.shape == (REPEATS, LEAVE_ONE_OUT + 1) and set(found.ravel().tolist()) == set(range(FOLDS))
    for folds in found:
        for c in range(4):
            held = np.bincount(folds[has[:, c]], minlength=FOLDS)
            assert held.max() - held.min() <= (1 if c == 0 else 0.5 * has[:, c].sum() / FOLDS), (c, held)
    assert any((found[0] != folds).any() for folds in found[1:])
    assert np.array_equal(found, patient_folds(has)), "no chance from call to call"
    assert np.array_equal(pair_folds(found, class_of, patient_of)[:, class_of > 0], found[:, patient_of[class_of > 0]])
    has[LEAVE_ONE_OUT] = False
    assert patient_folds(has).tolist() == [list(range(LEAVE_ONE_OUT + 1))], "one without a finding does not count"
    with pytest.raises(ValueError, match="the shape"):
        patient_folds(patient_of)


def test_a_patient_gets_the_emptiest_fold_of_its_rarest_finding():
    """As docs/metrics.md §5 says it: of equal folds the one with the fewest patients of all, then the first."""
    _, class_of, patient_of = many(seed=3)
    has = has_of(class_of, patient_of)
    generator = np.random.Generator(np.random.PCG64(SEED))
    for fold_of in patient_folds(has):
        order = generator.permutation(len(has)).tolist()
        expected: dict[int, int] = {}
        for c in sorted(range(has.shape[1]), key=lambda c: has[:, c].sum()):
            of_all = [list(expected.values()).count(f) for f in range(FOLDS)]
            of_class = [sum(bool(has[p, c]) for p, own in expected.items() if own == f) for f in range(FOLDS)]
            for patient in order:
                if has[patient, c] and patient not in expected:
                    f = min(range(FOLDS), key=lambda f: (of_class[f], of_all[f], f))
                    expected[patient] = f
                    of_class[f] += 1
                    of_all[f] += 1
        assert fold_of.tolist() == [expected[patient] for patient in range(len(has))]


def test_a_class_whose_pairs_are_nearly_all_in_one_fold_leaves_each_patient_out():
    """Of many patients with the finding, a model's pairs are of few, who can lie in the same fold of one repeat."""
    folds = np.array([[0, 0, 1, 2, 3], [0, 1, 1, 1, 2], [0, 1, 2, 2, 3]])
    class_of = np.array([0, 0, 1, 1, 1, 1, 2, 2, 2, 2])
    patient_of = np.array([0, 1, 0, 1, 2, 2, 0, 1, 2, 3])
    found = pair_folds(folds, class_of, patient_of)
    assert found[:, :2].tolist() == [[0, 1], [0, 1], [0, 1]], "all in fold 0 of the first repeat"
    assert found[:, 2:6].tolist() == [[0, 1, 2, 2], [0, 1, 2, 2], [0, 1, 2, 2]], "two of three in one fold"
    assert found[:, 6:].tolist() == [[0, 0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 2]], "three of four in one; half of them"
    counts = random_counts(np.random.default_rng(11), 10)
    scores = grounding(Pairs(counts, class_of, list("abc"), fold_of=found), OPTIONS)
    assert scores.unfitted == ()
    for c in range(3):
        expected = by_loops(*curves(counts), np.flatnonzero(class_of == c), found, OPTIONS)
        assert scores.value("dice_best", "abc"[c]) == pytest.approx(expected[0], abs=1e-12)
    assert pair_folds(folds[:, 4:], class_of[:2], np.zeros(2, int)).tolist() == [[0, 0]] * 3, (
        "one patient is not fitted"
    )


def test_repeated_folds_by_loops():
    rng, class_of, patient_of = many(seed=2)
    counts = random_counts(rng, 40)
    chosen = rng.integers(0, 40, len(class_of))
    counts, fold_of = counts.take(chosen), folds_of(class_of, patient_of)
    draws = draw_patients(LEAVE_ONE_OUT + 1, 2, seed=1)
    asked = Pairs(counts, class_of, list("abcd"), fold_of=fold_of, draws=draws, patient_of=patient_of)
    found = grounding(asked, OPTIONS)
    dice, iou = curves(counts)
    for b in (-1, 0, 1):
        items = np.arange(len(class_of)) if b < 0 else np.repeat(np.arange(len(class_of)), draws.counts[b, patient_of])
        members = np.flatnonzero(class_of[items] == 1)
        expected = by_loops(dice[items], iou[items], members, fold_of[:, items], OPTIONS)
        got = found.rows["dice_best"][1, 1 + b]
        assert got == pytest.approx(expected[0], abs=1e-12)


def test_scores_of_each_pair_have_the_means_of_the_classes():
    rng = np.random.default_rng(8)
    counts, class_of, patient_of = random_counts(rng, 30), rng.integers(0, 3, 30), rng.integers(0, 11, 30)
    fold_of = folds_of(class_of, patient_of)
    for unit in ("per_class", "per_dataset", "per_image", "cross_fit"):
        options = GroundingOptions(unit=unit, ties="expected", iou_at="independent")
        found = grounding(Pairs(counts, class_of, list("abc"), fold_of=fold_of), options)
        for field in FIELDS:
            for c, name in enumerate("abc"):
                assert found.each[field][class_of == c].mean() == pytest.approx(found.value(field, name)), (unit, field)


def test_nothing_to_fit():
    empty = Pairs(Counts.empty(), np.zeros(0, int), ["a"], fold_of=folds_of(np.zeros(0, int), np.zeros(0, int)))
    assert grounding(empty, OPTIONS).value("dice_best") is None and grounding(empty, OPTIONS).unfitted == ()


@pytest.mark.parametrize("folds", [np.arange(9)[None], np.arange(9)[None] % 3])
def test_kept_thresholds_are_those_of_the_estimate(folds):
    rng = np.random.default_rng(8)
    counts, patient_of = random_counts(rng, 20), np.append(np.arange(9), rng.integers(0, 9, 11))
    weights, given = draw_patients(9, 40, seed=3).weights, (curves(counts), folds[:, patient_of], patient_of)
    sums, each = cross_fitted(*given, weights, OPTIONS, keep=True)
    assert sums == pytest.approx(each @ weights[:, patient_of].T.astype(float), abs=1e-12)
    assert np.array_equal(each, cross_fitted(*given, weights, OPTIONS)[1])
    assert not np.allclose(sums, cross_fitted(*given, weights, OPTIONS)[0])
