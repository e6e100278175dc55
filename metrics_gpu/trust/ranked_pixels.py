"""The compiled loops of `localisation`: each map upsampled and its pixels ranked once, then scored on several regions.

The arithmetic of maps is the sweep's to the last bit (docs/metrics.md §2): the canonical scaled map is ranked. Scaled
values lie in [0, 1], so their bits order as they do, and the upper two bits are 0: three passes of a radix sort of 10
bits each rank all pixels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from ..compiled import compiled, readonly
from ..sweep.cpu import _AXES, upsample_c

_DIGIT = np.uint64(10)
_PLACE = np.uint64(16)  # bits of a pixel's place in the grid of 224 x 224
_CANCELS = 1e-4  # share of the whole spread below which the rest of it has lost digits


def _ranked(keys: NDArray[np.uint64], other: NDArray[np.uint64], counts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The keys in falling order of their bits 16 to 45; both arrays are overwritten. counts: int64 [3, 1024]."""
    mask = np.uint64((1 << 10) - 1)
    counts[:] = 0
    for i in range(len(keys)):
        bits = keys[i] >> _PLACE
        counts[0, bits & mask] += 1
        counts[1, (bits >> _DIGIT) & mask] += 1
        counts[2, bits >> np.uint64(20)] += 1
    for turn in range(3):
        shift = _PLACE + _DIGIT * np.uint64(turn)
        starts, total = counts[turn], np.int64(0)
        for digit in range(len(starts) - 1, -1, -1):
            count = starts[digit]
            starts[digit] = total
            total += count
        for i in range(len(keys)):
            digit = (keys[i] >> shift) & mask
            other[starts[digit]] = keys[i]
            starts[digit] += 1
        keys, other = other, keys
    return keys


_ranked_c = compiled(_ranked)


def _walk(
    values: NDArray[np.float32],
    rank_of: NDArray[np.int32],
    region: NDArray[np.uint8],
    flags: NDArray[np.uint8],
    marked: NDArray[np.int32],
) -> tuple[int, float]:
    """Lists the places of a region's pixels among the falling values; returns their number and the sum of values.

    Only the pixels of the region are looked at: `flags` has a bit for each place, and is left without any.
    """
    for byte in range(len(region)):
        bits = np.int32(region[byte])
        if bits:
            for bit in range(8):
                if (bits >> bit) & 1:
                    rank = rank_of[8 * byte + bit]
                    if rank >= 0:
                        flags[rank >> 3] |= np.uint8(1 << (rank & 7))
    positives, within = 0, 0.0
    for byte in range(len(flags)):
        bits = np.int32(flags[byte])
        if bits:
            flags[byte] = 0
            for bit in range(8):
                marked[positives] = 8 * byte + bit
                positives += int(bits >> bit) & 1
    for i in range(positives):
        within += np.float64(values[marked[i]])
    return positives, within


def _curves(values: NDArray[np.float32], marked: NDArray[np.int32]) -> tuple[float, float, float]:
    """Average precision, the trapezoid under the same curve, and ROC AUC (NaN without a pixel outside)."""
    positives, n = len(marked), len(values)
    negatives = n - positives
    precision, area = 0.0, 0.0
    ranked = np.int64(0)  # twice the number of (inside, outside) pixels in the right order; a tie is half of one
    hits = 0
    while hits < positives:
        earlier_hits, start = hits, marked[hits]
        stop, value = start + 1, values[start]
        while start > 0 and values[start - 1] == value:
            start -= 1
        while stop < n and values[stop] == value:
            stop += 1
        while hits < positives and marked[hits] < stop:
            hits += 1
        new, here = hits - earlier_hits, hits / stop
        precision += new * here
        area += new * (here + (earlier_hits / start if start else 1.0)) / 2
        ranked += np.int64(new) * np.int64(2 * negatives - (stop - hits) - (start - earlier_hits))
    roc = ranked / (2.0 * positives * negatives) if negatives else np.nan
    return precision / positives, area / positives, roc


def _spread(values: NDArray[np.float32]) -> tuple[float, float, float]:
    """The sum, the mean, and the sum of squared distances from it."""
    total, one, two, n = 0.0, 0.0, 0.0, len(values)
    for i in range(n):
        total += np.float64(values[i])
    mean = total / n if n else 0.0
    for i in range(0, n - 1, 2):  # two sums, which need not wait for one another
        one += (values[i] - mean) ** 2
        two += (values[i + 1] - mean) ** 2
    if n % 2:
        one += (values[n - 1] - mean) ** 2
    return total, mean, one + two


