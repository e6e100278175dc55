"""The naive sweep that the CPU's and the CUDA kernels are compared with, and cases to compare them on.

It upsamples row by row with NumPy float32 arrays, compares the whole map with each threshold, and shares no code with
the package: neither the axis tables, nor the thresholds, nor the histogram.
"""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from xbench_fast.metrics_gpu.sweep.counts import Counts

F = np.float32
TAUS = [F(k / 100) for k in range(101)]


def naive_source(i, pixels, cells, start, stop, mode):
    """(lo, hi, weight) of one pixel, or None if the model does not see it."""
    centre = (i + 0.5) / pixels
    if not start <= centre < stop:
        return None
    u = (centre - start) / (stop - start)
    if mode == "nearest":
        cell = min(max(math.floor(u * cells), 0), cells - 1)
        return cell, cell, F(0)
    if mode == "bilinear":
        source = u * cells - 0.5
    else:
        covered = pixels * (stop - start)
        source = (i - start * pixels) * ((cells - 1) / (covered - 1)) if covered > 1 else 0.0
    source = min(max(source, 0.0), cells - 1.0)
    lo = math.floor(source)
    return lo, min(lo + 1, cells - 1), F(source - lo)


def naive_map(grid, height, width, frame=(0.0, 0.0, 1.0, 1.0), mode="bilinear"):
    """The upsampled map as float32 [H, W], NaN where unseen, and which pixels are seen."""
    h, w = grid.shape
    rows = [naive_source(y, height, h, frame[0], frame[2], mode) for y in range(height)]
    columns = [naive_source(x, width, w, frame[1], frame[3], mode) for x in range(width)]
    values, seen = np.full((height, width), np.nan, F), np.zeros((height, width), bool)
    inside = [x for x, column in enumerate(columns) if column is not None]
    x0, x1 = (np.array([columns[x][i] for x in inside], int) for i in (0, 1))
    wx = np.array([columns[x][2] for x in inside], F)
    for y, row in enumerate(rows):
        if row is None:
            continue
        y0, y1, wy = row
        a = grid[y0, x0] * (F(1) - wx) + grid[y0, x1] * wx
        b = grid[y1, x0] * (F(1) - wx) + grid[y1, x1] * wx
        values[y, inside], seen[y, inside] = a * (F(1) - wy) + b * wy, True
    return values, seen


def naive_counts(grid, mask, frame=(0.0, 0.0, 1.0, 1.0), mode="bilinear"):
    """Every field of Counts for one pair, by direct comparison."""
    with np.errstate(all="ignore"):
        values, seen = naive_map(grid, *mask.shape, frame, mode)
        finite = seen.any() and np.isfinite(values[seen]).all()
        low, high = (values[seen].min(), values[seen].max()) if finite else (F(0), F(0))
        span = high - low
        degenerate = not (span > 0 and np.isfinite(span))
        normal = np.zeros(mask.shape, F) if degenerate else np.where(seen, (values - low) / span, F(0))
    assert normal.dtype == F
    area = [int((normal >= tau).sum()) for tau in TAUS]
    overlap = [int(((normal >= tau) & mask).sum()) for tau in TAUS]
    argmax = 0 if degenerate else int(np.where(seen, values, low).argmax())
    hit = bool(not degenerate and mask.ravel()[argmax])
    return area, overlap, int(mask.sum()), argmax, hit, degenerate


def assert_equal(counts: Counts, grids, masks, frames=None, mode="bilinear"):
    assert len(counts) == len(grids)
    for p, (grid, mask) in enumerate(zip(grids, masks, strict=True)):
        frame = (0.0, 0.0, 1.0, 1.0) if frames is None else tuple(frames[p])
        area, overlap, region, argmax, hit, degenerate = naive_counts(grid, mask, frame, mode)
        assert bool(counts.degenerate[p]) == degenerate
        assert counts.area[p].tolist() == area
        assert counts.overlap[p].tolist() == overlap
        assert (int(counts.region[p]), int(counts.argmax[p]), bool(counts.hit[p])) == (region, argmax, hit)


