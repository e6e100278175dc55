"""Filled contours, against a search that walks from pixel to pixel."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xbench_fast.metrics_gpu.grounding.native import segment
from xbench_fast.metrics_gpu.grounding.shapes import fill_holes, without_single_pixels


def walked(mask: np.ndarray) -> np.ndarray:
    """The mask with its holes, by walking inwards from every free pixel of the border."""
    height, width = mask.shape
    seen = np.zeros_like(mask)
    todo = [(y, x) for y in range(height) for x in range(width) if y in (0, height - 1) or x in (0, width - 1)]
    while todo:
        y, x = todo.pop()
        if 0 <= y < height and 0 <= x < width and not mask[y, x] and not seen[y, x]:
            seen[y, x] = True
            todo += [(y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)]
    return ~seen


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 14), st.integers(1, 14), st.floats(0.3, 0.8), st.integers(0, 2**32 - 1))
def test_holes_are_filled_and_single_pixels_dropped(height: int, width: int, share: float, seed: int) -> None:
    mask = np.random.default_rng(seed).random((height, width)) < share
    np.testing.assert_array_equal(fill_holes(mask), walked(mask))
    padded = np.pad(mask, 1)
    for y in range(height):
        for x in range(width):
            alone = padded[y : y + 3, x : x + 3].sum() == 1
            assert without_single_pixels(mask)[y, x] == (mask[y, x] and not alone)


def test_a_spiral_is_no_hole() -> None:
    rows = ("1111111", "0000001", "1111101", "1000101", "1011101", "1000001", "1111111")
    spiral = np.array([[int(letter) for letter in row] for row in rows])
    np.testing.assert_array_equal(fill_holes(spiral > 0), spiral > 0)
    closed = spiral.copy()
    closed[1, 0] = 1
    assert fill_holes(closed > 0).all()


@pytest.mark.parametrize("threshold", [None, 0.5])
def test_only_the_map_cut_by_otsu_is_filled(threshold: float | None) -> None:
    ring = np.full((9, 9), 0.1, np.float32)
    ring[2:7, 2:7], ring[4, 4], ring[0, 8] = 1.0, 0.1, 1.0
    cut = segment(ring, threshold)
    assert (bool(cut[4, 4]), bool(cut[0, 8])) == ((True, False) if threshold is None else (False, True))
    assert cut.sum() == 25
