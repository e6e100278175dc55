"""Calibration of saliency, maps pixel by pixel and means over pairs, against loops, SciPy and transformed maps."""

from __future__ import annotations

import numpy as np
import pytest
from exact_units import in_units
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from sklearn.linear_model import LogisticRegression
from xbench_fast.metrics_gpu.grounding.calibration import (
    EMPTY,
    METHODS,
    UNFITTED,
    beta_map,
    calibrated_levels,
    cut,
    half_dice,
    isotonic_map,
)
from xbench_fast.metrics_gpu.grounding.curve_shape import LEVEL_VALUES, level_histogram, map_entropy, near_best
from xbench_fast.metrics_gpu.grounding.pairs import Pairs
from xbench_fast.metrics_gpu.grounding.protocols import GroundingOptions
from xbench_fast.metrics_gpu.grounding.scores import grounding
from xbench_fast.metrics_gpu.statistics.bootstrap import draw_patients
from xbench_fast.metrics_gpu.statistics.class_means import band, class_means
from xbench_fast.metrics_gpu.sweep.counts import Counts, dice_at
from xbench_fast.metrics_gpu.sweep.maps import scaled_map
from xbench_fast.metrics_gpu.sweep.quantiles import quantile_counts
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.metrics_gpu.sweep.sweep_options import THRESHOLDS, Sweeping

SIZE = (24, 29)


