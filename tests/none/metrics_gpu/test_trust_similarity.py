"""Similarity of maps: against the values of SciPy and scikit-image in tests/golden/trust, and a loop over windows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from xbench_fast.metrics_gpu.sweep.maps import scaled_map
from xbench_fast.metrics_gpu.trust.compiled_similarity import mean_ranks
from xbench_fast.metrics_gpu.trust.similarity import degenerate_maps, pearson, spearman, ssim


def test_the_reference_values(root: Path) -> None:
    told = json.loads((root / "tests/golden/trust/similarity.json").read_text())["pairs"]
    grids = np.load(root / "tests/golden/trust/localisation.npz")["grids"]
    first, second = ([pair[name] for pair in told] for name in "ab")
    maps = np.stack([scaled_map(grid) for grid in grids])
    for found, name, tolerance in (
        (spearman(grids[first], grids[second]), "spearman_grid", 1e-6),
        (pearson(grids[first], grids[second]), "pearson_grid", 1e-6),
        (ssim(maps[first], maps[second]), "ssim_224", 1e-5),
    ):
        np.testing.assert_allclose(found, [pair[name] for pair in told], rtol=0, atol=tolerance)


def test_ties_and_order() -> None:
    rng = np.random.default_rng(0)
    first, second = (rng.integers(0, 5, (6, 4, 4)).astype(np.float32) for _ in "ab")
    wanted = [stats.spearmanr(a.ravel(), b.ravel()).statistic for a, b in zip(first, second, strict=True)]
    np.testing.assert_allclose(spearman(first, second), wanted, atol=1e-12)
    np.testing.assert_allclose(spearman(first, first**3), 1, atol=1e-12)
    np.testing.assert_allclose(spearman(first, -first), -1, atol=1e-12)
    assert not np.allclose(pearson(first, first**3), 1)


def test_ssim_is_the_mean_over_whole_windows() -> None:
    """More maps than are in memory at once; each against one window at a time."""
    rng = np.random.default_rng(1)
    first, second = (rng.random((40, 9, 8)).astype(np.float32) for _ in "ab")

    def window(a: np.ndarray, b: np.ndarray) -> float:
        (va, cov), (_, vb) = np.cov(a.ravel(), b.ravel())
        top = (2 * a.mean() * b.mean() + 1e-4) * (2 * cov + 9e-4)
        return float(top / ((a.mean() ** 2 + b.mean() ** 2 + 1e-4) * (va + vb + 9e-4)))

    def whole(a: np.ndarray, b: np.ndarray) -> float:
        return float(np.mean([window(a[y : y + 7, x : x + 7], b[y : y + 7, x : x + 7])
                              for y in range(3) for x in range(2)]))  # fmt: skip

    wanted = [whole(a, b) for a, b in zip(first.astype(float), second.astype(float), strict=True)]
    np.testing.assert_allclose(ssim(first, second), wanted, atol=1e-9)
    np.testing.assert_allclose(ssim(first, first), 1, atol=1e-12)


def test_a_degenerate_map_is_like_nothing() -> None:
    maps = np.random.default_rng(2).random((6, 8, 8)).astype(np.float32)
    maps[1] = 0.25
    maps[2, 0, 0], maps[3, 3, 3] = np.nan, np.inf
    maps[4, 0, :2] = np.finfo(np.float32).max, -np.finfo(np.float32).max
    assert degenerate_maps(maps).tolist() == [False, True, True, True, True, False]
    for measure in (spearman, pearson, ssim):
        for found in (measure(maps, maps[[0] * 6]), measure(maps[[0] * 6], maps)):
            assert np.isnan(found).tolist() == [False, True, True, True, True, False]
    assert len(ssim(maps[:0], maps[:0])) == len(spearman(maps[:0], maps[:0])) == 0


def test_maps_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="two sizes"):
        spearman(np.zeros((2, 3, 3)), np.zeros((2, 3, 4)))
    with pytest.raises(ValueError, match="at least 7 x 7"):
        ssim(np.zeros((2, 9, 6)), np.zeros((2, 9, 6)))


def test_ranks_are_those_of_scipy_with_ties_signs_and_extremes() -> None:
    rng = np.random.default_rng(11)
    extremes = np.array([0.0, -0.0, 1e-40, -1e-40, 3e38, -3e38, 1, 1, -1, 0, 5, 5], np.float32)
    for maps in (
        extremes[None],
        rng.integers(-3, 4, (4, 50)).astype(np.float32),
        rng.normal(size=(2, 50176)).astype(np.float32),
    ):
        assert np.array_equal(mean_ranks(np.ascontiguousarray(maps)), stats.rankdata(maps, axis=1))
