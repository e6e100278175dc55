"""The fused sweep on a CPU: saliency grid and bit mask to counts, without storing the full-size map.

Per pair: (1) the grid's rows are interpolated horizontally, once; (2) exact minimum and maximum over all seen pixels;
(3) per output row the bin of each pixel, and one histogram over (bin, inside the region); (4) suffix sums.

The counts equal the canonical arithmetic's (docs/metrics.md §2 and §3): float32, horizontal before
vertical, true division, comparison with float32(k/100). Two shortcuts keep that exact:

* Step 2 computes only the rows that can hold an extreme: rounded sums and products are monotone, so the canonical
  arithmetic on the ends of two grid rows bounds every pixel between them.
* Step 3 estimates t = 100 * Mn from rows scaled beforehand: one product and one sum per pixel, no division. With
  e = 2**-24 and A = max|row value| / (max - min), estimate and canonical value differ by less than
  delta = e * (1500 A + 1000): 250 e A from the canonical products and sums, 300 e from its subtraction, division and
  thresholds, 1200 e A + 358 e from the estimate. A pixel farther than delta from every k is decided by the estimate,
  one nearer (the maximum is always near 100) by the canonical arithmetic.

No fast-math and no contraction: products and sums may not be fused, and a test looks at the machine code.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from ..compiled import compiled, readonly
from .sweep_options import LEVELS, THRESHOLDS

Float = NDArray[np.float32]
Int = NDArray[np.int32]

_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_SPREAD: Final = (_BITS * np.uint8(128)).view(np.uint64).reshape(256)  # bit i of a byte -> top bit of byte i
_ONES: Final = _BITS.sum(axis=1, dtype=np.int64)  # set bits of a byte
_PRIVATE: Final = 8  # histograms used in turn: neighbours share a bin, and a single one would wait for its last store
_UNUSED: Final = np.uint8(127)  # code of the pixels that fill a row up to whole words; bins are 0..100 and 128..228
_ONE, _HUNDRED = np.float32(1), np.float32(100)
_BIAS: Final = np.float32(128)  # in [128, 256) a float32 has 7 integer and 16 fraction bits behind a fixed exponent
_E: Final = 2.0**-24  # the largest relative error of a rounded float32, e of the bound above
_LARGEST: Final = float(np.finfo(np.float32).max)


def _blend(a: Float, b: Float, weight: float, out: Float) -> None:
    """One output row by the canonical arithmetic."""
    rest = _ONE - weight
    for x in range(len(out)):
        out[x] = a[x] * rest + b[x] * weight


def _horizontal(grid: Float, lo: Int, hi: Int, weight: Float, out: Float) -> None:
    """One grid row interpolated at the seen columns."""
    for x in range(len(lo)):
        w = weight[x]
        out[x] = grid[np.uint32(lo[x])] * (_ONE - w) + grid[np.uint32(hi[x])] * w


def _span(row: Float) -> tuple[Any, Any]:
    """Minimum and maximum; both are NaN or infinite only if a value is. As integers, since those reduce in parallel."""
    bits = row.view(np.int32)
    least, greatest = np.int32(0x7FFFFFFF), np.int32(-0x80000000)
    for x in range(len(bits)):
        key = np.int32(bits[x] ^ ((bits[x] >> np.int32(31)) & np.int32(0x7FFFFFFF)))  # ordered as the floats are
        least = min(least, key)
        greatest = max(greatest, key)
    ends = np.empty(2, np.int32)
    ends[0] = least ^ ((least >> np.int32(31)) & np.int32(0x7FFFFFFF))
    ends[1] = greatest ^ ((greatest >> np.int32(31)) & np.int32(0x7FFFFFFF))
    values = ends.view(np.float32)
    return values[0], values[1]


def _bin(value: float, minimum: float, span: float) -> int:
    """Largest k with Mn >= THRESHOLDS[k], by the canonical division and comparison."""
    m = (value - minimum) / span
    k = np.int64(m * _HUNDRED)
    while k < LEVELS - 1 and m >= THRESHOLDS[k + 1]:
        k += 1
    while k > 0 and m < THRESHOLDS[k]:
        k -= 1
    return int(k)


def _classify(base: Float, step: Float, weight: float, floor: float, estimate: Float, code: NDArray[np.uint8]) -> int:
    """Estimates a row and writes each pixel's bin; returns the smallest distance above a bin's edge in 2**-32 bins."""
    for x in range(len(code)):
        t = base[x] + step[x] * weight
        estimate[x] = t if t > floor else floor
    bits = estimate.view(np.uint32)
    nearest = np.uint32(0xFFFFFFFF)
    for x in range(len(code)):
        code[x] = np.uint8(bits[x] >> np.uint32(16))
        nearest = min(nearest, np.uint32(bits[x] << np.uint32(16)))
    return int(nearest)


def _spread(mask: NDArray[np.uint32], valid: int, out: NDArray[np.uint64]) -> int:
    """Writes a byte of 128 or 0 per pixel of a mask row, unless it is empty; returns the number of set pixels."""
    last = len(mask) - 1
    filled = mask[last] & valid
    for i in range(last):
        filled |= mask[i]
    if filled == 0:
        return 0
    count = 0
    for i in range(last + 1):
        word = np.uint32(mask[i] & valid) if i == last else mask[i]
        for j in range(4):
            byte = (word >> np.uint32(8 * j)) & np.uint32(255)
            out[4 * i + j] = _SPREAD[byte]
            count += _ONES[byte]
    return count


def _seen(lo: Int) -> tuple[int, int]:
    """First seen index and the one behind the last; equal if nothing is seen."""
    seen = np.flatnonzero(lo >= 0)
    return (0, 0) if len(seen) == 0 else (int(seen[0]), int(seen[-1]) + 1)


_blend_c = compiled(_blend)
_horizontal_c = compiled(_horizontal)
_span_c = compiled(_span)
_bin_c = compiled(_bin)
_classify_c = compiled(_classify)
_spread_c = compiled(_spread)
_seen_c = compiled(_seen)


def _extremes(rows: Float, ends: Float, lo: Int, hi: Int, weight: Float, line: Float) -> tuple[Any, Any]:
    """Minimum and maximum of the upsampled map. `ends` [h, 2] has both of each grid row, `line` is scratch."""
    height = len(lo)
    lower, upper = np.empty(height, np.float32), np.empty(height, np.float32)
    for y in range(height):
        lower[y] = ends[lo[y], 0] * (_ONE - weight[y]) + ends[hi[y], 0] * weight[y]
        upper[y] = ends[lo[y], 1] * (_ONE - weight[y]) + ends[hi[y], 1] * weight[y]
    minimum, maximum = np.float32(np.inf), np.float32(-np.inf)
    for turn in range(-2, height):  # the two most promising rows first, then all
        y = int(np.argmin(lower)) if turn == -2 else (int(np.argmax(upper)) if turn == -1 else turn)
        if lower[y] < minimum or upper[y] > maximum:
            _blend_c(rows[lo[y]], rows[hi[y]], weight[y], line)
            least, greatest = _span_c(line)
            minimum, maximum = min(minimum, least), max(maximum, greatest)
    return minimum, maximum


_extremes_c = compiled(_extremes)


def _upsample(grid: Float, axes: Any, used: Int, rows: Float, values: Float) -> tuple[Any, ...]:
    """Upsamples a grid into `values` [H, W] by the canonical arithmetic; `rows` [h, W] is scratch, `used` names tables.

    Returns the seen part (top, bottom, left, right), minimum, maximum, place of the first maximum, and degenerate.
    """
    _, y_cells, y_weights, x_cells, x_weights = axes
    (y_lo, y_hi), y_weight = y_cells[used[0]], y_weights[used[0]]
    (x_lo, x_hi), x_weight = x_cells[used[1]], x_weights[used[1]]
    top, bottom = _seen_c(y_lo)
    left, right = _seen_c(x_lo)
    flat = top == bottom or left == right
    minimum, maximum, first = np.float32(np.inf), np.float32(-np.inf), 0
    for r in range(len(grid)):
        _horizontal_c(grid[r], x_lo[left:right], x_hi[left:right], x_weight[left:right], rows[r, left:right])
    for y in range(top, bottom):
        _blend_c(rows[y_lo[y], left:right], rows[y_hi[y], left:right], y_weight[y], values[y, left:right])
        for x in range(left, right):
            v = values[y, x]
            flat = flat or not (abs(v) < np.inf)
            if v > maximum:
                maximum, first = v, y * values.shape[1] + x
            minimum = min(minimum, v)
    span = maximum - minimum
    return (top, bottom, left, right), minimum, maximum, first, flat or not (span > 0 and span < np.inf)


upsample_c = compiled(_upsample)


def _sweep(saliency: Float, masks: NDArray[np.uint32], width: int, axes: Any) -> tuple[Int, Int, NDArray[np.bool_]]:
    tables, y_cells, y_weights, x_cells, x_weights = axes
    (pairs, h, _), (_, height, stride) = saliency.shape, masks.shape
    levels, single = np.empty((2, pairs, LEVELS), np.int32), np.empty((2, pairs), np.int32)
    flags = np.empty((2, pairs), np.bool_)
    valid = np.uint32(np.uint32(0xFFFFFFFF) >> np.uint32(32 * stride - width))
    rows_all, scaled_all = np.empty(h * width, np.float32), np.empty(h * width, np.float32)
    ends, used = np.empty((h, 2), np.float32), np.empty(h, np.bool_)
    line_all, step_all = np.empty(width, np.float32), np.empty(width, np.float32)
    code_words, doubt_words = np.empty((width + 7) // 8, np.uint64), np.empty((width + 7) // 8, np.uint64)
    inside_words = np.empty(4 * stride, np.uint64)
    code_all, doubt_all, inside_all = code_words.view(np.uint8), doubt_words.view(np.uint8), inside_words.view(np.uint8)
    tally = np.empty(_PRIVATE * 256, np.int32)

    for p in range(pairs):
        y_lo, y_hi, y_weight = y_cells[tables[p, 0], 0], y_cells[tables[p, 0], 1], y_weights[tables[p, 0]]
        x_lo, x_hi, x_weight = x_cells[tables[p, 1], 0], x_cells[tables[p, 1], 1], x_weights[tables[p, 1]]
        top, bottom = _seen_c(y_lo)
        left, right = _seen_c(x_lo)
        n = right - left
        rows, scaled = rows_all[: h * n].reshape(h, n), scaled_all[: h * n].reshape(h, n)
        line, step = line_all[:n], step_all[:n]
        lo, hi, weight = y_lo[top:bottom], y_hi[top:bottom], y_weight[top:bottom]

        # Step 1: only the grid rows that an output row uses, as a value elsewhere must not make the map degenerate.
        flat = n == 0 or top == bottom
        reach = np.float64(0)
        minimum = maximum = span = np.float32(0)
        used[:] = False
        for y in range(bottom - top):
            used[lo[y]] = used[hi[y]] = True
        for r in range(h):
            if used[r] and not flat:
                _horizontal_c(saliency[p, r], x_lo[left:right], x_hi[left:right], x_weight[left:right], rows[r])
                ends[r, 0], ends[r, 1] = _span_c(rows[r])
                flat = not (abs(ends[r, 0]) < np.inf and abs(ends[r, 1]) < np.inf)
                reach = max(reach, max(abs(ends[r, 0]), abs(ends[r, 1])))
        if not flat:  # step 2
            minimum, maximum = _extremes_c(rows, ends, lo, hi, weight, line)
            span = maximum - minimum
            flat = not (span > 0 and span < np.inf)
        flags[0, p], flags[1, p] = False, flat

        # Step 3; values are moved up by delta, so those in doubt have a fraction below 2 delta: `near`, in 2**-32 bins.
        count, peak = 0, -1
        tally[:] = 0
        if not flat:
            scale = _HUNDRED / span
            delta = _E * (1500 * (reach / span) + 1000)
            # Rows reach farther than the pixels between them: their distance from the minimum can overflow.
            exact = not (delta < 0.25 and scale < np.inf and 2 * reach <= _LARGEST)
            offset = _BIAS + np.float32(delta)
            edge = min(65535.0, np.ceil(131072.0 * delta) + 2)
            near = np.uint32(np.uint32(edge) << np.uint32(16))
            floor = _BIAS + np.float32(edge) / np.float32(65536)
            if not exact:
                for r in range(h):
                    for x in range(n if used[r] else 0):
                        scaled[r, x] = (rows[r, x] - minimum) * scale + offset
            bits = line.view(np.uint32)
            code, inside = code_all[:n], inside_all[left:right]
            code_all[n:] = _UNUSED
            doubt = doubt_all[:n]
            doubt_all[n:] = 0
            doubt_if_exact = np.uint8(1) if exact else np.uint8(0)
            previous_lo = previous_hi = -1
        for y in range(height):
            marked = _spread_c(masks[p, y], valid, inside_words)
            count += marked
            if flat or y < top or y >= bottom:
                continue
            a, b, w = lo[y - top], hi[y - top], weight[y - top]
            nearest = np.uint32(0)
            if not exact:
                if a != previous_lo or b != previous_hi:
                    for x in range(n):
                        step[x] = scaled[b, x] - scaled[a, x]
                    previous_lo, previous_hi = a, b
                nearest = np.uint32(_classify_c(scaled[a], step, w, floor, line, code))
            if nearest < near:  # only pixels in doubt divide; the maximum, near 100, is always among them
                rest = _ONE - w
                for x in range(n):
                    doubt[x] = np.uint8(1) if np.uint32(bits[x] << np.uint32(16)) < near else doubt_if_exact
                for i in range((n + 7) // 8):
                    if doubt_words[i] == 0:
                        continue
                    for x in range(8 * i, min(8 * i + 8, n)):
                        if doubt[x] != 0:
                            v = rows[a, x] * rest + rows[b, x] * w
                            code[x] = _bin_c(v, minimum, span)
                            if v == maximum and peak < 0:
                                peak = y * width + left + x
                                flags[0, p] = marked > 0 and inside[x] != 0
            if marked > 0:  # the top bit means inside the region: one histogram then counts both
                for x in range(n):
                    code[x] |= inside[x]
            for i in range((n + 7) // 8):
                eight = code_words[i]
                for j in range(8):
                    tally[np.uint64(256 * j) + ((eight >> np.uint64(8 * j)) & np.uint64(255))] += 1

        single[0, p], single[1, p] = count, max(peak, 0)
        levels[0, p, 0], levels[1, p, 0] = height * width, count  # threshold 0 marks every pixel, unseen ones too
        total = total_inside = 0
        for k in range(LEVELS - 1, 0, -1):
            for j in range(_PRIVATE):
                total += tally[256 * j + k] + tally[256 * j + k + 128]
                total_inside += tally[256 * j + k + 128]
            levels[0, p, k], levels[1, p, k] = total, total_inside
    return levels, single, flags


_AXES = types.Tuple([readonly(types.int32, 2), *([readonly(types.int32, 3), readonly(types.float32, 2)] * 2)])
_COUNTS = types.Tuple([types.int32[:, :, ::1], types.int32[:, ::1], types.boolean[:, ::1]])
sweep_batch = compiled(_sweep, _COUNTS(readonly(types.float32, 3), readonly(types.uint32, 3), types.int64, _AXES))
"""The kernel behind `sweep.sweep`, which checks and prepares its arguments; all arrays are C-contiguous.

saliency float32 [P, h, w]; masks uint32 [P, H, words], lowest bit first; width; `Tables.arrays`: int32 [P, 2], which
axis table a pair uses (vertical, horizontal), and for each axis cells int32 [tables, 2, length] (lo, hi) and weights
float32 [tables, length]. Returns levels int32 [2, P, 101] (area, overlap), single int32 [2, P] (region, argmax), flags
bool [2, P] (hit, degenerate). Holds no lock and no state: threads may call it side by side."""
