"""Counts of maps whose values are replaced by their quantiles within the map, without making these maps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .counts import Counts
from .sweep_options import LEVELS, THRESHOLDS


def quantile_counts(values: NDArray[np.float32], inside: NDArray[np.bool_]) -> Counts:
    """Counts of the quantiles of one map: the share of pixels that are smaller, divided by that share for the maximum.

    values: float32 [H, W], finite; inside: bool [H, W], the region. All quantiles have the same distribution, except
    for ties, so a threshold t marks about the largest 1 - t of the pixels in each map. Equal pixels stay equal; a
    constant map is 0, and degenerate. The counts are those of `sweep` on float32 quantiles: a quantile rises with the
    value, so each threshold is one of the map's values, and two sorts replace the ranks of all pixels. About 0.4 ms.
    """
    ordered = np.sort(values, axis=None)
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))  # the number of smaller pixels of each value
    quantiles = (first / max(first[-1], 1)).astype(np.float32)
    place = np.searchsorted(quantiles, THRESHOLDS)  # behind the last one where no pixel reaches the threshold
    within = np.sort(values[inside])
    least = np.append(ordered[first], np.float32(np.inf))[place]
    area = values.size - np.append(first, values.size)[place]
    overlap = within.size - np.searchsorted(within, least)
    constant = len(first) == 1
    argmax = 0 if constant else int(values.argmax())
    return Counts(
        area.astype(np.int32).reshape(1, LEVELS),
        overlap.astype(np.int32).reshape(1, LEVELS),
        np.array([within.size], np.int32),
        np.array([argmax], np.int32),
        np.array([not constant and inside.flat[argmax]], np.bool_),
        np.array([constant], np.bool_),
    )