def random_masks(rng, pairs, height, width):
    masks = rng.random((pairs, height, width)) < rng.random((pairs, 1, 1)) ** 2
    masks[:, rng.integers(height)] = False
    return masks


def frames_of(rng, pairs):
    start, length = rng.uniform(-0.4, 0.5, (pairs, 2)), rng.uniform(0.3, 1.4, (pairs, 2))
    return np.concatenate([start, start + length], axis=1)


def extreme_grids(count, cells, seed):
    """Maps at the ends of float32: sparse and dense, where sums and differences overflow, subnormal, not finite."""
    rng = np.random.default_rng(seed)
    grids = np.empty((count, *cells), F)
    for grid in grids:
        unit = rng.uniform(-1, 1, cells) if rng.random() < 0.3 else rng.integers(-1, 2, cells)
        unit = unit * (rng.random(cells) < rng.choice([0.02, 0.2, 1]))
        # From 1.7e38 the difference of two cells overflows, though that of two pixels between them may not.
        size = rng.choice([3.4028234e38, 1.7014e38, 1.7015e38, 1e37, 1e-36, 2e-38, 1e-42])
        grid[:] = unit * (rng.uniform(1.6e38, 1.9e38) if rng.random() < 0.5 else size)
        if rng.random() < 0.3:
            np.abs(grid, out=grid)
        if rng.random() < 0.2:
            with np.errstate(over="ignore"):
                grid += F(rng.choice([1.6e38, -1.6e38, 1e-40])) * (rng.random(cells) < 0.5)
        if rng.random() < 0.1:
            grid[tuple(rng.integers(cells))] = rng.choice([np.inf, -np.inf, np.nan])
    return grids


def any_case(data, widest):
    """A grid, a mask of at most `widest` columns, a frame and a mode."""
    cells = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    size = data.draw(st.tuples(st.integers(1, 24), st.integers(1, widest)))
    mode = data.draw(st.sampled_from(["bilinear", "align_corners", "nearest"]))
    values = data.draw(
        st.sampled_from(
            [
                st.floats(width=32),
                st.floats(0, 1, width=32),
                st.integers(0, 100).map(lambda k: k / 100),
                st.sampled_from([0.0, -0.0, 0.29, 1.0, 1.0000001]),
            ]
        )
    )
    grid = data.draw(hnp.arrays(F, cells, elements=values.map(lambda v: float(F(v)))))
    mask = data.draw(hnp.arrays(np.bool_, size))
    edge, length = st.floats(-0.5, 0.9), st.floats(0.05, 2.0)
    y, x = data.draw(edge), data.draw(edge)
    frame = np.array([[y, x, y + data.draw(length), x + data.draw(length)]])
    return grid, mask, frame, mode


def mean_cases(cells):
    """Maps float32 [40, h, w], the start of each pair's list and the lists, and the means of NumPy.

    Numbers of all sizes, subnormal ones, zeros of both signs, infinities, and sums that depend on the order.
    """
    rng = np.random.default_rng(4)
    maps = (rng.standard_normal((40, *cells)) * 10.0 ** rng.integers(-44, 38, (40, 1, 1))).astype(F)
    maps[:4] = F(1e-45) * rng.integers(0, 9, (4, *cells)).astype(F)
    maps[4:6], maps[6], maps[7, 0, 0] = F(-0.0), F(3.4028235e38), np.inf
    maps[8], maps[9], maps[10] = 1e30, -1e30, 1
    lists = [[0], [4], [4, 5], [0, 1], [3, 2, 1, 0], [6, 6], [7], [7, 8], [2, 9], [8, 9, 10], [10, 9, 8]]
    lists += rng.integers(8, 40, (60, 7)).tolist() + rng.integers(8, 40, (1, 300)).tolist()
    means = np.stack([maps[c[0]] if len(c) == 1 else maps[c].mean(axis=0, dtype=np.float64).astype(F) for c in lists])
    assert 0 < np.abs(means[3]).max() < np.finfo(F).tiny and (means[9] != means[10]).all()
    return maps, np.cumsum([0, *map(len, lists)]), np.concatenate(lists), means
