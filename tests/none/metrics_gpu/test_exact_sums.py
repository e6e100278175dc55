"""Sums over pairs are exact: the bits of integers, in any order of the pairs and on any number of threads."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from exact_units import units
from hypothesis import given, settings
from hypothesis import strategies as st
from test_grounding import random_counts
from xbench_fast.metrics_gpu.grounding.best_thresholds import cross_fitted, model_levels, pair_folds, patient_folds
from xbench_fast.metrics_gpu.grounding.pairs import Pairs
from xbench_fast.metrics_gpu.grounding.phrases import PhraseScores, phrase_means
from xbench_fast.metrics_gpu.grounding.protocols import GroundingOptions
from xbench_fast.metrics_gpu.grounding.scores import groundings
from xbench_fast.metrics_gpu.recognition.delong import auc_estimate, auc_parts
from xbench_fast.metrics_gpu.recognition.scores import recognition
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.metrics_gpu.statistics.class_means import class_means
from xbench_fast.metrics_gpu.statistics.exact_sums import exact_mean, exact_values
from xbench_fast.metrics_gpu.statistics.intervals import pointing_interval, shares
from xbench_fast.metrics_gpu.sweep.counts import dice_at, dice_curves, iou_curves
from xbench_fast.metrics_gpu.sweep.pointing import pointing_hits
from xbench_fast.metrics_gpu.trust.stability import change_correlation
from xbench_fast.metrics_gpu.trust.subgroups import MeasuredPairs, group_gap, group_means

NAMES = ("a", "b", "c")
UNITS = ("per_class", "per_dataset", "per_image", "cross_fit")


def orders(items: int, seed: int = 0) -> list[np.ndarray]:
    """Rows as they are, reversed, shuffled, and as three merged shards would give them."""
    rng = np.random.default_rng(seed)
    every = np.arange(items)
    shards = np.concatenate([every[place::3] for place in (2, 0, 1)])
    return [every, every[::-1].copy(), shards, *(rng.permutation(items) for _ in range(4))]


@given(st.lists(st.floats(-4, 4), min_size=1, max_size=30))
@settings(max_examples=60, deadline=None)
def test_a_value_is_the_nearest_unit_and_the_mean_is_rounded_once(values: list[float]) -> None:
    found = exact_values(np.array(values))
    assert found.tolist() == [units(value) / 2**32 for value in values]
    assert np.array_equal(exact_values(found), found)
    assert exact_mean(np.array([*values, math.nan])) == float(sum(map(Fraction, values))) / len(values)


def test_what_is_no_number_stays() -> None:
    found = exact_values(np.array([np.nan, np.inf, -np.inf, 3e200, 7.0]))
    np.testing.assert_array_equal(found, [np.nan, np.inf, -np.inf, 3e200, 7.0])
    assert exact_mean(np.array([np.nan])) is None and exact_values(np.zeros((0, 3), np.float32)).shape == (0, 3)


def test_the_values_of_pairs_are_whole_units() -> None:
    counts = random_counts(np.random.default_rng(1), 20)
    counts.area[:10, -1], counts.overlap[:10, -1] = 3, 1
    hits = pointing_hits(counts, "expected")
    assert np.rint(1 / 3 * 2**32) / 2**32 in hits
    for values in (dice_curves(counts), iou_curves(counts), dice_at(counts, np.full(20, 37)), hits):
        assert np.array_equal(values * 2**32, np.rint(values * 2**32))
    assert np.array_equal(dice_at(counts, np.full(20, 37)), dice_curves(counts)[:, 37])
    assert ((hits > 0) & (hits < 1)).any()


def test_sums_are_those_of_integers_in_any_order() -> None:
    rng = np.random.default_rng(2)
    values, patient_of, draws = rng.random((150, 7)), rng.integers(0, 40, 150), draw_patients(40, 60, seed=1)
    whole = [[units(value) for value in row] for row in values.tolist()]
    told = [
        [sum(row[p] * each[k] for p, each in zip(patient_of.tolist(), whole, strict=True)) / 2**32 for k in range(7)]
        for row in draws.weights.tolist()
    ]
    for order in orders(150):
        assert draws.sums(patient_of[order], values[order]).tolist() == told


def bits(found: object) -> object:
    """A result with its arrays as bytes, so that equal means equal to the last bit."""
    if isinstance(found, np.ndarray):
        return found.tobytes()
    if isinstance(found, dict):
        return {key: bits(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [bits(each) for each in found]
    if hasattr(found, "__dataclass_fields__"):
        return {name: bits(getattr(found, name)) for name in found.__dataclass_fields__}
    return found


@pytest.mark.parametrize("patients", [30, 510], ids=["one patient left out", "ten folds, five times"])
@pytest.mark.parametrize("iou_at", ["joint", "independent"])
def test_grounding_has_the_same_bits_in_any_order(patients: int, iou_at: str) -> None:
    rng = np.random.default_rng(3)
    counts = random_counts(rng, 40)
    pairs = 60 if patients == 30 else 900
    chosen, class_of = rng.integers(0, 40, pairs), rng.integers(0, 3, pairs)
    patient_of = np.concatenate([np.arange(patients), rng.integers(0, patients, pairs)])[:pairs]
    has = np.zeros((patients, 3), bool)
    has[patient_of, class_of] = True
    has[:, 0] = True
    folds, draws = pair_folds(patient_folds(has), class_of, patient_of), draw_patients(patients, 20, seed=1)
    shares_of = rng.random(pairs)
    searches = [(GroundingOptions(unit=unit, iou_at=iou_at, ties="expected"), None) for unit in UNITS]
    told = None
    for order in orders(pairs)[: 7 if patients == 30 else 4]:
        asked = Pairs(counts.take(chosen[order]), class_of[order], NAMES, fold_of=folds[:, order], draws=draws,
                      patient_of=patient_of[order], hits=shares_of[order])  # fmt: skip
        found = groundings(asked, searches)
        each = [{name: value[np.argsort(order)] for name, value in item.each.items()} for item in found]
        scores = [[item.counts, item.rows] for item in found]
        numbers = bits([scores, each])
        levels = model_levels([(asked.counts, asked.class_of)], searches[0][0])
        told = told or (numbers, levels)
        assert (numbers, levels) == told


def test_the_mean_of_five_repeats_is_one_of_integers() -> None:
    rng = np.random.default_rng(4)
    curves = rng.random((2, 12, 101))
    folds, patient_of = rng.integers(0, 3, (5, 12)), np.arange(12)
    draws = draw_patients(12, 8, seed=1)
    sums, each = cross_fitted((curves[0], curves[1]), folds, patient_of, draws.weights, GroundingOptions())
    dice = [[units(value) for value in row] for row in curves[0].tolist()]
    for b, weights in enumerate(draws.weights.tolist()):
        total = 0
        for own in folds.tolist():
            for p in range(12):
                others = [q for q in range(12) if own[q] != own[p] and weights[q]]
                if weights[p] and others:
                    curve = [sum(weights[q] * dice[q][k] for q in others) for k in range(101)]
                    total += weights[p] * dice[p][curve.index(max(curve))]
                elif weights[p]:
                    total = None
                    break
            if total is None:
                break
        assert math.isnan(sums[0, b]) if total is None else sums[0, b] == total / 2**32 / 5
    assert np.array_equal(each * 2**32, np.rint(each * 2**32))


def test_the_cross_fitted_delta_of_a_curve_without_a_choice_is_zero() -> None:
    """A mask of the whole image has one value at all thresholds, so nothing is gained by searching one."""
    rng = np.random.default_rng(5)
    counts, patients = random_counts(rng, 40), 510
    ones = np.tile(counts.area[:, :1], 101).astype(np.int32)
    inside = np.tile(counts.region[:, None], 101).astype(np.int32)
    chosen = rng.integers(0, 40, patients)
    table = type(counts)(ones, inside, counts.region, counts.argmax, counts.hit, counts.degenerate).take(chosen)
    class_of, patient_of = rng.integers(0, 3, patients), np.arange(patients)
    has = np.zeros((patients, 3), bool)
    has[patient_of, class_of] = True
    folds = pair_folds(patient_folds(has), class_of, patient_of)
    assert len(folds) == 5
    asked = Pairs(table, class_of, NAMES, fold_of=folds, draws=draw_patients(patients, 10), patient_of=patient_of)
    crossed, plain = groundings(asked, [(GroundingOptions(unit="cross_fit"), None), (GroundingOptions(), None)])
    for name in (*NAMES, "macro", "micro"):
        assert crossed.value("delta_dice", name) == plain.value("delta_dice", name) == 0
        best = {crossed.value(key, name) for key in ("dice_best", "dice_fixed", "floor_dice")}
        assert best == {plain.value("dice_best", name)}
    drawn = crossed.number("delta_dice", "macro").drawn
    assert drawn is not None and not drawn.any()


def test_recognition_and_the_parts_of_auc_have_the_same_bits_in_any_order() -> None:
    rng = np.random.default_rng(6)
    logits, labels = rng.integers(-9, 9, (90, 2)) / 7, rng.integers(0, 2, (90, 2))
    patient_of, draws = rng.integers(0, 25, 90), draw_patients(25, 15)
    told = None
    for order in orders(90):
        score, label, patient = logits[order], labels[order], patient_of[order]
        parts, auc = auc_parts(score[:, 0], label[:, 0], patient, 25), auc_estimate(score[:, 0], label[:, 0])
        found = bits([recognition(score, label, ["x", "y"], draws, patient), parts, auc])
        told = told or found
        assert found == told


def test_intervals_of_few_patients_have_the_same_bits_in_any_order() -> None:
    rng = np.random.default_rng(7)
    hits, patient_of, class_of = rng.random(24), rng.integers(0, 8, 24), rng.integers(0, 2, 24)
    told = None
    for order in orders(24):
        values, patient = hits[order], patient_of[order]
        parts = shares(values, class_of[order], patient, 9)
        means = class_means(values[:, None], class_of[order], 2, draw_patients(9, 10), patient)
        counted = pointing_interval((values > 0.5) * 1.0, patient, np.zeros(50))
        found = bits([parts, means, counted, pointing_interval(values, patient, None)])
        told = told or found
        assert found == told


def test_gaps_between_groups_have_the_same_bits_in_any_order() -> None:
    rng = np.random.default_rng(8)
    patient_of, draws = np.concatenate([np.arange(60), rng.integers(0, 60, 60)]), draw_patients(60, 40)
    first, stratum = (patient_of % 2 == 0), rng.integers(0, 4, 120)
    apart = rng.random(120) < 0.5  # some patients in both groups
    values = {"pointing": (rng.random(120) < 0.4) * 1.0, "dice_fixed": rng.random(120)}
    for side in (first, apart):
        told = None
        for order in orders(120)[:4]:
            own = {name: each[order] for name, each in values.items()}
            pairs = MeasuredPairs(own, stratum[order], patient_of[order], draws)
            gap = group_gap(pairs, side[order], ~side[order], 99)
            found = bits([gap, group_means(pairs, side[order])])
            told = told or found
            assert found == told


def test_means_of_phrases_and_correlations_of_changes_have_the_same_bits_in_any_order() -> None:
    rng = np.random.default_rng(9)
    scores = [PhraseScores(float(cnr), tuple(rng.random(5).tolist())) for cnr in rng.normal(size=40)]
    names = [NAMES[place] for place in rng.integers(0, 3, 40)]
    x, y, patient_of = rng.random(40) * 1e-2, rng.random(40) * 1e-4, rng.integers(0, 20, 40)
    told, changes = phrase_means(scores, names), []
    for order in orders(40):
        assert phrase_means([scores[p] for p in order], [names[p] for p in order]) == told
        changes.append(change_correlation(x[order], y[order], patient_of[order], draw_patients(20, 50)))
    assert all(found == changes[0] for found in changes)
    assert changes[0].pearson == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-8)


THREADED = """
import hashlib, sys
import numpy as np
from xbench_fast.metrics_gpu.grounding.best_thresholds import cross_fitted
from xbench_fast.metrics_gpu.grounding.protocols import GroundingOptions
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
rng = np.random.default_rng(0)
values, patient_of, draws = rng.random((700, 202)), rng.integers(0, 600, 700), draw_patients(600, 260)
folds = (patient_of % 10)[None]
fitted = cross_fitted((values[:, :101], values[:, 101:]), folds, patient_of, draws.weights, GroundingOptions())
for found in (draws.sums(patient_of, values), *fitted):
    print(hashlib.sha256(found.tobytes()).hexdigest())
"""


def test_one_and_eight_threads_give_the_same_bits() -> None:
    said = []
    for threads, core in (("1", "Haswell"), ("8", "Haswell"), ("8", "Nehalem")):  # kernels with and without FMA
        told = {**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, "OPENBLAS_CORETYPE": core}
        code = [sys.executable, "-c", THREADED]
        said.append(subprocess.run(code, env=told, capture_output=True, text=True, check=True).stdout)
    assert said[0] == said[1] == said[2] and said[0].count("\n") == 3
