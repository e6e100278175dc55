"""Filled contours, against a search that walks from pixel to pixel."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from xbench_fast.metrics_gpu.grounding.native import segment, with_filled_holes
from xbench_fast.runtime.data.datasets.region_shapes import RunText


def walked(mask: np.ndarray) -> np.ndarray:
    """The mask without single pixels and with its holes, by walking inwards from every free pixel of the border."""
    height, width = mask.shape
    free = [[True] * (width + 2), *([True, *row, True] for row in (~kept(mask)).tolist()), [True] * (width + 2)]
    todo = [(0, 0)]
    free[0][0] = False
    while todo:
        y, x = todo.pop()
        for v, u in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
            if 0 <= v < height + 2 and 0 <= u < width + 2 and free[v][u]:
                free[v][u] = False
                todo.append((v, u))
    return np.array([row[1:-1] for row in free[1:-1]]) | kept(mask)


def kept(mask: np.ndarray) -> np.ndarray:
    """The mask without pixels none of whose eight neighbours is in it."""
    padded = np.pad(mask, 1)
    out = mask.copy()
    for y, x in zip(*np.nonzero(mask), strict=True):
        out[y, x] = padded[y : y + 3, x : x + 3].sum() > 1
    return out


def test_200_random_masks() -> None:
    rng = np.random.default_rng(0)
    filled = dropped = 0
    for _ in range(200):
        mask = rng.random(rng.integers(1, 30, 2)) < rng.uniform(0.2, 0.8)
        found = with_filled_holes(mask)
        np.testing.assert_array_equal(found, walked(mask))
        filled += int((found & ~mask).sum())
        dropped += int((mask & ~found).sum())
    assert filled > 1000 and dropped > 50


def test_40_real_masks(shared: Path) -> None:
    """A hundred pixels a side of the regions and segmentations of the CheXlocalize sample, cut open and not."""
    folder = shared / "data" / "annotations" / "chexlocalize"
    count = 0
    for name in ("gt_segmentations_val.json", "gradcam_segmentations_val_sample.json"):
        for drawn in json.loads((folder / name).read_text()).values():
            for entry in drawn.values():
                mask = RunText(tuple(entry["size"]), entry["counts"], "coco").mask(*entry["size"])
                step = max(1, max(mask.shape) // 100)
                small = mask[::step, ::step]
                edge = small & ~(small & np.roll(small, 2, 0) & np.roll(small, 2, 1))  # a contour, with holes
                for shape in (small, edge):
                    np.testing.assert_array_equal(with_filled_holes(shape), walked(shape))
                count += 1
    assert count == 40


def test_a_spiral_is_no_hole() -> None:
    rows = ("1111111", "0000001", "1111101", "1000101", "1011101", "1000001", "1111111")
    spiral = np.array([[int(letter) for letter in row] for row in rows])
    np.testing.assert_array_equal(with_filled_holes(spiral > 0), spiral > 0)
    closed = spiral.copy()
    closed[1, 0] = 1
    assert with_filled_holes(closed > 0).all()


@pytest.mark.parametrize("threshold", [None, 0.5])
def test_only_the_map_cut_by_otsu_is_filled(threshold: float | None) -> None:
    ring = np.full((9, 9), 0.1, np.float32)
    ring[2:7, 2:7], ring[4, 4], ring[0, 8] = 1.0, 0.1, 1.0
    cut = segment(ring, threshold)
    assert (bool(cut[4, 4]), bool(cut[0, 8])) == ((True, False) if threshold is None else (False, True))
    assert cut.sum() == 25
