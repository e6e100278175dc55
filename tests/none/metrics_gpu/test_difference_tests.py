"""Intervals of proportions, DeLong's method, paired tests: against published examples and definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from xbench_fast.metrics_gpu.recognition.delong import auc_difference, auc_estimate, auc_parts
from xbench_fast.metrics_gpu.recognition.scores import recognition
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.metrics_gpu.statistics.intervals import wilson_interval
from xbench_fast.metrics_gpu.statistics.multiple_tests import holm


def kernel(x, y):
    return 1.0 if x > y else 0.5 if x == y else 0.0


def delong_by_definition(scores, label):
    """AUCs and their covariance matrix by the U-statistic's components, O(n²), in the paper's notation."""
    aucs, v10, v01 = [], [], []
    for score in scores:
        xs = [s for s, y in zip(score, label, strict=True) if y]
        ys = [s for s, y in zip(score, label, strict=True) if not y]
        v10.append([sum(kernel(x, y) for y in ys) / len(ys) for x in xs])
        v01.append([sum(kernel(x, y) for x in xs) / len(xs) for y in ys])
        aucs.append(sum(v10[-1]) / len(xs))

    def covariance(a, b):
        mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
        return sum((p - mean_a) * (q - mean_b) for p, q in zip(a, b, strict=True)) / (len(a) - 1) / len(a)

    k = len(scores)
    matrix = [[covariance(v10[i], v10[j]) + covariance(v01[i], v01[j]) for j in range(k)] for i in range(k)]
    return aucs, matrix


def compared(a, b, label, patient_of=None, level=0.95):
    """The difference of two scores of the same images, by default each of a patient of its own."""
    patient_of = np.arange(len(label)) if patient_of is None else patient_of
    one, two = (auc_parts(score, label, patient_of, int(patient_of.max()) + 1) for score in (a, b))
    return auc_difference(auc_estimate(a, label).auc - auc_estimate(b, label).auc, one - two, level)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans()), min_size=4, max_size=40))
def test_delong_equals_its_definition(cases):
    a, b = (np.array([case[i] for case in cases], float) for i in (0, 1))
    label = np.array([int(case[2]) for case in cases])
    if min(label.sum(), (1 - label).sum()) < 2:
        return
    aucs, matrix = delong_by_definition([a, b], label)
    first, difference = auc_estimate(a, label), compared(a, b, label)
    assert first.auc == pytest.approx(roc_auc_score(label, a), abs=1e-12)
    assert first.variance == pytest.approx(matrix[0][0], abs=1e-12)
    expected = matrix[0][0] + matrix[1][1] - 2 * matrix[0][1]
    assert difference.difference == pytest.approx(aucs[0] - aucs[1], abs=1e-12)
    assert difference.variance == pytest.approx(expected, abs=1e-12)
    if expected > 1e-9:
        z = (aucs[0] - aucs[1]) / math.sqrt(expected)
        assert difference.p == pytest.approx(2 * (1 - 0.5 * (1 + math.erf(abs(z) / math.sqrt(2)))), abs=1e-9)


def test_images_of_a_patient_count_together():
    """By loops over patients, in the notation of N. A. Obuchowski, Biometrics 53, 1997."""
    rng = np.random.default_rng(6)
    patient_of = np.repeat(np.arange(40), rng.integers(1, 7, 40))
    label = ((rng.random(40) < 0.4)[patient_of] ^ (rng.random(len(patient_of)) < 0.05)).astype(int)
    score = rng.standard_normal(len(patient_of)).round(1) + 0.8 * label + 2 * rng.standard_normal(40)[patient_of]
    auc, (m, n) = roc_auc_score(label, score), (label.sum(), (1 - label).sum())
    of_positive = {i: np.mean([kernel(score[i], score[j]) for j in np.flatnonzero(label == 0)])
                   for i in np.flatnonzero(label == 1)}  # fmt: skip
    of_negative = {j: np.mean([kernel(score[i], score[j]) for i in np.flatnonzero(label == 1)])
                   for j in np.flatnonzero(label == 0)}  # fmt: skip
    parts = auc_parts(score, label, patient_of, 41)
    with_positive, with_negative = (len(set(patient_of[label == value])) for value in (1, 0))
    for p in range(41):
        own = np.flatnonzero(patient_of == p)
        up = sum(of_positive[i] - auc for i in own if label[i]) / m
        down = sum(of_negative[j] - auc for j in own if not label[j]) / n
        expected = math.sqrt(with_positive / (with_positive - 1)) * up
        expected += math.sqrt(with_negative / (with_negative - 1)) * down
        assert parts[p] == pytest.approx(expected, abs=1e-12)
    one_each = auc_parts(score, label, np.arange(len(label)), len(label))
    assert (one_each**2).sum() == pytest.approx(auc_estimate(score, label).variance, abs=1e-12)
    scores = recognition(score[:, None], label[:, None], ["x"], draw_patients(40, 2000), patient_of)
    drawn = scores.number("auc", "x").drawn
    assert np.nanstd(drawn) == pytest.approx(math.sqrt((parts**2).sum()), rel=0.1)
    assert abs(np.nanstd(drawn) / math.sqrt((one_each**2).sum()) - 1) > 0.1, "patients matter here"


def test_delong_on_hanley_and_mcneils_readings():
    """109 CT images read on a scale of 1 to 5 (J. A. Hanley, B. J. McNeil, Radiology 143, 1982, table I): area 0.8932,
    DeLong standard error 0.0307 and 95 % interval 0.83295 to 0.95339 as statistics packages print them."""
    normal, abnormal = [33, 6, 6, 11, 2], [3, 2, 2, 11, 33]
    score = np.repeat([1, 2, 3, 4, 5, 1, 2, 3, 4, 5], normal + abnormal)
    label = np.repeat([0, 1], [sum(normal), sum(abnormal)])
    found = auc_estimate(score, label)
    assert round(found.auc, 4) == 0.8932 and round(math.sqrt(found.variance), 4) == 0.0307
    assert (round(found.interval.low, 5), round(found.interval.high, 5)) == (0.83295, 0.95339)


def test_delong_and_the_bootstrap_agree():
    rng = np.random.default_rng(3)
    label = (rng.random(800) < 0.3).astype(int)
    score = rng.standard_normal(800) + 0.8 * label
    found = auc_estimate(score, label)
    scores = recognition(score[:, None], label[:, None], ["x"], draw_patients(800), np.arange(800))
    spread = scores.number("auc", "x").drawn.std()
    assert spread == pytest.approx(math.sqrt(found.variance), rel=0.1)


def test_delong_edges():
    perfect = auc_estimate(np.array([0.0, 1, 2, 3]), np.array([0, 0, 1, 1]))
    assert perfect.auc == 1 and perfect.variance == 0 and perfect.interval.high == 1
    assert auc_estimate(np.array([0.0, 1, 2]), np.array([0, 1, 1])).interval is None
    equal = compared(np.arange(6.0), np.arange(6.0), np.array([0, 1, 0, 1, 0, 1]))
    assert (equal.difference, equal.variance, equal.p) == (0, 0, 1)
    apart = compared(np.arange(4.0), -np.arange(4.0), np.array([0, 0, 1, 1]))
    assert apart.difference == 1 and apart.variance == 0 and apart.p is None
    for score, label, words in [
        (np.zeros(3), np.array([0, 1]), "one shape"),
        (np.array([0, np.nan]), np.array([0, 1]), "image 1 is not finite"),
        (np.zeros(2), np.array([0, -1]), "unknown"),
        (np.zeros(2), np.array([1, 1]), "both label values"),
    ]:
        with pytest.raises(ValueError, match=words):
            auc_estimate(score, label)
    with pytest.raises(ValueError, match="two patients of each"):
        auc_parts(np.arange(4.0), np.array([0, 0, 1, 1]), np.array([0, 0, 1, 2]), 3)


def test_wilson_solves_the_score_equation():
    """Its ends are the shares p with |hits/n - p| = z sqrt(p (1 - p) / n)."""
    z = 1.959963984540054
    for hits, n in [(1, 10), (7, 29), (15, 15), (0, 8), (2.5, 6)]:
        interval = wilson_interval(hits, n)
        for end in (interval.low, interval.high):
            if 0 < end < 1:
                assert abs(hits / n - end) == pytest.approx(z * math.sqrt(end * (1 - end) / n), rel=1e-9)
        assert 0 <= interval.low <= hits / n <= interval.high <= 1
    assert wilson_interval(0, 8).low == 0 and wilson_interval(15, 15).high == 1
    # R. G. Newcombe, Statistics in Medicine 17, 1998, table I, method 3: 81 of 263 and 15 of 148.
    found = wilson_interval(81, 263)
    assert (round(found.low, 4), round(found.high, 4)) == (0.2553, 0.3662)
    found = wilson_interval(15, 148)
    assert (round(found.low, 4), round(found.high, 4)) == (0.0624, 0.1605)
    for hits, n in [(0, 0), (3, 2), (-1, 2)]:
        with pytest.raises(ValueError, match="0 <= hits <= n"):
            wilson_interval(hits, n)


def test_holm_by_its_definition():
    """Holm's adjusted values reject, at every level, what the step-down procedure rejects."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        values = list(rng.random(6) ** 3)
        adjusted = holm([*values[:3], None, *values[3:]])
        assert adjusted.pop(3) is None
        for alpha in (0.01, 0.05, 0.2, 0.6):
            rejected, order = set(), sorted(range(6), key=values.__getitem__)
            for step, i in enumerate(order):
                if values[i] > alpha / (6 - step):
                    break
                rejected.add(i)
            assert rejected == {i for i in range(6) if adjusted[i] <= alpha}
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == [] and holm([0.9, 0.8]) == [1.0, 1.0]
    with pytest.raises(ValueError, match="p value 1"):
        holm([0.5, 1.5])
