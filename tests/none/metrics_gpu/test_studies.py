"""Correlation, size strata, tolerance and the searches for a best threshold, against loops and SciPy."""

from __future__ import annotations

import json
import math
from itertools import product

import numpy as np
import pytest
from exact_units import in_units
from scipy import stats
from test_grounding import counts_of, random_counts
from xbench_fast.metrics_gpu.grounding.best_thresholds import model_levels
from xbench_fast.metrics_gpu.grounding.calibration import calibrated_levels
from xbench_fast.metrics_gpu.grounding.pairs import Pairs
from xbench_fast.metrics_gpu.grounding.protocols import GroundingOptions
from xbench_fast.metrics_gpu.grounding.scores import grounding
from xbench_fast.metrics_gpu.grounding.strata import STRATA, size_strata, strata_of
from xbench_fast.metrics_gpu.grounding.tolerance import region_distance, tolerant_hits
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.metrics_gpu.statistics.correlation import (
    correlation,
    patients_r2,
    replicated_r2,
    trend_band,
    without_group_means,
)
from xbench_fast.metrics_gpu.sweep.masks import pack_masks
from xbench_fast.metrics_gpu.sweep.sweep import sweep


def test_correlation_against_scipy():
    rng = np.random.default_rng(0)
    x = rng.random(7).round(1)
    y = 0.5 * x + 0.1 * rng.random(7)
    found = correlation(x, y)
    line = stats.linregress(x, y)
    assert found.r == pytest.approx(line.rvalue) and found.r2 == pytest.approx(line.rvalue**2)
    assert (found.slope, found.intercept) == pytest.approx((line.slope, line.intercept))
    assert found.spearman == pytest.approx(stats.spearmanr(x, y).statistic)
    fisher = stats.pearsonr(x, y).confidence_interval()
    assert (found.fisher.low, found.fisher.high) == pytest.approx((fisher.low, fisher.high))
    left = [stats.pearsonr(np.delete(x, i), np.delete(y, i)).statistic ** 2 for i in range(7)]
    assert found.left_out == pytest.approx(left) and found.r2_range == pytest.approx((min(left), max(left)))
    assert 0 <= found.bootstrap_r2.low < found.r2 < found.bootstrap_r2.high <= 1


def test_the_interval_of_the_line_against_scipy_and_a_loop():
    rng = np.random.default_rng(5)
    x = rng.random(7)
    y = 0.5 * x + 0.3 * rng.random(7)
    line, half = stats.linregress(x, y), stats.t.ppf(0.975, 5)
    low, high = trend_band(x, y, np.array([0.0, x.mean()]))
    residual = math.sqrt(((y - line.intercept - line.slope * x) ** 2).sum() / 5 / 7)
    wide = half * np.array([line.intercept_stderr, residual])
    middle = np.array([line.intercept, y.mean()])
    assert low == pytest.approx(middle - wide) and high == pytest.approx(middle + wide)
    groups, at = ["a", "a", "b", "c", "c", "d", "e"], np.array([0.2, 0.9])
    members = [[i for i, name in enumerate(groups) if name == group] for group in "abcde"]
    lines = []
    for counts in draw_patients(5, 40, seed=3).counts:
        points = [i for group, count in zip(members, counts, strict=True) for i in group * int(count)]
        if np.ptp(x[points]) > 0:
            fit = stats.linregress(x[points], y[points])
            lines.append(fit.intercept + fit.slope * at)
    low, high = trend_band(x, y, at, groups=groups, replicates=40, seed=3)
    assert low == pytest.approx(np.quantile(lines, 0.025, axis=0))
    assert high == pytest.approx(np.quantile(lines, 0.975, axis=0))


def test_the_line_has_no_interval_of_three_points_or_groups():
    x, y = np.arange(6.0), np.array([1.0, 3, 2, 5, 4, 6])
    assert trend_band(x[:3], y[:3], x) is None and trend_band(x[:4], y[:4], x) is not None
    assert trend_band(x, y, x, groups=list("aabbcc")) is None and trend_band(np.ones(6), y, x) is None


def test_the_papers_r2_is_wide():
    """R² = 0.92 of seven points: r = 0.96 with Fisher's interval 0.74 to 0.99 (docs/metrics.md §9)."""
    from xbench_fast.metrics_gpu.statistics.correlation import _fisher

    r, r2 = _fisher(math.sqrt(0.92), 7, 0.95)
    assert (round(r.low, 2), round(r.high, 2)) == (0.74, 0.99) and (round(r2.low, 2), round(r2.high, 2)) == (0.55, 0.99)
    assert _fisher(0.1, 7, 0.95)[1].low == 0


