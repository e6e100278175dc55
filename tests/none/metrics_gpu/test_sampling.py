"""Axis tables against PyTorch's documented formulas, written out by hand, and their invariants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xbench_fast.metrics_gpu.sweep.maps import axis
from xbench_fast.metrics_gpu.sweep.sweep_options import MODES, THRESHOLDS, level


def test_thresholds_are_rounded_once():
    assert THRESHOLDS.dtype == np.float32 and THRESHOLDS.shape == (101,)
    assert [float(t) for t in THRESHOLDS] == [float(np.float32(k / 100)) for k in range(101)]
    assert THRESHOLDS[29] == np.float32(0.29) and THRESHOLDS[0] == 0 and THRESHOLDS[100] == 1
    accumulated = np.arange(0, 1.01, 0.01)
    assert (accumulated == np.arange(101) / 100).sum() == 91, "this is why they are not accumulated"
    with pytest.raises(ValueError, match="read-only"):
        THRESHOLDS[0] = 1


def test_level_is_the_index_of_a_threshold():
    assert [level(k / 100) for k in range(101)] == list(range(101))
    for bad in (-0.01, 1.01, 0.005, 0.2951):
        with pytest.raises(ValueError, match="thresholds"):
            level(bad)


def test_bilinear_has_half_pixel_centres():
    table = axis(14, 224)
    assert table.lo.dtype == table.hi.dtype == np.int32 and table.weight.dtype == np.float32
    # 16 pixels per cell: the first 8 lie before the first cell's centre, then weights are odd multiples of 1/32
    assert table.lo[:8].tolist() == [0] * 8 and (table.weight[:8] == 0).all()
    assert table.weight[8:24].tolist() == [(2 * i + 1) / 32 for i in range(16)]
    assert table.lo[8:24].tolist() == [0] * 16 and table.hi[8:24].tolist() == [1] * 16
    assert table.lo[-8:].tolist() == [13] * 8 and table.hi[-8:].tolist() == [13] * 8
    assert table.seen.all()


def test_nearest_repeats_each_cell():
    table = axis(14, 224, mode="nearest")
    assert table.lo.tolist() == table.hi.tolist() == np.repeat(np.arange(14), 16).tolist()
    assert (table.weight == 0).all()


def test_align_corners_meets_the_outer_cells():
    table = axis(14, 224, mode="align_corners")
    position = table.lo + table.weight.astype(np.float64)
    assert position[0] == 0 and position[-1] == 13
    assert np.allclose(position, np.arange(224) * 13 / 223, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_a_crop_is_the_full_table_of_the_cropped_part(mode):
    whole = axis(7, 64, mode=mode)
    part = axis(7, 128, start=0.25, stop=0.75, mode=mode)
    assert np.flatnonzero(part.seen).tolist() == list(range(32, 96))
    assert (part.lo[:32] == -1).all() and (part.hi[96:] == -1).all()
    assert np.array_equal(part.lo[32:96], whole.lo) and np.allclose(part.weight[32:96], whole.weight, atol=1e-6)


def test_padding_moves_the_image_inside_the_grid():
    # a saliency grid of 8 cells over twice the frame: the frame is cells 2 to 6
    table = axis(8, 4, start=-0.5, stop=1.5, mode="nearest")
    assert table.seen.all() and table.lo.tolist() == [2, 3, 4, 5]


def test_one_cell_and_one_pixel():
    for mode in MODES:
        table = axis(1, 5, mode=mode)
        assert (table.lo == 0).all() and (table.hi == 0).all() and (table.weight == 0).all()
    assert axis(4, 1).lo.tolist() == [1] and axis(4, 1).weight.tolist() == [0.5]
    assert axis(4, 1, mode="nearest").lo.tolist() == [2]
    assert axis(4, 1, mode="align_corners").lo.tolist() == [0]


@given(
    cells=st.integers(1, 64),
    pixels=st.integers(1, 300),
    start=st.floats(-1, 0.9),
    length=st.floats(0.01, 3),
    mode=st.sampled_from(MODES),
)
def test_tables_are_ordered_and_in_range(cells, pixels, start, length, mode):
    table = axis(cells, pixels, start, start + length, mode)
    seen = table.seen
    assert len(table.lo) == len(table.hi) == len(table.weight) == pixels
    lo, hi, weight = table.lo[seen], table.hi[seen], table.weight[seen]
    assert ((lo >= 0) & (lo <= hi) & (hi <= lo + 1) & (hi < cells)).all()
    assert ((weight >= 0) & (weight <= 1)).all()
    assert (np.diff(lo) >= 0).all() and (np.diff(hi) >= 0).all()
    assert not len(lo) or np.ptp(np.flatnonzero(seen)) == len(lo) - 1, "seen pixels are one run"
    assert (table.lo[~seen] == -1).all() and (table.hi[~seen] == -1).all() and (table.weight[~seen] == 0).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"mode": "cubic"}, "unknown upsampling 'cubic'; known: bilinear, align_corners, nearest"),
        ({"cells": 0}, "at least one cell"),
        ({"pixels": 0}, "at least one cell"),
        ({"start": 0.5, "stop": 0.5}, "start < stop"),
        ({"stop": float("nan")}, "finite"),
        ({"stop": float("inf")}, "finite"),
    ],
)
def test_misuse(arguments, words):
    with pytest.raises(ValueError, match=words):
        axis(**{"cells": 7, "pixels": 10, **arguments})
