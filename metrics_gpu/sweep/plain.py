"""The sweep of protocols other than the default's, on a CPU: any normalisation and any rising thresholds.

A pixel at a time: division, then a binary search among the thresholds. About twenty times slower than `cpu`,
which knows that values lie in [0, 1] and thresholds 0.01 apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from ..compiled import compiled, readonly
from .cpu import _seen_c
from .thresholds import LEVELS

__all__ = ["sweep_plain"]

_ONE, _ZERO = np.float32(1), np.float32(0)


def _passed(m: float, thresholds: NDArray[np.float32]) -> int:
    """How many of the thresholds m passes."""
    low, high = 0, LEVELS
    while low < high:
        middle = (low + high) // 2
        if m >= thresholds[middle]:
            low = middle + 1
        else:
            high = middle
    return low


_passed_c = compiled(_passed)


def _sweep_plain(
    saliency: NDArray[np.float32],
    masks: NDArray[np.uint32],
    width: int,
    tables: NDArray[np.int32],
    y_cells: NDArray[np.int32],
    y_weights: NDArray[np.float32],
    x_cells: NDArray[np.int32],
    x_weights: NDArray[np.float32],
    normalise: int,
    thresholds: NDArray[np.float32],
    levels: NDArray[np.int32],
    single: NDArray[np.int32],
    flags: NDArray[np.bool_],
) -> None:
    pairs, height = len(masks), masks.shape[1]
    values = np.empty((height, width), np.float32)
    tally = np.empty((2, LEVELS + 1), np.int64)
    for p in range(pairs):
        grid = saliency[p]
        y_lo, y_hi, y_weight = y_cells[tables[p, 0], 0], y_cells[tables[p, 0], 1], y_weights[tables[p, 0]]
        x_lo, x_hi, x_weight = x_cells[tables[p, 1], 0], x_cells[tables[p, 1], 1], x_weights[tables[p, 1]]
        top, bottom = _seen_c(y_lo)
        left, right = _seen_c(x_lo)
        flat = top == bottom or left == right
        minimum, maximum = np.float32(np.inf), np.float32(-np.inf)
        first = 0
        for y in range(top, bottom):
            wy = y_weight[y]
            for x in range(left, right):
                wx = x_weight[x]
                a = grid[y_lo[y], x_lo[x]] * (_ONE - wx) + grid[y_lo[y], x_hi[x]] * wx
                b = grid[y_hi[y], x_lo[x]] * (_ONE - wx) + grid[y_hi[y], x_hi[x]] * wx
                v = a * (_ONE - wy) + b * wy
                flat = flat or not (abs(v) < np.inf)
                if v > maximum:
                    maximum, first = v, y * width + x
                minimum = min(minimum, v)
                values[y, x] = v
        span = maximum - minimum
        flat = flat or not (span > 0 and span < np.inf) or (normalise == 1 and not maximum > 0)
        offset = minimum if normalise == 0 else _ZERO
        scale = span if normalise == 0 else (maximum if normalise == 1 else _ONE)
        # Unseen pixels have the smallest value, all pixels of a degenerate map 0.
        rest = _passed_c(_ZERO if flat else (minimum - offset) / scale, thresholds)
        tally[:] = 0
        count = 0
        for y in range(height):
            for x in range(width):
                inside = int((masks[p, y, x // 32] >> np.uint32(x % 32)) & np.uint32(1))
                count += inside
                seen = not flat and top <= y < bottom and left <= x < right
                tally[inside, _passed_c((values[y, x] - offset) / scale, thresholds) if seen else rest] += 1
        found = 0 if flat else first
        word = masks[p, found // width, found % width // 32]
        flags[p, 0] = not flat and ((word >> np.uint32(found % width % 32)) & np.uint32(1)) != 0
        flags[p, 1] = flat
        single[p, 0], single[p, 1] = count, found
        total = total_inside = 0
        for k in range(LEVELS - 1, -1, -1):
            total += tally[0, k + 1] + tally[1, k + 1]
            total_inside += tally[1, k + 1]
            levels[p, 0, k], levels[p, 1, k] = total, total_inside


_AXIS: list[Any] = [readonly(types.int32, 3), readonly(types.float32, 2)]
sweep_plain = compiled(
    _sweep_plain,
    types.void(
        readonly(types.float32, 3),
        readonly(types.uint32, 3),
        types.int64,
        readonly(types.int32, 2),
        *(_AXIS * 2),
        types.int64,
        readonly(types.float32, 1),
        types.int32[:, :, ::1],
        types.int32[:, ::1],
        types.boolean[:, ::1],
    ),
)
"""As `cpu.sweep_batch`, with `normalise` (0 minmax, 1 max, 2 none) and rising thresholds float32 [101]."""