def test_bootstrap_r2_equals_resampled_points():
    from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
    from xbench_fast.metrics_gpu.statistics.correlation import _weighted_r2

    rng = np.random.default_rng(4)
    x, y = rng.random(6), rng.random(6)
    counts = draw_patients(6, 60, seed=2).counts
    for row, value in zip(counts, _weighted_r2(counts.astype(float), x, y), strict=True):
        i = np.repeat(np.arange(6), row)
        if len(set(i.tolist())) < 3:
            assert np.isnan(value)
        else:
            assert value == pytest.approx(stats.pearsonr(x[i], y[i]).statistic ** 2)


def test_points_in_groups_are_drawn_and_left_out_together():
    rng = np.random.default_rng(5)
    x, y = rng.random(12), rng.random(12)
    groups = ["a", "b", "c", "d"] * 3
    found = correlation(x, y, groups=groups, replicates=200, seed=3)
    assert found.fisher is None and found.r2 == correlation(x, y).r2
    left = [stats.pearsonr(x[i], y[i]).statistic ** 2 for i in ([k for k in range(12) if k % 4 != g] for g in range(4))]
    assert found.left_out == pytest.approx(left)
    drawn = draw_patients(4, 200, seed=3).counts
    values = []
    for row in drawn:
        i = np.concatenate([np.repeat(np.arange(g, 12, 4), row[g]) for g in range(4)])
        values.append(stats.pearsonr(x[i], y[i]).statistic ** 2)
    low, high = np.percentile(values, [2.5, 97.5])
    assert (found.bootstrap_r2.low, found.bootstrap_r2.high) == pytest.approx((low, high))
    assert found.p is found.spearman_p is None, "points of one model are not exchangeable"
    with pytest.raises(ValueError, match="groups"):
        correlation(x, y, groups=groups[1:])


def test_few_models(reference_files):
    """Seven models by all 5040 permutations; three have a line, and nothing around it."""
    told = json.loads((reference_files / "trust/statistics.json").read_text())["r2"]
    found = correlation(told["auc"], told["pointing"])
    assert (found.r, found.r2, found.adjusted_r2) == pytest.approx((told["r"], told["r2"], told["adjusted_r2"]))
    assert found.p == pytest.approx(told["p_permutation_all_5040"], abs=1e-12)
    assert found.spearman == pytest.approx(told["spearman"])
    assert found.spearman_p == pytest.approx(told["spearman_p_exact_5040"], abs=1e-12)
    assert (found.fisher.low, found.fisher.high) == pytest.approx(tuple(told["fisher_95_r"]))
    assert found.left_out == pytest.approx(told["leave_one_out_r2"])
    three = correlation([0.6, 0.7, 0.8], [0.3, 0.4, 0.52])
    assert three.r2 > 0.98 and three.fisher is three.bootstrap_r2 is None and three.r2_range is None
    rng = np.random.default_rng(9)
    drawn = rng.random((50, 3)), rng.random((50, 3))
    assert patients_r2(*drawn, 3) is None
    four = rng.random((50, 4)), rng.random((50, 4))
    expected = np.percentile(replicated_r2(*four), [2.5, 97.5])
    assert (patients_r2(*four, 4).low, patients_r2(*four, 4).high) == pytest.approx(expected)
    x, y = rng.random(12), rng.random(12)
    exact = stats.permutation_test((x,), lambda z: stats.pearsonr(z, y).statistic, permutation_type="pairings",
                                   n_resamples=2000, rng=1).pvalue  # fmt: skip
    assert correlation(x, y).p == pytest.approx(exact, abs=0.04)


def test_r2_of_replicated_points():
    rng = np.random.default_rng(6)
    x, y = rng.random((20, 5)), rng.random((20, 5))
    x[0], y[1, 0] = 0.5, np.nan
    found = replicated_r2(x, y)
    assert np.isnan(found[:2]).all()
    assert found[2:] == pytest.approx([stats.pearsonr(a, b).statistic ** 2 for a, b in zip(x[2:], y[2:], strict=True)])
    assert np.isnan(replicated_r2(x[:, :2], y[:, :2])).all()
    with pytest.raises(ValueError, match="one shape"):
        replicated_r2(x, y[1:])


def test_correlation_edges():
    assert correlation([1, 2], [1, 2]).r2 is None and correlation([1, 1, 1], [1, 2, 3]).r is None
    assert correlation([1, 2, 3], [2, 4, 6]).r2 == pytest.approx(1)
    for x, y, words in [([1, 2], [1], "one shape"), ([1, np.nan, 2], [1, 2, 3], "finite")]:
        with pytest.raises(ValueError, match=words):
            correlation(x, y)
    centred = without_group_means([1.0, 3.0, 10.0], ["a", "a", "b"])
    assert centred.tolist() == [-1, 1, 0]
    with pytest.raises(ValueError, match="groups"):
        without_group_means([1.0], [])


