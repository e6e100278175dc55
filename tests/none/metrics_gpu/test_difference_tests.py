"""Intervals of proportions, DeLong's method, paired tests: against published examples and definitions."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from xbench_fast.metrics_gpu.recognition.delong import auc_differences, auc_estimate
from xbench_fast.metrics_gpu.recognition.scores import recognition
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.metrics_gpu.statistics.paired import holm, paired_difference
from xbench_fast.metrics_gpu.statistics.proportions import wilson_interval


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


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans()), min_size=4, max_size=40))
def test_delong_equals_its_definition(cases):
    a, b = (np.array([case[i] for case in cases], float) for i in (0, 1))
    label = np.array([int(case[2]) for case in cases])
    if min(label.sum(), (1 - label).sum()) < 2:
        return
    aucs, matrix = delong_by_definition([a, b], label)
    first, difference = auc_estimate(a, label), auc_differences([a, b], label)[0, 1]
    assert first.auc == pytest.approx(roc_auc_score(label, a), abs=1e-12)
    assert first.variance == pytest.approx(matrix[0][0], abs=1e-12)
    expected = matrix[0][0] + matrix[1][1] - 2 * matrix[0][1]
    assert (difference.a, difference.b) == pytest.approx(aucs, abs=1e-12)
    assert difference.variance == pytest.approx(expected, abs=1e-12)
    if expected > 1e-9:
        z = (aucs[0] - aucs[1]) / math.sqrt(expected)
        assert difference.z == pytest.approx(z, rel=1e-6, abs=1e-9)
        assert difference.p == pytest.approx(2 * (1 - 0.5 * (1 + math.erf(abs(z) / math.sqrt(2)))), abs=1e-9)


def test_delong_of_several_scores_at_once():
    rng = np.random.default_rng(6)
    label = (rng.random(60) < 0.4).astype(int)
    scores = [rng.standard_normal(60).round(1) + weight * label for weight in (0, 0.5, 1, 1)]
    found = auc_differences(scores, label, 0.9)
    assert list(found) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    for (i, j), difference in found.items():
        assert difference == auc_differences([scores[i], scores[j]], label, 0.9)[0, 1]
    assert auc_differences(scores[:1], label) == {}


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
    replicates = recognition(score[:, None], label[:, None], ["x"], draw_patients(800), np.arange(800)).drawn
    spread = replicates.of("auc", "x").std()
    assert spread == pytest.approx(math.sqrt(found.variance), rel=0.1)


def test_delong_edges():
    perfect = auc_estimate(np.array([0.0, 1, 2, 3]), np.array([0, 0, 1, 1]))
    assert perfect.auc == 1 and perfect.variance == 0 and perfect.interval.high == 1
    assert auc_estimate(np.array([0.0, 1, 2]), np.array([0, 1, 1])).interval is None
    equal = auc_differences([np.arange(6.0)] * 2, np.array([0, 1, 0, 1, 0, 1]))[0, 1]
    assert (equal.difference, equal.z, equal.p) == (0, 0, 1)
    apart = auc_differences([np.arange(4.0), -np.arange(4.0)], np.array([0, 0, 1, 1]))[0, 1]
    assert apart.difference == 1 and apart.z is None and apart.p is None
    for score, label, words in [
        (np.zeros(3), np.array([0, 1]), "one shape"),
        (np.array([0, np.nan]), np.array([0, 1]), "image 1 is not finite"),
        (np.zeros(2), np.array([0, -1]), "unknown"),
        (np.zeros(2), np.array([1, 1]), "both label values"),
    ]:
        with pytest.raises(ValueError, match=words):
            auc_estimate(score, label)
    with pytest.raises(ValueError, match="two images of each"):
        auc_differences([np.arange(3.0)] * 2, np.array([0, 1, 1]))


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


def test_paired_differences():
    rng = np.random.default_rng(1)
    common = rng.normal(0, 1, 999)
    better, worse = common + 2 + rng.normal(0, 0.1, 999), common + rng.normal(0, 0.1, 999)
    apart = paired_difference(2.0, 0.0, better, worse)
    assert apart.p == 2 / 1000 and 1.6 < apart.interval.low < 2 < apart.interval.high < 2.4
    assert paired_difference(0.0, 2.0, worse, better).p == apart.p
    equal = paired_difference(0.4, 0.4, worse, worse)
    assert (equal.difference, equal.p, equal.interval.low, equal.interval.high) == (0, 1, 0, 0)
    holes = worse.copy()
    holes[:500] = np.nan
    assert paired_difference(2, 0, better, holes).interval.used == 499
    assert paired_difference(1, 0, np.full(3, np.nan), np.zeros(3)).p is None
    with pytest.raises(ValueError, match="one draw"):
        paired_difference(1, 0, better, worse[:10])


def test_paired_p_values_are_uniform_under_no_difference():
    """With 400 simulated comparisons of equal models, 2 to 9 % have p < 0.05 (three standard errors: 3.3 points)."""
    rng = np.random.default_rng(8)
    draws, small, shares = draw_patients(80, 300), 0, []
    for _ in range(400):
        patient = rng.random(80)
        a, b = ((rng.random(80) < patient).astype(float) for _ in range(2))
        sums = draws.sums(np.arange(80), np.column_stack([a, b])) / 80
        p = paired_difference(a.mean(), b.mean(), sums[:, 0], sums[:, 1]).p
        small += p < 0.05
        shares.append(p)
    assert 0.02 <= small / 400 <= 0.09
    assert all(0 < left <= right <= 1 for left, right in pairwise(sorted(shares)))
