"""Unions of boxes as masks, counted without drawing them: the integers of a map cut at one level.

A box covers the columns int(x1) .. int(x2) - 1 of its image, at least one, and the rows in the same way, clipped to the
image. Grid pixel i samples native pixel floor(i * side / grid), so a span of native pixels is a span of the grid. A
union that meets no sample keeps the one grid pixel that contains its centroid (docs/datasets.md §0.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numba import types

from ..compiled import compiled, readonly
from ..sweep.masks import GRID
from .boxes import BoxLists, Int, Rectangles

_SIDE: Final = GRID[0]
_I1, _I2 = readonly(types.int64, 1), readonly(types.int64, 2)


@dataclass(frozen=True, eq=False)
class UnionCounts:
    """int64 [P] each: pixels of the union of the given boxes, of its part in the region, and of the region."""

    area: Int
    overlap: Int
    region: Int

    @property
    def union(self) -> Int:
        """int64 [P]: pixels of the given boxes or the region."""
        return self.area + self.region - self.overlap

    @property
    def dice(self) -> Any:
        """float64 [P]; 0 where both unions are empty."""
        return 2.0 * self.overlap / np.maximum(self.area + self.region, 1)

    @property
    def iou(self) -> Any:
        """float64 [P]; 0 where both unions are empty."""
        return self.overlap / np.maximum(self.union, 1)

    @property
    def inside(self) -> Any:
        """float64 [P]: the share of the given union that lies in the region; 0 where it is empty."""
        return self.overlap / np.maximum(self.area, 1)


def pixel_rectangles(lists: BoxLists, sizes: Int) -> Rectangles:
    """The native pixels of boxes. sizes: int64 [P, 2], width and height of each image."""
    ends = np.trunc(lists.boxes).astype(np.int64)
    limit = sizes[lists.owner]
    high = np.minimum(np.maximum(ends[:, 2:], ends[:, :2] + 1), limit)
    return Rectangles(np.hstack([np.maximum(ends[:, :2], 0), high]), lists.offsets)


def on_grid(native: Rectangles, sizes: Int, side: int = _SIDE) -> Rectangles:
    """The same lists on the grid of `side` x `side` pixels."""
    spans = np.ascontiguousarray(-(-native.spans * side // np.tile(sizes, 2)[native.owner]))
    _keep_small(np.ascontiguousarray(native.spans), native.offsets, np.ascontiguousarray(sizes), side, spans)
    return Rectangles(spans, native.offsets)


def union_counts(given: Rectangles, truth: Rectangles) -> UnionCounts:
    """Counts of each pair. Raises ValueError for lists of different numbers of pairs."""
    pairs = len(truth.offsets) - 1
    if len(given.offsets) - 1 != pairs:
        raise ValueError(f"{len(given.offsets) - 1} lists of given boxes for {pairs} pairs")
    out = np.zeros((3, pairs), np.int64)
    spans, true = np.ascontiguousarray(given.spans), np.ascontiguousarray(truth.spans)
    _count(spans, given.offsets, true, truth.offsets, out)
    return UnionCounts(out[0], out[1], out[2])


def _cells_of(spans: Any, first: Any, stop: Any, xs: Any, ys: Any) -> Any:
    """bool [len(ys), len(xs)]: the cells between the sorted cuts that the spans cover, by sums of differences."""
    cover = np.zeros((len(ys) + 1, len(xs) + 1), np.int32)
    for k in range(first, stop):
        if spans[k, 0] >= spans[k, 2] or spans[k, 1] >= spans[k, 3]:
            continue
        left, right = np.searchsorted(xs, spans[k, 0]), np.searchsorted(xs, spans[k, 2])
        top, bottom = np.searchsorted(ys, spans[k, 1]), np.searchsorted(ys, spans[k, 3])
        cover[top, left] += 1
        cover[top, right] -= 1
        cover[bottom, left] -= 1
        cover[bottom, right] += 1
    for i in range(len(ys) + 1):
        for j in range(1, len(xs) + 1):
            cover[i, j] += cover[i, j - 1]
    for i in range(1, len(ys) + 1):
        for j in range(len(xs) + 1):
            cover[i, j] += cover[i - 1, j]
    return cover


_cells = compiled(_cells_of)


def _count_loop(given: Any, given_offsets: Any, truth: Any, truth_offsets: Any, out: Any) -> None:
    for p in range(len(given_offsets) - 1):
        a, b = given_offsets[p], given_offsets[p + 1]
        c, d = truth_offsets[p], truth_offsets[p + 1]
        n = b - a + d - c
        xs, ys = np.empty(2 * n, np.int64), np.empty(2 * n, np.int64)
        for k in range(b - a):
            xs[2 * k], xs[2 * k + 1] = given[a + k, 0], given[a + k, 2]
            ys[2 * k], ys[2 * k + 1] = given[a + k, 1], given[a + k, 3]
        for k in range(d - c):
            at = 2 * (b - a + k)
            xs[at], xs[at + 1] = truth[c + k, 0], truth[c + k, 2]
            ys[at], ys[at + 1] = truth[c + k, 1], truth[c + k, 3]
        xs.sort()
        ys.sort()
        answered, true = _cells(given, a, b, xs, ys), _cells(truth, c, d, xs, ys)
        for i in range(2 * n - 1):
            high = ys[i + 1] - ys[i]
            if high == 0:
                continue
            for j in range(2 * n - 1):
                pixels = high * (xs[j + 1] - xs[j])
                if answered[i, j] > 0:
                    out[0, p] += pixels
                    if true[i, j] > 0:
                        out[1, p] += pixels
                if true[i, j] > 0:
                    out[2, p] += pixels


_count = compiled(_count_loop, types.void(_I2, _I1, _I2, _I1, types.int64[:, ::1]))


def _keep_small_loop(native: Any, offsets: Any, sizes: Any, side: Any, spans: Any) -> None:
    for p in range(len(offsets) - 1):
        a, b = offsets[p], offsets[p + 1]
        seen, real = False, False
        for k in range(a, b):
            seen |= spans[k, 0] < spans[k, 2] and spans[k, 1] < spans[k, 3]
            real |= native[k, 0] < native[k, 2] and native[k, 1] < native[k, 3]
        if seen or not real:
            continue
        xs = np.sort(np.concatenate((native[a:b, 0], native[a:b, 2])))
        ys = np.sort(np.concatenate((native[a:b, 1], native[a:b, 3])))
        cover = _cells(native, a, b, xs, ys)
        pixels = 0
        across = 0  # sums of 2 * x + 1 and 2 * y + 1 over the pixels
        down = 0
        for i in range(len(ys) - 1):
            for j in range(len(xs) - 1):
                if cover[i, j] > 0:
                    wide, high = xs[j + 1] - xs[j], ys[i + 1] - ys[i]
                    pixels += wide * high
                    across += high * wide * (xs[j] + xs[j + 1])
                    down += wide * high * (ys[i] + ys[i + 1])
        for k in range(a, b):
            spans[k] = 0
        column, row = across * side // (2 * pixels * sizes[p, 0]), down * side // (2 * pixels * sizes[p, 1])
        spans[a, 0], spans[a, 1], spans[a, 2], spans[a, 3] = column, row, column + 1, row + 1


_keep_small = compiled(_keep_small_loop, types.void(_I2, _I1, _I2, types.int64, types.int64[:, ::1]))
