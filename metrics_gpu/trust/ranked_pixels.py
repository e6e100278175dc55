"""The compiled loops of `localisation`: each map upsampled and its pixels ranked once, then scored on several regions.

The arithmetic of maps is the sweep's to the last bit (docs/metrics.md §2): ranks are those of the canonical scaled
map. Scaled values lie in [0, 1], so their bits order as they do, and the upper two bits are 0: three passes of a radix
sort of 10 bits each rank all pixels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from ..compiled import compiled, readonly
from ..sweep.cpu import _AXES, _blend_c, _horizontal_c, _seen_c

__all__ = ["score_regions"]

_DIGIT = np.uint64(10)
_PLACE = np.uint64(16)  # bits of a pixel's place in the grid of 224 x 224


def _ranked(keys: NDArray[np.uint64], other: NDArray[np.uint64], counts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """The keys in falling order of their bits 16 to 45; both arrays are overwritten."""
    mask = np.uint64((1 << 10) - 1)
    for turn in range(3):
        shift = _PLACE + _DIGIT * np.uint64(turn)
        counts[:] = 0
        for i in range(len(keys)):
            counts[(keys[i] >> shift) & mask] += 1
        total = np.int64(0)
        for digit in range(len(counts) - 1, -1, -1):
            count = counts[digit]
            counts[digit] = total
            total += count
        for i in range(len(keys)):
            digit = (keys[i] >> shift) & mask
            other[counts[digit]] = keys[i]
            counts[digit] += 1
        keys, other = other, keys
    return keys


_ranked_c = compiled(_ranked)


def _ties(values: NDArray[np.float32], starts: NDArray[np.int32], stops: NDArray[np.int32]) -> float:
    """Where the equal values around each place of falling values begin, and end (exclusive); returns their sum."""
    n, total = len(values), 0.0
    for i in range(n):
        starts[i] = starts[i - 1] if i and values[i] == values[i - 1] else i
        total += np.float64(values[i])
    for i in range(n - 1, -1, -1):
        stops[i] = stops[i + 1] if i + 1 < n and values[i] == values[i + 1] else i + 1
    return total


def _walk(
    values: NDArray[np.float32],
    places: NDArray[np.uint16],
    region: NDArray[np.uint8],
    inside: NDArray[np.uint8],
    marked: NDArray[np.int32],
) -> tuple[int, float]:
    """Marks the pixels of a region in falling order, and lists them; returns their number and the sum of values."""
    positives, within = 0, 0.0
    for i in range(len(values)):
        place = np.uint32(places[i])
        mark = (region[place >> np.uint32(3)] >> (place & np.uint32(7))) & np.uint32(1)
        inside[i] = mark
        marked[positives] = i
        positives += mark
    for i in range(positives):
        within += np.float64(values[marked[i]])
    return positives, within


def _curves(
    marked: NDArray[np.int32], starts: NDArray[np.int32], stops: NDArray[np.int32]
) -> tuple[float, float, float]:
    """Average precision, the trapezoid under the same curve, and ROC AUC (NaN without a pixel outside)."""
    positives, n = len(marked), len(starts)
    negatives = n - positives
    precision, area = 0.0, 0.0
    ranked = np.int64(0)  # twice the number of (inside, outside) pixels in the right order; a tie is half of one
    hits = 0
    while hits < positives:
        known, start, stop = hits, starts[marked[hits]], stops[marked[hits]]
        while hits < positives and marked[hits] < stop:
            hits += 1
        new, here = hits - known, hits / stop
        precision += new * here
        area += new * (here + (known / start if start else 1.0)) / 2
        ranked += np.int64(new) * np.int64(2 * negatives - (stop - hits) - (start - known))
    roc = ranked / (2.0 * positives * negatives) if negatives else np.nan
    return precision / positives, area / positives, roc


def _contrast(values: NDArray[np.float32], inside: NDArray[np.uint8], mean: float, rest: float) -> float:
    """(mean inside - mean outside) / root of the sum of both variances; NaN where both parts are constant."""
    n = len(values)
    spread, count, spread_rest, count_rest = 0.0, 0, 0.0, 0
    low, high, low_rest, high_rest = np.float32(2), np.float32(-1), np.float32(2), np.float32(-1)
    for i in range(n):
        value = values[i]
        if inside[i]:
            spread += (value - mean) ** 2
            count += 1
            low, high = min(low, value), max(high, value)
        else:
            spread_rest += (value - rest) ** 2
            count_rest += 1
            low_rest, high_rest = min(low_rest, value), max(high_rest, value)
    if count_rest == 0 or (low == high and low_rest == high_rest):
        return float(np.nan)
    return float((mean - rest) / np.sqrt(spread / count + spread_rest / count_rest))


_ties_c = compiled(_ties)
_walk_c = compiled(_walk)
_curves_c = compiled(_curves)
_contrast_c = compiled(_contrast)


def _score_regions(
    saliency: NDArray[np.float32],
    axes: Any,
    regions: NDArray[np.uint8],
    starts: NDArray[np.int64],
    region_of: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    tables, y_cells, y_weights, x_cells, x_weights = axes
    (maps, h, _), height, width = saliency.shape, y_cells.shape[2], x_cells.shape[2]
    out = np.empty((len(region_of), 7))
    flags = np.empty(maps, np.bool_)
    rows = np.empty((h, width), np.float32)
    line_all = np.empty((height, width), np.float32)
    keys_all, other_all = np.empty(height * width, np.uint64), np.empty(height * width, np.uint64)
    bits_all, places_all = np.empty(height * width, np.uint32), np.empty(height * width, np.uint16)
    inside_all, marked_all = np.empty(height * width, np.uint8), np.empty(height * width + 1, np.int32)
    starts_all, stops_all = np.empty(height * width, np.int32), np.empty(height * width, np.int32)
    counts = np.empty(1 << 10, np.int64)
    for m in range(maps):
        y_lo, y_hi, y_weight = y_cells[tables[m, 0], 0], y_cells[tables[m, 0], 1], y_weights[tables[m, 0]]
        x_lo, x_hi, x_weight = x_cells[tables[m, 1], 0], x_cells[tables[m, 1], 1], x_weights[tables[m, 1]]
        top, bottom = _seen_c(y_lo)
        left, right = _seen_c(x_lo)
        n = (bottom - top) * (right - left)
        flat = n == 0
        minimum, maximum = np.float32(np.inf), np.float32(-np.inf)
        first = 0
        for r in range(h):
            _horizontal_c(saliency[m, r], x_lo[left:right], x_hi[left:right], x_weight[left:right], rows[r, left:right])
        for y in range(top, bottom):
            line = line_all[y]
            _blend_c(rows[y_lo[y], left:right], rows[y_hi[y], left:right], y_weight[y], line[left:right])
            for x in range(left, right):
                v = line[x]
                flat = flat or not (abs(v) < np.inf)
                if v > maximum:
                    maximum, first = v, y * width + x
                minimum = min(minimum, v)
        span = maximum - minimum
        flat = flat or not (span > 0 and span < np.inf)
        flags[m] = flat
        keys, bits, places, inside = keys_all[:n], bits_all[:n], places_all[:n], inside_all[:n]
        values = bits.view(np.float32)
        i = 0
        for y in range(top, bottom):
            for x in range(left, right):
                values[i] = np.float32(0) if flat else (line_all[y, x] - minimum) / span
                keys[i] = (np.uint64(bits[i]) << _PLACE) | np.uint64(y * width + x)
                i += 1
        if not flat:
            keys = _ranked_c(keys, other_all[:n], counts)
        for i in range(n):
            bits[i] = np.uint32(keys[i] >> _PLACE)
            places[i] = np.uint16(keys[i] & np.uint64(0xFFFF))
        begins, ends = starts_all[:n], stops_all[:n]
        total = _ties_c(values, begins, ends)
        for place in range(starts[m], starts[m + 1]):
            row, region = out[place], regions[region_of[place]]
            positives, within = _walk_c(values, places, region, inside, marked_all)
            row[:] = 0.0
            row[6] = positives / n if n else 0.0
            if positives == 0:
                row[2] = 0.5
                continue
            row[0], row[1], row[2] = _curves_c(marked_all[:positives], begins, ends)
            row[3], row[4] = row[6], np.nan if positives == n else 0.0
            if not flat:
                row[3] = within / total
                rest = (total - within) / (n - positives) if positives < n else 0.0
                row[4] = _contrast_c(values, inside, within / positives, rest)
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
