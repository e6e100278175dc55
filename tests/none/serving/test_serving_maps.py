"""Maps, masks and boxes of a served answer against naive loops and against the counts of the sweep."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from synthetic import reference_sweep
from xbench_fast.metrics_gpu.sweep.maps import scaled_map
from xbench_fast.metrics_gpu.sweep.sweep import sweep
from xbench_fast.metrics_gpu.sweep.sweep_options import THRESHOLDS
from xbench_fast.runtime.serving.inference.request_images import DISPLAY_SIDE, prepare_pixels
from xbench_fast.runtime.serving.inference.response_outputs import binary_mask, draw_overlay, regions

EXAMPLES = 10 * int(os.environ.get("XBENCH_FUZZ", "1"))
FRAMES = [(0.0, 0.0, 1.0, 1.0), (0.125, 0.0, 0.875, 1.0), (-0.2, 0.1, 1.2, 0.9)]


def saliency(seed: int, rows: int, columns: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(1, 9), st.sampled_from(FRAMES))
@settings(max_examples=EXAMPLES)
def test_masks_have_the_pixels_the_evaluation_counts(
    seed: int, rows: int, columns: int, frame: tuple[float, ...]
) -> None:
    grid = saliency(seed, rows, columns)
    full = scaled_map(grid, frame=frame)  # type: ignore[arg-type]
    assert full.shape == (224, 224) and full.dtype == np.float32
    region = np.zeros((1, 224, 224), np.bool_)
    region[0, 20:90, 100:] = True
    counts = reference_sweep(grid[None], region, frames=np.array([frame]))
    masks = [binary_mask(full, k / 100) for k in range(101)]
    assert [int(mask.sum()) for mask in masks] == counts.area[0].tolist()
    assert [int(mask[region[0]].sum()) for mask in masks] == counts.overlap[0].tolist()
    assert bool((full == 0).all()) == bool(counts.degenerate[0])
    if not counts.degenerate[0]:
        assert int(np.argmax(full)) == counts.argmax[0] and (full.min(), full.max()) == (0, 1)


@pytest.mark.parametrize("frame", [(0.3, 0.4, 0.30001, 0.40001), (2.0, 2.0, 3.0, 3.0)])
def test_a_map_of_which_nothing_is_seen_is_empty(frame: tuple[float, float, float, float]) -> None:
    full = scaled_map(saliency(1, 4, 4), frame=frame)
    counts = sweep(saliency(1, 4, 4)[None], np.ones((1, 224, 224), np.bool_), frames=np.array([frame]))
    assert counts.degenerate[0] and (full == 0).all()
    assert [int(binary_mask(full, tau).sum()) for tau in (0.0, 0.01)] == counts.area[0, :2].tolist() == [224 * 224, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_map_that_is_not_finite_is_empty(bad: float) -> None:
    grid = saliency(1, 4, 4)
    grid[2, 2] = bad
    full = scaled_map(grid)
    assert (full == 0).all() and binary_mask(full, 0.01).sum() == 0
    assert regions(full, binary_mask(full, 0.5)) == []


def test_thresholds_are_compared_as_float32() -> None:
    values = np.stack([np.nextafter(THRESHOLDS, np.float32(-1)), THRESHOLDS])
    for k in range(101):
        assert binary_mask(values[:, k], k / 100).tolist() == [0, 1]


def flood(mask: NDArray[np.uint8]) -> list[set[tuple[int, int]]]:
    """Connected regions, corners included, by filling."""
    left = {(int(y), int(x)) for y, x in np.argwhere(mask)}
    found = []
    while left:
        region, edge = set(), [left.pop()]
        while edge:
            y, x = edge.pop()
            region.add((y, x))
            near = {(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)} & left
            left -= near
            edge.extend(near)
        found.append(region)
    return found


@given(st.integers(0, 10_000), st.floats(0.1, 0.9))
@settings(max_examples=EXAMPLES)
def test_boxes_hold_the_connected_regions(seed: int, tau: float) -> None:
    full = np.random.default_rng(seed).random((20, 30), np.float32)
    mask = binary_mask(full, tau)
    expected = []
    for region in flood(mask):
        ys, xs = [y for y, _ in region], [x for _, x in region]
        peak = max(full[y, x] for y, x in region)
        expected.append((min(xs) / 30, min(ys) / 20, (max(xs) + 1) / 30, (max(ys) + 1) / 20, float(peak)))
    found = regions(full, mask)
    assert sorted(found) == sorted(expected)
    assert [box[4] for box in found] == sorted((box[4] for box in found), reverse=True)


def test_the_overlay_shows_image_map_and_outline() -> None:
    grey = np.full((300, 150), 100, np.uint8)
    full = np.zeros((224, 224), np.float32)
    full[112:] = 1.0
    mask = np.zeros((224, 224), np.uint8)
    mask[112:150, 56:112] = 1
    picture = np.asarray(Image.open(io.BytesIO(draw_overlay(grey, full, mask))))
    assert picture.shape == (300, 150, 3)
    assert picture[20, 20].tolist() == [100, 100, 100], "where the map is 0 the image is unchanged"
    assert picture[290, 20].tolist() != [100, 100, 100]
    outline = (picture == (64, 224, 255)).all(axis=-1)
    ys, xs = np.nonzero(outline)
    assert (ys.min(), ys.max() + 1) == (150, 201) and (xs.min(), xs.max() + 1) == (38, 75)
    assert not outline[175, 56], "the middle of the region is no outline"


def test_a_large_image_is_shown_smaller() -> None:
    shown = prepare_pixels(np.zeros((3000, 1500), np.uint8), side=DISPLAY_SIDE).display
    assert shown is not None and shown.shape == (1024, 512)
    assert prepare_pixels(np.zeros((30, 15), np.uint8)).display is None
