"""The loops of similarity: ranks of a map's pixels, and the structural similarity of two maps."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from ..compiled import compiled, readonly

_BITS: Final = 11  # three digits cover the 32 bits of a float32
_BUCKETS: Final = 1 << _BITS
_SIGN: Final = np.uint32(0x80000000)
_ALL: Final = np.uint32(0xFFFFFFFF)


def _ranks(maps: NDArray[np.float32]) -> NDArray[np.float64]:
    """Radix sort of the values' bits, three digits of 11; then equal neighbours share the mean of their ranks."""
    count, pixels = maps.shape
    ranks = np.empty((count, pixels), np.float64)
    keys, other = np.empty(pixels, np.uint32), np.empty(pixels, np.uint32)
    order, moved = np.empty(pixels, np.int32), np.empty(pixels, np.int32)
    for m in range(count):
        bits = (maps[m] + np.float32(0)).view(np.uint32)  # -0 becomes 0
        for i in range(pixels):
            keys[i] = bits[i] ^ (_ALL if bits[i] & _SIGN else _SIGN)  # ordered as the floats are
            order[i] = i
        for turn in range(3):
            shift = np.uint32(_BITS * turn)
            starts = np.zeros(_BUCKETS + 1, np.int32)
            for i in range(pixels):
                starts[((keys[i] >> shift) & np.uint32(_BUCKETS - 1)) + 1] += 1
            for bucket in range(_BUCKETS):
                starts[bucket + 1] += starts[bucket]
            for i in range(pixels):
                digit = (keys[i] >> shift) & np.uint32(_BUCKETS - 1)
                to = starts[digit]
                starts[digit] = to + 1
                other[to] = keys[i]
                moved[to] = order[i]
            keys, other = other, keys
            order, moved = moved, order
        first = 0
        while first < pixels:
            last = first
            while last + 1 < pixels and keys[last + 1] == keys[first]:
                last += 1
            rank = 0.5 * (first + last) + 1
            for i in range(first, last + 1):
                ranks[m, order[i]] = rank
            first = last + 1
    return ranks


def _box(rows: NDArray[np.float64], width: int, out: NDArray[np.float64]) -> None:
    """Means of the columns' sums over windows of `width` neighbours."""
    for x in range(len(out)):
        total = 0.0
        for i in range(width):
            total += rows[x + i]
        out[x] = total / (width * width)


_box_c = compiled(_box)


def _ssim(
    first: NDArray[np.float32], second: NDArray[np.float32], width: int, c1: float, c2: float
) -> NDArray[np.float64]:
    count, height, across = first.shape
    inner = across - width + 1
    sums = np.empty((5, across), np.float64)
    means = np.empty((5, inner), np.float64)
    similarity = np.empty(count, np.float64)
    sample = width * width / (width * width - 1.0)
    for m in range(count):
        total = 0.0
        for top in range(height - width + 1):
            sums[:] = 0
            for y in range(top, top + width):
                for x in range(across):
                    a, b = np.float64(first[m, y, x]), np.float64(second[m, y, x])
                    sums[0, x] += a
                    sums[1, x] += b
                    sums[2, x] += a * a
                    sums[3, x] += b * b
                    sums[4, x] += a * b
            for k in range(5):
                _box_c(sums[k], width, means[k])
            for x in range(inner):
                a, b = means[0, x], means[1, x]
                both = sample * (means[4, x] - a * b)
                spread = sample * (means[2, x] + means[3, x] - a * a - b * b)
                total += (2 * a * b + c1) * (2 * both + c2) / ((a * a + b * b + c1) * (spread + c2))
        similarity[m] = total / ((height - width + 1) * inner)
    return similarity


mean_ranks = compiled(_ranks, types.float64[:, ::1](readonly(types.float32, 2)))
"""Ranks float64 [n, m] from 1 of maps float32 [n, m] without NaN; equal values share the mean of their ranks."""

mean_ssim = compiled(
    _ssim,
    types.float64[::1](
        readonly(types.float32, 3), readonly(types.float32, 3), types.int64, types.float64, types.float64
    ),
)
"""The mean over all whole windows of the structural similarity of maps float32 [n, h, w], float64 [n].

Arguments: both maps, the side of the uniform window, and the constants c1 and c2 of the definition, in that order."""
