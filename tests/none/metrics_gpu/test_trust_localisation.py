"""Pixel measures of maps: against goldens, scikit-learn and NumPy on the canonical map, and every edge case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import auc, average_precision_score, precision_recall_curve, roc_auc_score
from xbench_fast.metrics_gpu.sweep.maps import scaled_map, upsampled
from xbench_fast.metrics_gpu.sweep.masks import pack_masks
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.metrics_gpu.sweep.sweep_options import MODES, Sweeping
from xbench_fast.metrics_gpu.trust.localisation import MEASURES, Localisation, localise

GOLDEN = {
    "average_precision": "average_precision",
    "trapezoid": "auprc_trapezoid",
    "roc_auc": "roc_auc",
    "energy": "energy",
    "cnr": "cnr",
    "pointing": "pointing",
    "fraction": "chance_fraction",
}


def test_reference_values_and_published_code(root: Path) -> None:
    told = json.loads((root / "tests/golden/trust/localisation.json").read_text())["pairs"]
    file = np.load(root / "tests/golden/trust/localisation.npz")
    masks = np.unpackbits(file["masks"], axis=1).reshape(-1, 224, 224).astype(bool)
    found = localise(file["grids"], masks)
    counted = [place for place, pair in enumerate(told) if pair["region"]]
    assert len(counted) == len(told) - 1 and found.degenerate.tolist() == [pair["degenerate"] for pair in told]
    for name, key in GOLDEN.items():
        wanted = np.array([np.nan if pair[key] is None else pair[key] for pair in told], float)
        np.testing.assert_allclose(getattr(found, name)[counted], wanted[counted], rtol=0, atol=1e-6, err_msg=name)
    for name, key in (("energy", "quantus_relevance_mass"), ("roc_auc", "quantus_auc"), ("cnr", "afloc_cnr")):
        for place, pair in enumerate(told):
            if pair.get(key) is not None:
                assert getattr(found, name)[place] == pytest.approx(pair[key], rel=1e-4, abs=1e-4)
    (empty,) = (place for place, pair in enumerate(told) if not pair["region"])
    assert np.isnan(found.measures[empty]).all()


def naive(grid: np.ndarray, mask: np.ndarray, **told: Any) -> dict[str, float]:
    mode = told.pop("upsample", "bilinear")
    own = upsampled(grid, (224, 224), told.get("frame", (0.0, 0.0, 1.0, 1.0)), mode)
    values = scaled_map(grid, sweeping=Sweeping(mode), **told)[np.ix_(own.rows, own.columns)].astype(np.float64)
    region = mask[np.ix_(own.rows, own.columns)]
    score, label = values.ravel(), region.ravel()
    precision, recall, _ = precision_recall_curve(label, score)
    inside, outside = values[region], values[~region]
    whole = upsampled(grid, (224, 224), told.get("frame", (0.0, 0.0, 1.0, 1.0)), mode).full_image(-np.inf)
    return {
        "average_precision": average_precision_score(label, score),
        "trapezoid": auc(recall, precision),
        "roc_auc": roc_auc_score(label, score),
        "energy": inside.sum() / values.sum(),
        "cnr": (inside.mean() - outside.mean()) / np.sqrt(inside.var() + outside.var()),
        "pointing": float(mask.ravel()[whole.argmax()]),
        "fraction": region.mean(),
    }


def world(maps: int, cells: int = 9, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Maps, every second one with few values, and rectangles."""
    rng = np.random.default_rng(seed)
    grids = rng.random((maps, cells, cells)).astype(np.float32)
    grids[::2] = np.round(grids[::2] * 3)
    masks = np.zeros((maps, 224, 224), bool)
    for mask in masks:
        y, x, h, w = rng.integers((20, 20, 5, 5), (150, 150, 70, 70))
        mask[y : y + h, x : x + w] = True
    return grids, masks


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("frame", [(0.0, 0.0, 1.0, 1.0), (0.05, 0.2, 0.9, 0.8), (-0.1, 0.0, 1.2, 1.0)])
def test_the_measures_are_those_of_the_canonical_map(mode: Any, frame: tuple[float, float, float, float]) -> None:
    grids, masks = world(4)
    found = localise(grids, pack_masks(masks), frames=np.array([frame] * 4), upsample=mode)
    for place in range(4):
        wanted = naive(grids[place], masks[place], frame=frame, upsample=mode)
        for name, value in wanted.items():
            assert getattr(found, name)[place] == pytest.approx(value, abs=1e-10), (name, place)
    hits = sweep(grids, masks, frames=np.array([frame] * 4), sweeping=Sweeping(mode)).hit
    assert found.pointing.tolist() == hits.tolist()


def test_a_map_is_scored_on_several_regions() -> None:
    grids, masks = world(3)
    grids[1] = 0.5  # degenerate
    map_of, region_of = np.array([2, 0, 1, 2, 0, 2]), np.array([0, 2, 1, 2, 0, 1])
    found = localise(grids, masks, pairs=(map_of, region_of))
    alone = localise(grids[map_of], masks[region_of])
    for name in (*GOLDEN, "degenerate", "unseen"):
        np.testing.assert_array_equal(getattr(found, name), getattr(alone, name), err_msg=name)
    assert found.degenerate.tolist() == [False, False, True, False, False, False]
    assert found.measures.shape == (6, len(MEASURES)) and len(localise(grids[:0], masks[:0]).cnr) == 0


def check(found: Localisation, **wanted: float) -> None:
    for name, value in wanted.items():
        np.testing.assert_allclose(getattr(found, name), value, atol=1e-12, err_msg=name)