def some_pairs(seed: int, pairs: int = 24):
    """Maps that know a little of their regions, regions, and the counts of both."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:24, 0:29]
    masks = np.stack(
        [np.hypot(y - rng.integers(4, 20), x - rng.integers(4, 25)) < rng.integers(2, 6) for _ in range(pairs)]
    )
    coarse = masks[:, :24, :28].reshape(pairs, 6, 4, 7, 4).mean(axis=(2, 4))
    maps = (coarse + rng.random(coarse.shape) * 0.9).astype(np.float32)
    return maps, masks, sweep(maps, masks)


def fit_half(counts: Counts, chosen) -> tuple[np.ndarray, np.ndarray]:
    pixels, inside = level_histogram(counts)
    return pixels[chosen].sum(axis=0), inside[chosen].sum(axis=0)


@pytest.mark.parametrize("upsample", ["bilinear", "align_corners", "nearest"])
@pytest.mark.parametrize("normalise", ["minmax", "max", "none"])
def test_scaled_maps_mark_what_the_sweep_counts(upsample, normalise):
    maps, masks, _ = some_pairs(1, 6)
    maps[4], maps[5, 0, 0] = 0.25, np.nan
    frames = np.array(
        [(0, 0, 1, 1), (0.1, 0.2, 0.9, 0.7), (-0.2, 0, 1.2, 1), (0, 0.5, 0.4, 1), (0, 0, 1, 1), (0, 0, 1, 1)]
    )
    counts = sweep(maps, masks, frames=frames.astype(float), sweeping=Sweeping(upsample=upsample, normalise=normalise))
    for p in range(6):
        values = scaled_map(
            maps[p], size=SIZE, frame=tuple(frames[p]), sweeping=Sweeping(upsample=upsample, normalise=normalise)
        )
        marked = values[None] >= THRESHOLDS[:, None, None]
        assert np.array_equal(marked.sum((1, 2)), counts.area[p])
        assert np.array_equal((marked & masks[p]).sum((1, 2)), counts.overlap[p])
    with pytest.raises(TypeError, match="float32"):
        scaled_map(maps[0].astype(float))
    with pytest.raises(ValueError, match="shape"):
        scaled_map(maps)


def test_level_histogram_and_entropy_by_pixels():
    maps, masks, counts = some_pairs(2, 5)
    pixels, inside = level_histogram(counts)
    for p in range(5):
        values = scaled_map(maps[p], size=SIZE)
        level = np.array([int((v >= THRESHOLDS).sum()) - 1 for v in values.ravel()]).reshape(SIZE)
        assert pixels[p].tolist() == [int((level == k).sum()) for k in range(101)]
        assert inside[p].tolist() == [int(((level == k) & masks[p]).sum()) for k in range(101)]
        mass = LEVEL_VALUES[level].ravel()
        assert map_entropy(counts)[p] == pytest.approx(stats.entropy(mass) / np.log(mass.size))
    flat = sweep(np.ones((1, 3, 3), np.float32), masks[:1])
    assert map_entropy(flat)[0] == pytest.approx(1) and len(map_entropy(Counts.empty())) == 0
    with pytest.raises(ValueError, match="first threshold"):
        level_histogram(sweep(maps, masks, sweeping=Sweeping(comparison=">")))


@settings(max_examples=40)
@given(st.lists(st.integers(0, 20), min_size=101, max_size=101), st.floats(0, 0.5), st.sampled_from([0, 1]))
def test_near_best_by_walking(values, within, first):
    curve = np.array(values, float)
    found = near_best(np.stack([curve, curve * np.nan]), within, first / 100)
    best = max(range(first, 101), key=lambda k: (curve[k], -k))
    low = high = best
    while low > first and curve[low - 1] >= (1 - within) * curve[best]:
        low -= 1
    while high < 100 and curve[high + 1] >= (1 - within) * curve[best]:
        high += 1
    assert (found.best[0], found.low[0], found.high[0]) == (best, low, high)
    assert found.width[0] == (high - low) / 100
    assert found.best[1] == -1 and np.isnan(found.width[1])
    with pytest.raises(ValueError, match="may be lost"):
        near_best(curve, 1.0)


def pool_adjacent(values, weights):
    """Isotonic regression by pooling neighbours, as lists of blocks."""
    blocks: list[list[float]] = []
    for value, weight in zip(values, weights, strict=True):
        blocks.append([value, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            b, a = blocks.pop(), blocks.pop()
            total = a[1] + b[1]
            blocks.append([(a[0] * a[1] + b[0] * b[1]) / total, total, a[2] + b[2]])
    return [value for value, _, length in blocks for _ in range(length)]


def test_isotonic_map_pools_adjacent_violators():
    rng = np.random.default_rng(3)
    pixels = rng.integers(1, 50, 101)
    inside = (pixels * np.clip(np.linspace(-0.2, 1, 101) + 0.4 * rng.normal(size=101), 0, 1)).astype(int)
    assert isotonic_map(pixels, inside) == pytest.approx(pool_adjacent(inside / pixels, pixels), abs=1e-6)
    pixels[10:90] = inside[10:90] = 0
    mapped = isotonic_map(pixels, inside)
    assert (np.diff(mapped) >= 0).all() and mapped[9] < mapped[50] < mapped[90]
    for bad in [(np.zeros(101), np.zeros(101)), (pixels, pixels + 1), (pixels[1:], inside[1:])]:
        with pytest.raises(ValueError, match="pixels"):
            isotonic_map(*bad)


@pytest.mark.parametrize("slopes", [(1.5, 0.7), (2.0, 0.0), (0.0, 0.9)])
def test_beta_map_is_the_best_of_its_family(slopes):
    """The likelihood by a bounded search over the three parameters."""
    rng = np.random.default_rng(4)
    x, z = np.log(LEVEL_VALUES), -np.log1p(-LEVEL_VALUES)
    truth = 1 / (1 + np.exp(-(slopes[0] * x + slopes[1] * z - 1)))
    pixels = rng.integers(200, 2000, 101)
    inside = rng.binomial(pixels, truth)

    def loss(parameters):
        logit = parameters[0] * x + parameters[1] * z + parameters[2]
        return (pixels * np.logaddexp(0, logit) - inside * logit).sum() / pixels.sum()

    found = optimize.minimize(
        loss, [1, 1, 0], bounds=[(0, None), (0, None), (None, None)], method="L-BFGS-B", tol=1e-14
    )
    expected = 1 / (1 + np.exp(-(found.x[0] * x + found.x[1] * z + found.x[2])))
    mapped = beta_map(pixels, inside)
    assert mapped == pytest.approx(expected, abs=2e-3) and (np.diff(mapped) >= 0).all()


def test_beta_map_edges():
    pixels = np.full(101, 10)
    assert (beta_map(pixels, np.zeros(101, int)) == 0).all() and (beta_map(pixels, pixels) == 1).all()
    falling = np.linspace(9, 0, 101).astype(int)  # the higher, the less inside: no rising map is better than a constant
    assert np.ptp(beta_map(pixels, falling)) == 0 and beta_map(pixels, falling)[0] == pytest.approx(
        falling.sum() / 1010
    )


def test_beta_maps_are_those_of_scikit_learn():
    """Many maps at once, of which some need one coefficient and some none, against one logistic regression for each."""
    rng = np.random.default_rng(11)
    features = np.column_stack([np.log(LEVEL_VALUES), -np.log1p(-LEVEL_VALUES)])
    pixels = rng.integers(1, 500, (9, 101))
    slopes = np.array([(1.5, 0.7), (2, -0.8), (-0.6, 1.5), (-1, -1), (0.3, 0), (4, 0), (0, 4), (1, 1), (-0.2, 3)])
    inside = rng.binomial(pixels, 1 / (1 + np.exp(1 - slopes @ features.T)))
    pixels[7, 30:60] = inside[7, 30:60] = 0
    kinds = set()
    for total, within, mapped in zip(pixels, inside, beta_map(pixels, inside), strict=True):
        used, expected = [0, 1], np.full(101, within.sum() / total.sum())
        while used:
            weight = np.concatenate([within, total - within]) / total.sum() * 1e4
            rows, target = np.vstack([features, features])[:, used], np.repeat([1, 0], 101)
            model = LogisticRegression(C=1e6, max_iter=1000, tol=1e-8)
            model.fit(rows[weight > 0], target[weight > 0], sample_weight=weight[weight > 0])
            if (model.coef_ >= 0).all():
                expected = model.predict_proba(features[:, used])[:, 1]
                break
            used = [column for column, slope in zip(used, model.coef_[0], strict=True) if slope >= 0]
        kinds.add(tuple(used))
        assert mapped == pytest.approx(expected, abs=2e-5)
    assert kinds == {(0, 1), (0,), (1,), ()}


def test_maps_of_separated_levels_are_finite():
    pixels = np.full((3, 101), 7)
    inside = np.where(np.arange(101) > np.array([[2], [50], [99]]), pixels, 0)
    for mapped in (beta_map(pixels, inside), isotonic_map(pixels, inside)):
        assert np.isfinite(mapped).all() and (np.diff(mapped) >= 0).all()
        assert cut(mapped, 0.5).tolist() == [3, 51, 100]


def test_half_dice_cuts_where_pooled_dice_is_best():
    """Cutting an isotonic map at half of the best Dice gives the best Dice over the fitting pixels."""
    for seed in range(6):
        _, _, counts = some_pairs(seed)
        pixels, inside = fit_half(counts, slice(None))
        level = cut(isotonic_map(pixels, inside), half_dice(pixels, inside))
        pooled = 2 * counts.overlap.sum(0) / (counts.area.sum(0) + counts.region.sum())
        assert 2 * half_dice(pixels, inside) == pytest.approx(pooled.max())
        assert pooled[level] == pytest.approx(pooled.max())
    assert cut(np.full(101, 0.3, np.float32), 0.5) == EMPTY and cut(np.full(101, 0.5, np.float32), 0.5) == 0


@pytest.mark.parametrize("method", ["isotonic", "isotonic_half_dice", "beta", "beta_half_dice"])
def test_calibrated_levels_are_calibrated_maps_swept_again(method):
    """A monotone map only renames thresholds: the maps are transformed pixel by pixel and swept again."""
    maps, masks, counts = some_pairs(5)
    rng = np.random.default_rng(5)
    class_of = rng.integers(0, 2, 24)
    fold_of = rng.integers(0, 8, 24)
    levels = calibrated_levels(counts, class_of, fold_of, [method])[method]
    found = dice_at(counts, levels)
    for p in range(24):
        fitting = (class_of == class_of[p]) & (fold_of != fold_of[p])
        pixels, inside = fit_half(counts, fitting)
        mapped = isotonic_map(pixels, inside) if method.startswith("isotonic") else beta_map(pixels, inside)
        at = np.float32(half_dice(pixels, inside) if method.endswith("half_dice") else 0.5)
        values = scaled_map(maps[p], size=SIZE)
        level = (THRESHOLDS[:, None, None] <= values[None]).sum(axis=0) - 1
        calibrated = mapped[level]
        marked = calibrated >= at
        if at == 0.5:
            again = sweep(calibrated[None], masks[p : p + 1], sweeping=Sweeping(normalise="none"))
            assert again.area[0, 50] == marked.sum() and again.overlap[0, 50] == (marked & masks[p]).sum()
        assert found[p] == pytest.approx(2 * (marked & masks[p]).sum() / (marked.sum() + masks[p].sum()))


def test_a_strictly_rising_map_keeps_every_count():
    """Halving is exact in float32, so thresholds and values move together."""
    maps, masks, counts = some_pairs(6, 8)
    full = np.stack([scaled_map(grid, size=SIZE) / np.float32(2) for grid in maps])
    again = sweep(full, masks, sweeping=Sweeping(normalise="none", tau_scale=0.5))
    assert np.array_equal(again.area, counts.area) and np.array_equal(again.overlap, counts.overlap)


def test_levels_of_methods_without_a_map():
    _, _, counts = some_pairs(7)
    rng = np.random.default_rng(7)
    class_of = rng.integers(0, 2, 24)
    class_of[0] = 2  # a class of one patient cannot be fitted
    fold_of = rng.integers(0, 6, 24)
    dice = in_units(2 * counts.overlap / (counts.area + counts.region[:, None]))
    levels = calibrated_levels(counts, class_of, fold_of)
    assert tuple(levels) == METHODS
    held, best = levels["held_out"], levels["best"]
    for p in range(24):
        own = class_of == class_of[p]
        assert best[p] == dice[own].mean(axis=0).argmax()
        other = own & (fold_of != fold_of[p])
        assert held[p] == (dice[other].mean(axis=0).argmax() if other.any() else UNFITTED)
        expected = dice[p, held[p]] if other.any() else np.nan
        assert dice_at(counts, held)[p] == pytest.approx(expected, abs=0, nan_ok=True)
    assert (levels["none"] == 50).all()
    assert (dice_at(counts, np.full(24, EMPTY)) == 0).all()
    nothing = calibrated_levels(Counts.empty(), np.zeros(0, int), np.zeros(0, int))
    assert [len(found) for found in nothing.values()] == [0] * len(METHODS)
    for arguments, words in [
        ((counts, class_of, fold_of, ["platt"]), "method"),
        ((counts, class_of[1:], fold_of), "must both"),
        ((counts, class_of, fold_of[None]), "must both"),
    ]:
        with pytest.raises(ValueError, match=words):
            calibrated_levels(*arguments)


@pytest.mark.parametrize("unit", ["per_class", "per_dataset"])
def test_calibrated_levels_are_searched_as_the_options_say(unit):
    """Maps that know nothing: the whole image would be the best mask, and it is not asked for."""
    rng = np.random.default_rng(10)
    maps, masks = rng.random((24, 6, 7), np.float32), rng.random((24, *SIZE)) < 0.6
    counts, class_of, fold_of = sweep(maps, masks), np.arange(24) % 3, np.arange(24) // 3 % 2
    dice = 2 * counts.overlap / (counts.area + counts.region[:, None])
    options = GroundingOptions(tau_from=0.01, unit=unit)
    levels = calibrated_levels(counts, class_of, fold_of, options=options)
    means = [dice[class_of == c].mean(axis=0) for c in range(3)]
    for p in range(24):
        curve = means[class_of[p]] if unit == "per_class" else np.mean(means, axis=0)
        assert levels["best"][p] == 1 + curve[1:].argmax()
        other = (class_of == class_of[p]) & (fold_of != fold_of[p])
        assert levels["held_out"][p] == 1 + dice[other].mean(axis=0)[1:].argmax()
    assert all((found >= 1).all() for found in levels.values())
    plain = calibrated_levels(counts, class_of, fold_of)
    assert (plain["best"] == 0).any() and (plain["isotonic_half_dice"] == 0).any()
    found = grounding(Pairs(counts, class_of, list("abc")), options).value("dice_best")
    assert np.mean([dice_at(counts, levels["best"])[class_of == c].mean() for c in range(3)]) == pytest.approx(found)
    with pytest.raises(ValueError, match="per_class or per_dataset, not per_image"):
        calibrated_levels(counts, class_of, fold_of, options=GroundingOptions(unit="per_image"))
    empty = calibrated_levels(Counts.empty(), np.zeros(0, int), np.zeros(0, int), ["best"], options)
    assert len(empty["best"]) == 0


@settings(max_examples=30)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(0, 2**40 - 1))
def test_quantile_counts_sweep_the_ranks(values, region):
    """The ranks of all pixels, made as a map and swept pixel by pixel."""
    grid = np.array([values], np.float32)
    inside = np.array([[bool(region >> n & 1) for n in range(len(values))]])
    inside[0, 0] = True
    ranks = stats.rankdata(values, "min") - 1
    ranked = (ranks / max(ranks.max(), 1)).astype(np.float32)[None]
    found, expected = quantile_counts(grid, inside), sweep(ranked[None], inside[None])
    for name in ("area", "overlap", "region", "argmax", "hit", "degenerate"):
        assert np.array_equal(getattr(found, name), getattr(expected, name)), name


def test_quantile_thresholds_mark_the_same_area_in_every_map():
    rng = np.random.default_rng(8)
    for _ in range(3):
        found = quantile_counts(rng.gamma(2, size=SIZE).astype(np.float32), rng.random(SIZE) < 0.3)
        for k in (25, 50, 90):
            assert found.area[0, k] / np.prod(SIZE) == pytest.approx(1 - k / 100, abs=2 / np.prod(SIZE))


def test_class_means_by_loops():
    rng = np.random.default_rng(9)
    values, class_of, patients = rng.random((20, 3)), rng.integers(0, 2, 20), rng.integers(0, 7, 20)
    draws = draw_patients(7, 40, seed=1)
    found = class_means(values, class_of, 3, draws, patients)
    for b, counts in enumerate([np.ones(7, int), *draws.counts]):
        rows = [p for p in range(20) for _ in range(counts[patients[p]])]
        means = [
            np.mean([values[p] for p in rows if class_of[p] == c], axis=0)
            for c in (0, 1)
            if any(class_of[p] == c for p in rows)
        ]
        for c in (0, 1):
            own = [values[p] for p in rows if class_of[p] == c]
            assert found.classes[b, c] == pytest.approx(
                np.mean(own, axis=0) if own else np.full(3, np.nan), nan_ok=True
            )
        assert found.macro[b] == pytest.approx(np.mean(means, axis=0))
    assert np.isnan(found.classes[:, 2]).all()
    low, high = band(found.macro[1:])
    assert low == pytest.approx(np.percentile(found.macro[1:], 2.5, axis=0)) and (low < high).all()
    assert np.isnan(band(found.classes[:, 2])).all()
    empty = class_means(np.zeros((0, 2)), np.zeros(0, int), 0, draws, np.zeros(0, int))
    assert empty.macro.shape == (41, 2) and np.isnan(empty.macro).all()
    for arguments, words in [((values, class_of[1:], 3), "do not fit"), ((values, class_of, 1), "must lie")]:
        with pytest.raises(ValueError, match=words):
            class_means(*arguments, draws, patients)
    with pytest.raises(ValueError, match="between 0 and 1"):
        band(found.macro, 1.0)