def _contrast(
    values: NDArray[np.float32],
    marked: NDArray[np.int32],
    mean: float,
    rest: float,
    overall: tuple[float, float],
) -> float:
    """(mean inside - mean outside) / root of the sum of both variances; NaN where both parts are constant.

    overall: the mean of all values and the sum of their squared distances from it. What lies outside is the whole
    without the inside, or is added up where that would cancel.
    """
    n, count = len(values), len(marked)
    centre, spread_all = overall
    first, last = 0, 0
    while first < count and marked[first] == first:
        first += 1
    while last < count and marked[count - 1 - last] == n - 1 - last:
        last += 1
    if count == n:
        return float(np.nan)
    constant = values[marked[0]] == values[marked[count - 1]]
    if constant and values[first] == values[n - 1 - last]:
        return float(np.nan)
    spread, inside = 0.0, 0.0
    for i in range(count):
        value = values[marked[i]]
        spread += (value - mean) ** 2
        inside += (value - centre) ** 2
    spread_rest = (spread_all - inside) - (n - count) * (rest - centre) ** 2
    if spread_rest < _CANCELS * spread_all:
        spread_rest, next_marked = 0.0, 0
        for i in range(n):
            if next_marked < count and marked[next_marked] == i:
                next_marked += 1
            else:
                spread_rest += (values[i] - rest) ** 2
    return float((mean - rest) / np.sqrt(spread / count + spread_rest / (n - count)))


_walk_c = compiled(_walk)
_curves_c = compiled(_curves)
_spread_c = compiled(_spread)
_contrast_c = compiled(_contrast)


def _score_regions(
    saliency: NDArray[np.float32],
    axes: Any,
    regions: NDArray[np.uint8],
    starts: NDArray[np.int64],
    region_of: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    (maps, h, _), height, width = saliency.shape, axes[1].shape[2], axes[3].shape[2]
    out = np.empty((len(region_of), 7))
    flags = np.empty(maps, np.bool_)
    rows = np.empty((h, width), np.float32)
    upsampled = np.empty((height, width), np.float32)
    keys_all, other_all = np.empty(height * width, np.uint64), np.empty(height * width, np.uint64)
    bits_all, rank_of = np.empty(height * width, np.uint32), np.empty(height * width, np.int32)
    flags_all, marked_all = np.zeros(height * width // 8, np.uint8), np.empty(height * width + 1, np.int32)
    counts = np.empty((3, 1 << 10), np.int64)
    for m in range(maps):
        (top, bottom, left, right), minimum, maximum, first, flat = upsample_c(
            saliency[m], axes, axes[0][m], rows, upsampled
        )
        n, span = (bottom - top) * (right - left), maximum - minimum
        flags[m] = flat
        keys, bits = keys_all[:n], bits_all[:n]
        values = bits.view(np.float32)
        i = 0
        for y in range(top, bottom):
            for x in range(left, right):
                values[i] = np.float32(0) if flat else (upsampled[y, x] - minimum) / span
                keys[i] = (np.uint64(bits[i]) << _PLACE) | np.uint64(y * width + x)
                i += 1
        if not flat:
            keys = _ranked_c(keys, other_all[:n], counts)
        if n < len(rank_of):
            rank_of[:] = -1
        for i in range(n):
            bits[i] = np.uint32(keys[i] >> _PLACE)
            rank_of[keys[i] & np.uint64(0xFFFF)] = i
        total, centre, spread = _spread_c(values)
        for output in range(starts[m], starts[m + 1]):
            row, region = out[output], regions[region_of[output]]
            positives, within = _walk_c(values, rank_of, region, flags_all, marked_all)
            row[:] = 0.0
            row[6] = positives / n if n else 0.0
            if positives == 0:
                row[2] = 0.5
                continue
            row[0], row[1], row[2] = _curves_c(values, marked_all[:positives])
            row[3], row[4] = row[6], np.nan if positives == n else 0.0
            if not flat:
                row[3] = within / total
                rest = (total - within) / (n - positives) if positives < n else 0.0
                row[4] = _contrast_c(values, marked_all[:positives], within / positives, rest, (centre, spread))
                row[5] = np.float64((region[first >> 3] >> np.uint8(first & 7)) & 1)
    return out, flags


score_regions = compiled(
    _score_regions,
    types.Tuple([types.float64[:, ::1], types.boolean[::1]])(
        readonly(types.float32, 3),
        _AXES,
        readonly(types.uint8, 2),
        readonly(types.int64, 1),
        readonly(types.int64, 1),
    ),
)
"""The kernel behind `localisation.localise`, which checks and prepares its arguments; all arrays are C-contiguous.

saliency float32 [N, h, w]; `Tables.arrays` of 224 x 224 pixels; regions uint8 [Q, 6272], lowest bit first; starts int64
[N + 1], the first of the M scores of each map; region_of int64 [M]. Returns float64 [M, 7], the scores of
`Localisation` in their order, and bool [N], which maps are degenerate. Threads may call it side by side.
"""