def test_perfect_and_opposite_maps() -> None:
    _, masks = world(3)
    check(localise(masks.astype(np.float32), masks), average_precision=1, roc_auc=1, energy=1, pointing=1, cnr=np.nan)
    check(localise(1 - masks.astype(np.float32), masks), roc_auc=0, energy=0, pointing=0, cnr=np.nan)
    almost = masks.astype(np.float32)
    almost[:, 0, 0] = 0.5
    assert np.isfinite(localise(almost, masks).cnr).all()


@pytest.mark.parametrize("value", [0.25, np.nan, np.inf, -np.inf])
def test_degenerate_maps_score_as_constant_ones(value: float) -> None:
    grids, masks = world(2)
    grids[0] = 0.25
    grids[:, 3, 3] = value
    found = localise(grids[:1], masks[:1])
    fraction = masks[0].mean()
    assert found.degenerate.all()
    check(found, average_precision=fraction, energy=fraction, roc_auc=0.5, cnr=0, pointing=0, fraction=fraction)
    check(found, trapezoid=(1 + fraction) / 2)
    large = np.array([[[-3e38, 3e38]]], np.float32)
    assert localise(large, masks[:1]).degenerate.all(), "the range is beyond float32"


def test_regions_of_all_pixels_of_one_and_of_none() -> None:
    grids, _ = world(3, seed=4)
    masks = np.zeros((3, 224, 224), bool)
    masks[0] = True
    masks[1, 100, 100] = True
    whole, one, none = (localise(grids[i : i + 1], masks[i : i + 1]) for i in range(3))
    check(whole, average_precision=1, trapezoid=1, energy=1, roc_auc=np.nan, cnr=np.nan, pointing=1, fraction=1)
    check(one, **naive(grids[1], masks[1]))
    check(none, average_precision=np.nan, roc_auc=np.nan, energy=np.nan, cnr=np.nan, pointing=np.nan)
    constant = localise(np.ones((1, 2, 2), np.float32), masks[:1])
    check(constant, average_precision=1, energy=1, roc_auc=np.nan, cnr=np.nan, pointing=0)


def test_only_seen_pixels_count() -> None:
    """A region that the model does not see scores as on a constant map, and is no degenerate map."""
    grids, masks = world(2)
    masks[:] = False
    masks[0, :40], masks[1, 60:160] = True, True
    frames = np.array([[0.25, 0.0, 0.75, 1.0]] * 2)
    found = localise(grids, masks, frames=frames)
    assert found.unseen.tolist() == [True, False] and not found.degenerate.any()
    check(localise(grids[:1], masks[:1], frames=frames[:1]), average_precision=0, energy=0, roc_auc=0.5, cnr=0)
    assert found.fraction[1] == 100 / 112
    masks[1, 50:170] = True
    check(localise(grids[1:], masks[1:], frames=frames[1:]), average_precision=1, energy=1, roc_auc=np.nan)
    nothing = localise(grids[:1], masks[1:], frames=np.array([[2.0, 0.0, 3.0, 1.0]]))
    assert nothing.degenerate.all() and nothing.unseen.all()
    check(nothing, average_precision=0, roc_auc=0.5, fraction=0)


def test_of_a_map_of_the_whole_image_only_the_seen_pixels_count() -> None:
    grids, masks = world(3, cells=224)
    frames = np.array([[0.05, 0.2, 0.9, 0.8], [-0.1, 0.0, 1.2, 1.0], [0.0, 0.0, 1.0, 0.5]])
    found = localise(grids, masks, frames=frames, upsample="nearest", full_image=True)
    for place, (y0, x0, y1, x1) in enumerate(frames):
        centres = (np.arange(224) + 0.5) / 224
        seen = np.ix_((centres >= y0) & (centres < y1), (centres >= x0) & (centres < x1))
        values, region = grids[place][seen], masks[place][seen]
        scaled = (values - values.min()) / (values.max() - values.min())
        assert found.average_precision[place] == pytest.approx(average_precision_score(region.ravel(), scaled.ravel()))
        assert found.energy[place] == pytest.approx(scaled[region].sum() / scaled.sum(), rel=1e-6)
        assert found.fraction[place] == region.mean()
        assert found.pointing[place] == region.ravel()[scaled.argmax()]
    whole, plain = (localise(grids, masks, upsample="nearest", full_image=each) for each in (True, False))
    np.testing.assert_array_equal(whole.measures, plain.measures)


@pytest.mark.parametrize("noise", [0.3, 1e-3, 1e-5])
def test_contrast_of_maps_that_hardly_vary_outside(noise: float) -> None:
    """The variance outside is not lost in that of the whole map."""
    rng = np.random.default_rng(5)
    _, masks = world(2)
    grids = (masks * rng.uniform(0.6, 1.0, masks.shape) + noise * rng.random(masks.shape)).astype(np.float32)
    found = localise(grids, masks)
    for place in range(2):
        assert found.cnr[place] == pytest.approx(naive(grids[place], masks[place])["cnr"], rel=1e-9)
    bright = np.where(masks, np.float32(1), grids)
    found = localise(bright, masks)
    assert found.cnr.tolist() == pytest.approx([naive(*each)["cnr"] for each in zip(bright, masks, strict=True)])


def test_arguments_that_do_not_fit_are_refused() -> None:
    grids, masks = world(2)
    with pytest.raises(TypeError, match="masks"):
        localise(grids, masks.astype(np.float32))
    with pytest.raises(TypeError, match="float32"):
        localise(grids.astype(np.float64), masks)
    with pytest.raises(ValueError, match="do not fit"):
        localise(grids[:1], masks)
    with pytest.raises(ValueError, match="224 x 224"):
        localise(grids, masks[:, :100])
    for map_of, region_of in (([2], [0]), ([0], [2]), ([-1], [0])):
        with pytest.raises(ValueError, match="must lie in"):
            localise(grids, masks, pairs=(np.array(map_of), np.array(region_of)))
