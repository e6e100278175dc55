"""Overlaps of every given box with every true one of its pair, and two ways to match them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from ..compiled import compiled, readonly
from .boxes import BoxLists, Float, Int, offsets_of

_F1, _F2, _I1 = readonly(types.float64, 1), readonly(types.float64, 2), readonly(types.int64, 1)
_B1 = readonly(types.boolean, 1)

HIT: Final = 1
IGNORED: Final = 2
"""What `matched_in_order` says of a box that a crowd covers and that matches no other true box."""


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
    offsets = offsets_of(given.lengths * truth.lengths)
    values = np.empty(offsets[-1])
    marked = np.zeros(len(truth.boxes), np.bool_) if crowd is None else crowd
    boxes, true = np.ascontiguousarray(given.boxes), np.ascontiguousarray(truth.boxes)
    _fill(boxes, given.offsets, true, truth.offsets, marked, values)
    return BoxOverlaps(values, offsets, given.offsets, truth.offsets)


def matched(table: BoxOverlaps, thresholds: Sequence[float]) -> Int:
    """int64 [T, P]: the size of the largest one-to-one matching of given and true boxes with IoU >= threshold."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    # One graph of all pairs: no edge joins two of them, so that each keeps its own largest matching.
    owner = np.repeat(np.arange(len(table.offsets) - 1), np.diff(table.given))
    ends = offsets_of(np.diff(table.truth)[owner])
    true = np.arange(ends[-1]) + np.repeat(table.truth[:-1][owner] - ends[:-1], np.diff(ends))
    sizes = np.zeros((len(thresholds), len(table.offsets) - 1), np.int64)
    for row, threshold in zip(sizes, thresholds, strict=True):
        edges = table.values >= threshold
        if edges.any():
            starts = offsets_of(edges)[ends]
            shape = int(table.given[-1]), int(table.truth[-1])
            graph = csr_array((np.ones(starts[-1], np.bool_), true[edges], starts), shape=shape)
            partner = maximum_bipartite_matching(graph, perm_type="column")
            row[:] = np.bincount(owner[partner >= 0], minlength=len(row))
    return sizes


def matched_in_order(table: BoxOverlaps, thresholds: Sequence[float], *, above: bool) -> NDArray[np.int8]:
    """int8 [T, N]: `HIT`, `IGNORED` or 0 for each given box, at each threshold of the IoU.

    The boxes of a pair take one after the other the free true box of the largest IoU that reaches the threshold, of
    equal ones the last; `above`: lies above it, of equal ones the first.
    """
    outcome = np.zeros((len(thresholds), int(table.given[-1])), np.int8)
    arrays = table.values, table.offsets, table.given, table.truth
    _take(arrays, np.array(thresholds, np.float64), above, outcome)
    return outcome


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


def _take_loop(table: Any, thresholds: Any, above: Any, outcome: Any) -> None:
    values, offsets, given, truth = table
    # The value of a crowd is negative (see `overlaps`), so that it matches none and stays free.
    for p in range(len(offsets) - 1):
        n, m = given[p + 1] - given[p], truth[p + 1] - truth[p]
        free = np.empty(m, np.bool_)
        for t in range(len(thresholds)):
            free[:] = True
            for i in range(n):
                best, at, crowded = thresholds[t], -1, False
                for j in range(m):
                    value = values[offsets[p] + i * m + j]
                    if free[j] and (value > best or (value == best and not above)):
                        best, at = value, j
                    crowded |= -value >= thresholds[t]
                if at >= 0:
                    free[at] = False
                    outcome[t, given[p] + i] = HIT
                elif crowded:
                    outcome[t, given[p] + i] = IGNORED


_take = compiled(_take_loop, types.void(types.Tuple([_F1, _I1, _I1, _I1]), _F1, types.boolean, types.int8[:, ::1]))
