"""The sweep of protocols other than the default, on a CPU: any normalisation and any rising thresholds.

One pixel at a time: division, then a binary search among the thresholds. About twenty times slower than `cpu`, which
requires values in [0, 1] and thresholds 0.01 apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from ..compiled import compiled, readonly
from .cpu import _AXES, _COUNTS, upsample_c
from .sweep_options import LEVELS

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
    axes: Any,
    normalise: int,
    thresholds: NDArray[np.float32],
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_]]:
    (pairs, h, _), height = saliency.shape, masks.shape[1]
    levels, single = np.empty((2, pairs, LEVELS), np.int32), np.empty((2, pairs), np.int32)
    flags = np.empty((2, pairs), np.bool_)
    rows, values = np.empty((h, width), np.float32), np.empty((height, width), np.float32)
    tally = np.empty((2, LEVELS + 1), np.int64)
    for p in range(pairs):
        (top, bottom, left, right), minimum, maximum, first, flat = upsample_c(
            saliency[p], axes, axes[0][p], rows, values
        )
        span = maximum - minimum
        flat = flat or (normalise == 1 and not maximum > 0)
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
        peak = 0 if flat else first
        word = masks[p, peak // width, peak % width // 32]
        flags[0, p] = not flat and ((word >> np.uint32(peak % width % 32)) & np.uint32(1)) != 0
        flags[1, p] = flat
        single[0, p], single[1, p] = count, peak
        total = total_inside = 0
        for k in range(LEVELS - 1, -1, -1):
            total += tally[0, k + 1] + tally[1, k + 1]
            total_inside += tally[1, k + 1]
            levels[0, p, k], levels[1, p, k] = total, total_inside
    return levels, single, flags


sweep_plain = compiled(
    _sweep_plain,
    _COUNTS(
        readonly(types.float32, 3),
        readonly(types.uint32, 3),
        types.int64,
        _AXES,
        types.int64,
        readonly(types.float32, 1),
    ),
)
"""As `cpu.sweep_batch`, with `normalise` (0 minmax, 1 max, 2 none) and rising thresholds float32 [101]."""