def test_strata():
    pixels = 224 * 224
    region = np.array([1, 250, 251, 1003, 1004, 4014, 4015, pixels])
    index, names = strata_of(region, pixels)
    assert [names[i] for i in index] == [
        "tiny" if r / pixels < 0.005 else "small" if r / pixels < 0.02 else "medium" if r / pixels < 0.08 else "large"
        for r in region
    ]
    thirds, names = strata_of(np.array([5, 1, 1, 9, 7, 1]), pixels, tertiles=True)
    assert thirds.tolist() == [1, 0, 0, 2, 2, 0] and names[2] == "upper third"
    with pytest.raises(ValueError, match="regions must"):
        strata_of(np.array([0]), pixels)


def test_size_strata_are_grounding_of_their_pairs():
    counts = random_counts(np.random.default_rng(1))
    pixels = int(counts.area[0, 0])
    strata = size_strata(Pairs(counts, np.zeros(len(counts), int), ["all"]), pixels)
    scores = strata.grounding
    share = counts.region / pixels
    edges = [(0, 0.005), (0.005, 0.02), (0.02, 0.08), (0.08, 2)]
    for (low, high), name, fraction in zip(edges, STRATA, strata.mean_fraction, strict=True):
        chosen = (share >= low) & (share < high)
        assert scores.count("n", name) == chosen.sum()
        if not chosen.any():
            assert fraction is None and np.isnan(strata.above_chance(name)).all()
            continue
        alone = grounding(Pairs(counts.take(chosen), np.zeros(chosen.sum(), int), ["x"]))
        for key in ("dice_best", "pointing"):
            assert alone.value(key, "x") == pytest.approx(scores.value(key, name))
        assert fraction == pytest.approx(share[chosen].mean())
        assert strata.above_chance(name) == pytest.approx([alone.value("pointing") - share[chosen].mean()])
    assert scores.count("n") == len(counts)


def test_size_strata_with_folds_and_other_hits():
    rng = np.random.default_rng(3)
    counts = random_counts(rng)
    pixels, fold_of, hits = int(counts.area[0, 0]), rng.integers(0, 2, (1, len(counts))), rng.random(len(counts))
    options = GroundingOptions(unit="cross_fit")
    strata = size_strata(
        Pairs(counts, np.zeros(len(counts), int), ["all"], fold_of=fold_of, hits=hits), pixels, options, tertiles=True
    ).grounding
    index, _ = strata_of(counts.region, pixels, tertiles=True)
    for place, name in enumerate(strata.names):
        chosen = index == place
        alone = grounding(
            Pairs(counts.take(chosen), np.zeros(chosen.sum(), int), ["x"], fold_of=fold_of[:, chosen]), options
        )
        assert strata.value("dice_best", name) == pytest.approx(alone.value("dice_best"))
        assert strata.value("pointing", name) == pytest.approx(hits[chosen].mean())


def test_distance_to_the_region():
    rng = np.random.default_rng(2)
    grids, masks = rng.random((20, 5, 5), dtype=np.float32), rng.random((20, 24, 29)) < 0.01
    grids[0] = 1
    masks[1] = False
    counts = sweep(grids, masks)
    expected = []
    for p in range(20):
        y, x = divmod(int(counts.argmax[p]), 29)
        points = [math.hypot(y - i, x - j) for i in range(24) for j in range(29) if masks[p, i, j]]
        expected.append(min(points, default=math.inf) if p else math.inf)
    found = region_distance(counts, masks, 29)
    assert found == pytest.approx(expected)
    assert np.array_equal(region_distance(counts, pack_masks(masks), 29), found)
    assert np.array_equal(tolerant_hits(found, 0) == 1, counts.hit)
    chosen = counts.take(counts.region > 0)
    hits = tolerant_hits(found, 3)[counts.region > 0]
    assert 0 < hits.mean() < 1
    scores = grounding(Pairs(chosen, np.zeros(len(chosen), int), ["x"], hits=hits))
    assert scores.value("pointing", "x") == pytest.approx(hits.mean())
    with pytest.raises(ValueError, match="does not fit"):
        region_distance(counts, masks, 30)
    with pytest.raises(ValueError, match="do not fit"):
        region_distance(counts, pack_masks(masks), 40)
    with pytest.raises(ValueError, match="finite"):
        tolerant_hits(found, -1)


