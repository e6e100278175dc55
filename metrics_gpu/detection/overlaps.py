"""Overlaps of every given box with every true one of its pair, and the largest matching."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from ..compiled import compiled, readonly
from .boxes import BoxLists, Float, Int

_F1, _F2, _I1 = readonly(types.float64, 1), readonly(types.float64, 2), readonly(types.int64, 1)
_B1 = readonly(types.boolean, 1)


@dataclass(frozen=True, eq=False)
class BoxOverlaps:
    """values: float64 [sum of n * m], row-major tables of each pair's n given by m true boxes; offsets: int64 [P + 1].

    given, truth: the offsets of both lists. The continuous corners count, without a pixel more; boxes without area have
    0.
    """

    values: Float
    offsets: Int
    given: Int
    truth: Int


def overlaps(given: BoxLists, truth: BoxLists, crowd: NDArray[np.bool_] | None = None) -> BoxOverlaps:
    """The table of every pair. Raises ValueError for lists of different numbers of pairs.

    crowd: bool, of each true box; the value of one that is marked is not the IoU but the share of the given box that it
    covers, as COCO compares with a crowd, times -1.
    """
    if len(given) != len(truth):
        raise ValueError(f"{len(given)} lists of given boxes for {len(truth)} pairs")
    offsets = np.concatenate([[0], np.cumsum(given.lengths * truth.lengths)]).astype(np.int64)
    values = np.empty(offsets[-1])
    marked = np.zeros(len(truth.boxes), np.bool_) if crowd is None else crowd
    boxes, true = np.ascontiguousarray(given.boxes), np.ascontiguousarray(truth.boxes)
    _fill(boxes, given.offsets, true, truth.offsets, marked, values)
    return BoxOverlaps(values, offsets, given.offsets, truth.offsets)


def matched(table: BoxOverlaps, thresholds: Sequence[float]) -> Int:
    """int64 [T, P]: the size of the largest one-to-one matching of given and true boxes with IoU >= threshold."""
    found = np.zeros((len(thresholds), len(table.offsets) - 1), np.int64)
    _matched(table.values, table.offsets, table.given, table.truth, np.array(thresholds, np.float64), found)
    return found


def _fill_loop(given: Any, given_offsets: Any, truth: Any, truth_offsets: Any, crowd: Any, out: Any) -> None:
    at = 0
    for p in range(len(given_offsets) - 1):
        for i in range(given_offsets[p], given_offsets[p + 1]):
            a = given[i]
            for j in range(truth_offsets[p], truth_offsets[p + 1]):
                b = truth[j]
                wide = min(a[2], b[2]) - max(a[0], b[0])
                high = min(a[3], b[3]) - max(a[1], b[1])
                both = max(wide, 0.0) * max(high, 0.0)
                all_of = (a[2] - a[0]) * (a[3] - a[1])
                if crowd[j]:
                    both = -both
                else:
                    all_of = all_of + (b[2] - b[0]) * (b[3] - b[1]) - both
                out[at] = both / all_of if all_of > 0.0 else 0.0
                at += 1


_fill = compiled(_fill_loop, types.void(_F2, _I1, _F2, _I1, _B1, types.float64[::1]))


def _matched_loop(values: Any, offsets: Any, given_offsets: Any, truth_offsets: Any, thresholds: Any, out: Any) -> None:
    # Augmenting paths, depth first on a stack of given boxes: `turn` is the next true box to try for each of them.
    for p in range(len(offsets) - 1):
        n = given_offsets[p + 1] - given_offsets[p]
        m = truth_offsets[p + 1] - truth_offsets[p]
        if n == 0 or m == 0:
            continue
        holder = np.empty(m, np.int64)
        seen = np.empty(m, np.bool_)
        stack = np.empty(n + 1, np.int64)
        turn = np.empty(n, np.int64)
        reached = np.empty(n + 1, np.int64)
        for t in range(len(thresholds)):
            holder[:] = -1
            size = 0
            for start in range(n):
                seen[:] = False
                stack[0] = start
                turn[start] = 0
                depth = 1
                while depth > 0:
                    i = stack[depth - 1]
                    j = turn[i]
                    if j == m:
                        depth -= 1
                        continue
                    turn[i] = j + 1
                    if seen[j] or values[offsets[p] + i * m + j] < thresholds[t]:
                        continue
                    seen[j] = True
                    reached[depth - 1] = j
                    if holder[j] < 0:
                        for d in range(depth):
                            holder[reached[d]] = stack[d]
                        size += 1
                        break
                    stack[depth] = holder[j]
                    turn[holder[j]] = 0
                    depth += 1
            out[t, p] = size


_matched = compiled(_matched_loop, types.void(_F1, _I1, _I1, _I1, _F1, types.int64[:, ::1]))
