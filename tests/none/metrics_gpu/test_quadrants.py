"""Quadrants of findings: tests against bounds beside scipy and simulations, and the share of joint replicates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from xbench_fast.metrics_gpu.recognition.delong import auc_estimate, auc_parts
from xbench_fast.metrics_gpu.statistics.correlation import replicated_r
from xbench_fast.metrics_gpu.statistics.quadrants import (
    QUADRANTS,
    auc_test,
    pointing_test,
    quadrants,
    share_inside,
)


def test_a_bound_belongs_to_the_side_above_it() -> None:
    auc, pointing = np.array([0.8, 0.8, 0.79, 0.9, np.nan]), np.array([0.5, 0.49, 0.5, np.nan, 0.9])
    found = quadrants(auc, pointing, (0.8, 0.5)).tolist()
    names = [QUADRANTS[place] if place >= 0 else "" for place in found]
    assert names == ["recognised and grounded", "recognised, not grounded", "grounded, not recognised", "", ""]
    assert QUADRANTS[int(quadrants(np.array(0.1), np.array(0.1), (0.8, 0.5)))] == "neither"


@pytest.mark.parametrize("bound", [0.03, 0.5, 0.9])
@pytest.mark.parametrize(("k", "n"), [(0, 5), (5, 5), (1, 1), (3, 12), (7, 12), (40, 60)])
def test_pointing_of_single_pairs_is_binomial(k: int, n: int, bound: float) -> None:
    hits = np.repeat([1.0, 0.0], [k, n - k])
    of = stats.binom(n, bound)
    expected = min(1.0, 2 * min(of.cdf(k), of.sf(k - 1)))
    assert pointing_test(hits, np.arange(n), bound) == pytest.approx(expected, rel=1e-9)


def test_alike_pairs_of_a_patient_count_once() -> None:
    hits, patients = np.repeat([1.0, 0.0, 0.0, 0.0, 0.0], 4), np.repeat(np.arange(5), 4)
    assert pointing_test(hits, patients, 0.6) == pytest.approx(2 * stats.binom(5, 0.6).cdf(1))
    assert pointing_test(hits, patients, 0.6) > 10 * pointing_test(hits, np.arange(20), 0.6)


@pytest.mark.parametrize("bound", [0.0, 1.0])
def test_bounds_at_the_ends(bound: float) -> None:
    assert pointing_test(np.full(4, bound), np.arange(4), bound) == 1
    assert pointing_test(np.array([0.0, 1.0, 0.0, 1.0]), np.arange(4), bound) == 0
    assert auc_test(bound, np.zeros(9), (4, 5), bound) == 1 and auc_test(0.7, np.zeros(9), (4, 5), bound) == 0


def test_auc_against_a_bound() -> None:
    """The larger standard error: DeLong's of skewed scores, and at 0.5 without any spread Wilcoxon's."""
    rng = np.random.default_rng(3)
    label = np.repeat([1, 0], [30, 40])
    score = np.where(label == 1, rng.choice([-9.0, 9.0], 70), rng.normal(size=70))
    parts, known = auc_parts(score, label, np.arange(70), 70), auc_estimate(score, label)
    assert known.variance is not None and known.variance > 71 / (12 * 30 * 40)
    z = (known.auc - 0.8) / np.sqrt(known.variance)
    assert auc_test(known.auc, parts, (30, 40), 0.8) == pytest.approx(2 * stats.norm.sf(abs(z)))
    ranks = stats.mannwhitneyu(np.arange(6) + 9, np.arange(8), method="asymptotic", use_continuity=False)
    assert auc_test(1.0, np.zeros(14), (6, 8), 0.5) == pytest.approx(ranks.pvalue)


def test_auc_at_its_bound_is_rarely_called_off_it() -> None:
    """Normal scores whose AUC is 0.8: at most about 5 % of the samples have p < 0.05, small ones too."""
    rng, shift = np.random.default_rng(4), np.sqrt(2) * stats.norm.ppf(0.8)
    for positives, negatives in ((4, 12), (25, 60)):
        label, below = np.repeat([1, 0], [positives, negatives]), 0
        for _ in range(400):
            score = rng.normal(size=len(label)) + shift * label
            parts = auc_parts(score, label, np.arange(len(label)), len(label))
            below += auc_test(auc_estimate(score, label).auc, parts, (positives, negatives), 0.8) < 0.05
        assert below <= 30


def test_the_share_of_joint_replicates() -> None:
    auc, pointing = np.array([0.9, 0.9, 0.7, np.nan, 0.8]), np.array([0.2, 0.6, 0.2, 0.1, 0.4])
    assert [share_inside(auc, pointing, (0.8, 0.5), place) for place in range(4)] == [0.25, 0.0, 0.5, 0.25]
    assert share_inside(auc[3:4], pointing[3:4], (0.8, 0.5), 0) is None


def test_r_of_replicates() -> None:
    x, y = np.random.default_rng(5).normal(size=(2, 6, 5))
    y[3], x[4, 2] = 1.0, np.nan
    found = replicated_r(x, y)
    assert found[:3] == pytest.approx([np.corrcoef(a, b)[0, 1] for a, b in zip(x[:3], y[:3], strict=True)])
    assert np.isnan(found[3:5]).all() and replicated_r(x[:1], -3 * x[:1] + 1) == pytest.approx([-1])
