"""Groups of models as samples, beside scipy, and residuals beside polyfit."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from scipy import stats
from xbench_fast.metrics_gpu.statistics.model_groups import (
    ModelContrast,
    contrast_models,
    line_residuals,
    mean_of_models,
)


def apart(a: np.ndarray, b: np.ndarray, axis: int) -> np.ndarray:
    found: np.ndarray = a.mean(axis=axis) - b.mean(axis=axis)
    return found


@pytest.mark.parametrize("sizes", [(2, 2), (3, 4), (5, 2), (4, 4)])
def test_interval_is_welchs_and_p_is_over_all_divisions(sizes: tuple[int, int]) -> None:
    rng = np.random.default_rng(sum(sizes))
    a, b = rng.normal(size=sizes[0]) + 0.8, 2 * rng.normal(size=sizes[1])
    found = contrast_models(a.tolist(), b.tolist(), 0.9)
    welch = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.9)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((welch.low, welch.high))
    # scipy doubles the smaller tail; the share of differences at least as far from 0 is counted here
    every = stats.permutation_test((a, b), apart, vectorized=True, n_resamples=np.inf).null_distribution
    observed = abs(a.mean() - b.mean())
    assert len(every) == comb(sum(sizes), sizes[0])
    assert found.p == pytest.approx(np.mean(np.abs(every) >= observed - 1e-9))
    assert found.least == (2 if sizes[0] == sizes[1] else 1) / len(every)
    extreme = contrast_models([9.0 + k for k in range(sizes[0])], [float(k) for k in range(sizes[1])])
    assert extreme.p == found.least


def test_many_models_are_sampled() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=10) + 0.7, rng.normal(size=9)
    found = contrast_models(a.tolist(), b.tolist())
    other = stats.permutation_test((a, b), apart, vectorized=True, n_resamples=20_000, rng=1).null_distribution
    assert found.p == pytest.approx(np.mean(np.abs(other) >= abs(a.mean() - b.mean())), abs=0.02)
    assert found.least == 1 / 20_000 and contrast_models([1.0] * 10, [0.0] * 9).p == pytest.approx(1 / 20_000)


def test_what_has_no_interval() -> None:
    assert contrast_models([1.0], [2.0, 3.0]) == ModelContrast() and mean_of_models([1.0]) is None
    same = contrast_models([1.0, 1.0], [2.0, 2.0])
    assert same.interval is None and same.p == pytest.approx(2 / 6) and mean_of_models([1.0, 1.0]) is None
    with pytest.raises(ValueError, match="a model on each side"):
        contrast_models([], [1.0])
    with pytest.raises(ValueError, match="level"):
        contrast_models([1.0, 2.0], [1.0, 3.0], 1.0)


def test_the_mean_of_models_is_students() -> None:
    for values in ([0.3, 0.5, 0.45, 0.9], [0.3, 0.5]):
        interval = mean_of_models(values, 0.9)
        expected = stats.t.interval(0.9, len(values) - 1, np.mean(values), stats.sem(values))
        assert interval is not None and (interval.low, interval.high) == pytest.approx(expected)


def test_residuals_of_each_row() -> None:
    x, y = np.random.default_rng(2).normal(size=(2, 4, 5))
    x[2], y[3, 1] = 1.0, np.nan
    found = line_residuals(x, y)
    for row in (0, 1):
        assert found[row] == pytest.approx(y[row] - np.polyval(np.polyfit(x[row], y[row], 1), x[row]))
    assert np.isnan(found[2:]).all()
