"""CNR and mean IoU of phrase maps against the authors' code (the goldens of `boxes/phrase_maps*`), and our variants."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from xbench_fast.metrics_gpu.grounding.phrases import (
    IOU_THRESHOLDS,
    PhraseScores,
    phrase_means,
    phrase_scores,
    scores_on_grid,
    smoothed,
)
from xbench_fast.metrics_gpu.sweep.maps import axis
from xbench_fast.metrics_gpu.sweep.sweep_options import Mode

NAN = math.nan
Floats = NDArray[np.floating[Any]]


@pytest.fixture(scope="module")
def golden(reference_files: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((reference_files / "boxes/phrase_maps_expected.json").read_text())
    with np.load(reference_files / "boxes/phrase_maps.npz") as stored:
        found["arrays"] = dict(stored)
    return found


def grid(golden: dict[str, Any], pair: int) -> Floats:
    arrays = golden["arrays"]
    found: Floats = smoothed(arrays[f"{pair:02d}_patches"] @ arrays[f"{pair:02d}_text"][0])
    return found


def on_image(
    saliency: NDArray[Any], width: int, height: int, *, crop: int, resize: int = 512, mode: Mode = "nearest"
) -> Floats:
    """A map [h, w] over an image of width x height, float64 [height, width], NaN where the network saw nothing.

    The network saw the shorter side resized to `resize` and a central square of `crop` of that.
    """
    side = int(crop * min(width, height) / resize)
    drawn = resized(saliency, side, mode)
    out = np.full((height, width), np.nan)
    top, left = (math.floor((length - side) / 2) for length in (height, width))
    out[top : top + side, left : left + side] = drawn
    return out


def with_border(values: NDArray[Any], *, crop: int, resize: int = 512) -> Floats:
    """A square map [n, n] with NaN outside the central square of crop / resize of its side."""
    side = values.shape[0]
    inner = int(crop * side / resize)
    start = math.floor((side - inner) / 2)
    out = np.full(values.shape, np.nan)
    out[start : start + inner, start : start + inner] = values[start : start + inner, start : start + inner]
    return out


def resized(saliency: NDArray[Any], side: int, mode: Mode) -> Floats:
    """A map at side x side, in float64, as torch's `interpolate` draws it (half-pixel centres; nearest: floor)."""
    values = saliency.astype(np.float64)
    for _axis in (0, 1):
        cells = values.shape[0]
        if mode == "nearest":
            values = values[np.arange(side) * cells // side]
        else:
            table = axis(cells, side, mode=mode)
            weight = table.weight.astype(np.float64)[:, None]
            values = values[table.lo] * (1 - weight) + values[table.hi] * weight
        values = values.T
    return values


def boxes_on_square(boxes: Sequence[Sequence[float]], width: int, height: int, side: int = 224) -> NDArray[np.uint8]:
    """How many boxes (x, y, w, h) of an image cover each pixel of its copy padded to a square of `side`.

    The longer side becomes `side`; the padding is halved and rounded down, and so are the four numbers of a box.
    """
    scale = side / max(width, height)
    left, top = ((side - math.floor(length * scale)) // 2 for length in (width, height))
    out = np.zeros((side, side), np.uint8)
    for x, y, w, h in boxes:
        x0, y0, across, down = math.floor(x * scale + left), math.floor(y * scale + top), int(w * scale), int(h * scale)
        out[y0 : y0 + down, x0 : x0 + across] += 1
    return out


def square(golden: dict[str, Any], pair: int, kind: str) -> Floats:
    full = on_image(grid(golden, pair), 224, 224, crop=512, mode="bilinear")
    return full if kind == "full" else with_border(full, crop=448)


@pytest.mark.parametrize("pair", range(16))
def test_maps_equal_those_of_the_authors(golden: dict[str, Any], pair: int) -> None:
    arrays, told = golden["arrays"], golden["pairs"][pair]
    smooth = grid(golden, pair)
    np.testing.assert_allclose(smooth, arrays[f"{pair:02d}_smooth"], atol=1e-5)
    np.testing.assert_allclose(square(golden, pair, "full")[::8, ::8], arrays[f"{pair:02d}_up224"], atol=1e-5)
    for mode in ("nearest", "bilinear"):
        want = told[f"film_{mode}"]
        width, height = want["width_height"]
        drawn = on_image(smooth, width, height, crop=want["crop"], mode=mode)  # type: ignore[arg-type]
        assert list(drawn.shape) == want["shape"] and np.isnan(drawn).sum() == want["nan_pixels"]
        assert np.nansum(drawn) == pytest.approx(want["sum"], rel=1e-5)
        np.testing.assert_allclose(drawn[::7, ::7], arrays[f"{pair:02d}_film_{mode}"], atol=1e-5)


@pytest.mark.parametrize("kind", ["full", "margin"])
def test_pairs_and_totals_equal_those_of_the_authors(golden: dict[str, Any], kind: str) -> None:
    scores, categories = [], []
    for pair, told in enumerate(golden["pairs"]):
        region, want = boxes_on_square(told["boxes_xywh"], *told["image"]), told[kind]
        drawn = np.zeros((224, 224), np.uint8)
        for x, y, w, h in told["boxes_224"]:
            drawn[y : y + h, x : x + w] += 1
        np.testing.assert_array_equal(region, drawn)
        values = square(golden, pair, kind)
        found = phrase_scores(values, region)
        assert np.isnan(values).sum() == want["nan_pixels"]
        assert found.iou == pytest.approx(want["iou"], abs=1e-5) and found.miou == pytest.approx(want["miou"], abs=1e-5)
        assert found.cnr == pytest.approx(want["cnr"], abs=1e-5)
        scores.append(found)
        categories.append(told["category"])
    means, total = phrase_means(scores, categories), golden["total"][kind]
    assert means.iou == pytest.approx(total["iou_at_0.1_to_0.5"], abs=1e-5)
    assert (means.miou, means.cnr) == pytest.approx((total["miou"], total["cnr"]), abs=1e-5)
    assert means.miou_with_unseen == pytest.approx(means.miou) and not means.unseen and not means.constant
    assert means.cnr_absolute > means.cnr, "two pairs lie lower inside than outside"


@pytest.mark.parametrize("shape", [(14, 14), (15, 7), (3, 3), (1, 16)])
def test_smoothing_is_scipys(shape: tuple[int, int]) -> None:
    maps = np.random.default_rng(1).normal(size=(2, *shape)).astype(np.float32)
    found = smoothed(maps)
    assert found.dtype == np.float32 and found.shape == maps.shape
    for one, other in zip(found, maps, strict=True):
        np.testing.assert_allclose(one, gaussian_filter(other, 1.5), atol=1e-6)


def test_a_map_that_its_model_has_smoothed_is_not_smoothed_again() -> None:
    raw = np.random.default_rng(2).normal(size=(14, 14)).astype(np.float32)
    region = np.zeros((224, 224), bool)
    region[40:90, 60:150] = True
    once = scores_on_grid(raw, region)
    assert scores_on_grid(smoothed(raw), region, sigma=0) == once
    assert abs(scores_on_grid(smoothed(raw), region).cnr - once.cnr) > 0.01
    assert abs(scores_on_grid(raw, region, sigma=0).cnr - once.cnr) > 0.01


def test_the_border_leaves_map_and_region_alike() -> None:
    values = np.tile(np.linspace(-1, 1, 8), (8, 1))
    values[:, :2] = NAN
    region = np.zeros((8, 8), bool)
    region[:, 6:] = True
    whole = phrase_scores(values, region)
    region[:, 0] = True
    assert phrase_scores(values, region) == whole and whole.cnr > 1 and not whole.unseen
    region[:, 2:] = False
    unseen = phrase_scores(values, region)
    assert unseen.unseen and math.isnan(unseen.cnr) and math.isnan(unseen.miou)


def test_a_constant_map_has_no_contrast_and_no_overlap() -> None:
    region = np.zeros((4, 4), bool)
    region[0, 0] = True
    for value in (0.0, 3.0, math.inf):
        found = phrase_scores(np.full((4, 4), value), region)
        assert found == PhraseScores(0.0, (0.0,) * 5, constant=True)


def test_contrast_is_signed_and_overlapping_boxes_are_one_region() -> None:
    values = np.zeros((4, 4))
    values[:2] = -1.0
    boxes = np.zeros((4, 4), np.uint8)
    boxes[:2] = 1
    values[0, 0] = -1.5
    found = phrase_scores(values, boxes)
    assert found.cnr < -3 and found.iou == (0.0,) * 5
    boxes[0, 0] = 2  # in IoU one region; left out of the contrast
    assert phrase_scores(values, boxes).iou == found.iou and phrase_scores(values, boxes).cnr == 0.0, "no variance left"
    assert phrase_scores(values, np.ones((4, 4), bool)).iou[0] == 0.5


def test_a_pixel_at_a_threshold_is_not_above_it() -> None:
    region = np.array([[False, True, True]])
    assert phrase_scores(np.array([[-1.0, 0.5, 1.0]]), region).iou == (1.0, 1.0, 1.0, 1.0, 0.5)


def test_means_are_of_categories_and_count_what_was_not_seen() -> None:
    good, bad = PhraseScores(2.0, (1.0,) * 5), PhraseScores(-1.0, (0.0,) * 5)
    unseen, flat = PhraseScores(NAN, (NAN,) * 5, unseen=True), PhraseScores(0.0, (0.0,) * 5, constant=True)
    found = phrase_means([good, good, bad, bad, unseen, flat], ["a", "a", "a", "b", "b", "c"])
    assert found.cnr == pytest.approx((1 - 1 + 0) / 3) and found.cnr_absolute == pytest.approx((5 / 3 + 1 + 0) / 3)
    assert found.miou == pytest.approx((2 / 3 + 0 + 0) / 3) and found.iou == pytest.approx((2 / 9,) * 5)
    assert (found.pairs, found.unseen, found.constant) == (6, 1, 1)
    late = phrase_means([good, unseen], ["a", "a"])
    assert (late.miou, late.miou_with_unseen, late.cnr) == (1.0, 0.5, 2.0)
    assert math.isnan(phrase_means([], []).miou)
    assert IOU_THRESHOLDS[2] == 0.30000000000000004 and len(IOU_THRESHOLDS) == 5


def test_the_border_on_the_grid_is_what_the_frame_leaves_out(golden: dict[str, Any]) -> None:
    """A frame of the central 28 of 32 cells of a square of 224 is AFLoc's margin with a map of its own there."""
    raw = (golden["arrays"]["00_patches"] @ golden["arrays"]["00_text"][0]).astype(np.float32)
    region = np.zeros((224, 224), bool)
    region[60:120, 80:150] = True
    frame = (14 / 224, 14 / 224, 210 / 224, 210 / 224)
    inner = on_image(smoothed(raw), 196, 196, crop=512, mode="bilinear")
    values = np.full((224, 224), NAN)
    values[14:210, 14:210] = inner
    found, want = scores_on_grid(raw, region, frame), phrase_scores(values, region)
    assert found.cnr == pytest.approx(want.cnr, abs=1e-5) and found.iou == pytest.approx(want.iou, abs=1e-4)
    corner = np.zeros((224, 224), bool)
    corner[:10, :10] = True
    assert scores_on_grid(raw, corner, frame).unseen and not scores_on_grid(raw, corner).unseen
    raw[3, 3] = NAN
    assert scores_on_grid(raw, region).constant
