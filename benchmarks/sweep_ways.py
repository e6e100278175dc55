"""Ways to count a finished map at the 101 thresholds that the sweep is compared with; all give the same integers.

Each takes a normalised float32 map with values in [0, 1] and a bool mask of one shape, and returns the overlap and the
area at every threshold. Torch and Numba are imported by the ways that use them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from xbench_fast.metrics_gpu.sweep.sweep_options import THRESHOLDS

__all__ = ["WAYS"]

LEVELS = len(THRESHOLDS)
BEYOND = np.append(THRESHOLDS, np.float32(2))


def logical_loop(normal, mask):
    """As in research code: a comparison, an `and`, an `or` and the sums for Dice and IoU per threshold."""
    overlap, area, scores = np.empty(LEVELS, np.int64), np.empty(LEVELS, np.int64), np.empty((LEVELS, 2))
    for k, tau in enumerate(THRESHOLDS):
        marked = normal >= tau
        overlap[k] = np.logical_and(marked, mask).sum()
        area[k] = marked.sum()
        union = np.logical_or(marked, mask).sum()
        scores[k] = 2 * overlap[k] / (area[k] + mask.sum()), overlap[k] / union
    return overlap, area


def count_loop(normal, mask):
    """The same loop with care: one comparison of the map and one of the region's pixels, each counted as bits."""
    inside = normal[mask]
    area = np.array([np.count_nonzero(normal >= tau) for tau in THRESHOLDS])
    overlap = np.array([np.count_nonzero(inside >= tau) for tau in THRESHOLDS])
    return overlap, area


def sorted_search(normal, mask):
    """Sorts the map and the region's pixels, and looks the thresholds up."""
    values, inside = np.sort(normal, axis=None), np.sort(normal[mask])
    area = values.size - np.searchsorted(values, THRESHOLDS)
    overlap = inside.size - np.searchsorted(inside, THRESHOLDS)
    return overlap, area


def bin_counts(normal, mask):
    """One pass: bins, corrected at their edges, counted inside and outside the region."""
    bins = (normal * np.float32(LEVELS - 1)).astype(np.intp)
    bins += normal >= BEYOND[bins + 1]
    bins -= normal < THRESHOLDS[bins]
    return _from_above(np.bincount((bins + LEVELS * mask).ravel(), minlength=2 * LEVELS).reshape(2, LEVELS))


def torch_histogram(normal, mask):
    """torch.histc of exact bins, since its own bins are not exact at their edges."""
    import torch

    edges, values, region = torch.from_numpy(THRESHOLDS.copy()), torch.from_numpy(normal), torch.from_numpy(mask)
    bins = torch.bucketize(values, edges, right=True, out_int32=True) - 1 + LEVELS * region
    table = torch.histc(bins.float(), 2 * LEVELS, -0.5, 2 * LEVELS - 0.5)
    return _from_above(table.long().reshape(2, LEVELS).numpy())


def numba_loop(normal, mask):
    """Fifteen lines of compiled Python: a bin for each pixel, corrected at its edges, and a histogram."""
    return _from_above(_compiled()(normal, mask))


@cache
def _compiled() -> Callable[[Any, Any], Any]:
    import numba

    thresholds, beyond, levels = THRESHOLDS.copy(), BEYOND, LEVELS

    @numba.njit
    def count(normal, mask):
        table = np.zeros((2, levels), np.int64)
        for y in range(normal.shape[0]):
            for x in range(normal.shape[1]):
                value = normal[y, x]
                k = int(value * np.float32(100))
                if value >= beyond[k + 1]:
                    k += 1
                elif value < thresholds[k]:
                    k -= 1
                table[int(mask[y, x]), k] += 1
        return table

    found: Callable[[Any, Any], Any] = count
    return found


def _from_above(table):
    """Overlap and area at each threshold, from the pixels of each bin outside and inside the region."""
    outside, inside = table[:, ::-1].cumsum(axis=1)[:, ::-1]
    return inside, inside + outside


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "logical loop": logical_loop,
    "count_nonzero loop": count_loop,
    "sort, searchsorted": sorted_search,
    "bincount": bin_counts,
    "torch.histc": torch_histogram,
    "Numba loop": numba_loop,
}
"""Name -> function, the usual way first."""