def curves(counts):
    dice = 2 * counts.overlap / (counts.area + counts.region[:, None])
    return dice, counts.overlap / (counts.area + counts.region[:, None] - counts.overlap)


def test_one_threshold_for_a_model():
    rng = np.random.default_rng(6)
    sets = [(random_counts(rng, 20), rng.integers(0, 2, 20)), (random_counts(rng, 30), rng.choice([0, 3], 30))]
    mean = np.mean(
        [np.mean([curves(c)[0][of == k].mean(axis=0) for k in set(of.tolist())], axis=0) for c, of in sets], axis=0
    )
    k, k_iou = model_levels(sets)
    assert k == k_iou == mean.argmax()
    options = GroundingOptions(unit="per_model")
    result = grounding(Pairs(*sets[0], ["a", "b"]), options, levels=(k, k_iou))
    assert result.value("best_tau") == k / 100
    assert result.value("dice_best", "b") == pytest.approx(curves(sets[0][0])[0][sets[0][1] == 1, k].mean())
    assert model_levels([]) is None


def peaked_counts(rng, peaks):
    """Counts of maps of 400 pixels that mark the region alone at the level `peaks` [P], more below it, less above."""
    level, region = np.arange(101)[None], rng.integers(20, 90, len(peaks))[:, None]
    below = np.minimum(1, level / np.maximum(peaks, 1)[:, None]) ** rng.uniform(0.3, 3, (len(peaks), 1))
    above = np.clip((level - peaks[:, None]) / (101 - peaks)[:, None], 0, 1)
    area = np.rint(400 - (400 - region) * below - region * above).astype(int)
    return counts_of(area, np.minimum(area, region), region[:, 0].astype(np.int32))


def test_a_shared_threshold_is_the_best_for_the_mean_that_is_printed():
    """Of all thresholds by brute force; classes and datasets differ in size, so that the means differ."""
    differs, kinds = 0, ("macro", "micro")
    for seed in range(5):
        rng = np.random.default_rng(seed)
        classes = np.repeat([0, 1, 2], [16, 5, 3]), np.zeros(7, int)
        peaks = [rng.choice([20, 50, 80], 3)[of] + rng.integers(0, 9, len(of)) for of in classes]
        sets = [(peaked_counts(rng, own), of) for own, of in zip(peaks, classes, strict=True)]
        dice = [in_units(curves(counts)[0]) for counts, _ in sets]
        of_set = {
            "macro": [
                np.mean([d[of == c].mean(axis=0) for c in np.unique(of)], axis=0)
                for d, of in zip(dice, classes, strict=True)
            ],
            "micro": [d.mean(axis=0) for d in dice],
        }
        best = set()
        for mean, over in product(kinds, kinds):
            whole = np.average(of_set[mean], axis=0, weights=[24, 7] if over == "micro" else [1, 1])
            k = int(np.round(whole, 11).argmax())
            options = GroundingOptions(unit="per_model", mean=mean, mean_datasets=over)
            assert model_levels(sets, options) == (k, k)
            best.add(k)
        for mean, place in product(kinds, (0, 1)):
            k = int(np.round(of_set[mean][place], 11).argmax())
            alone = GroundingOptions(unit="per_dataset", mean=mean)
            found = grounding(Pairs(*sets[place], list("abc")), alone)
            assert round(100 * found.value("best_tau")) == k
            assert found.value("dice_best", mean) == pytest.approx(of_set[mean][place][k], abs=1e-12)
            levels = calibrated_levels(*sets[place], np.arange(len(classes[place])), ["best"], alone)["best"]
            assert set(levels.tolist()) == {k}
        differs += len(best) > 1
    assert differs >= 3, "the four means have different best thresholds"


def test_searches_say_what_they_need():
    counts = random_counts(np.random.default_rng(0), 4)
    zero = np.zeros(4, int)
    for unit, told, levels, words in [
        ("cross_fit", {}, None, "needs fold_of"),
        ("per_model", {}, None, "needs levels"),
        ("per_class", {}, (1, 1), "needs levels"),
        ("cross_fit", {"fold_of": zero}, None, r"shape \[R, 4\]"),
        ("cross_fit", {"fold_of": zero[None, 1:]}, None, r"shape \[R, 4\]"),
        ("per_model", {}, (0, 101), "levels must lie"),
        ("per_class", {"hits": np.ones(3)}, None, "hits must"),
        ("per_class", {"pixels": 5}, None, "more pixels than 5"),
    ]:
        with pytest.raises(ValueError, match=words):
            grounding(Pairs(counts, zero, ["a"], **told), GroundingOptions(unit=unit), levels=levels)
