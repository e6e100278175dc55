"""Changes of the grey levels of a native image before the resize (docs/datasets.md §0.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["equalise_histogram"]

_BINS = 256


def equalise_histogram(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A uint8 image with its histogram equalised, as the RSNA scripts of MedKLIP and MAVL do it.

    Equal to `255 * skimage.exposure.equalize_hist(grey / 255)` truncated to uint8, bit for bit: 256 bins from the least
    to the greatest value, the cumulative share at bin centres, linear interpolation between them.
    """
    # Computed for the at most 256 levels that occur, not for every pixel: the same arithmetic per value.
    counts = np.bincount(grey.reshape(-1), minlength=256)
    levels = np.flatnonzero(counts)
    values = levels / 255.0
    binned, edges = np.histogram(values, bins=_BINS, weights=counts[levels])
    share = binned.cumsum() / float(binned.sum())
    table = np.zeros(256, np.uint8)
    table[levels] = (255.0 * np.interp(values, (edges[:-1] + edges[1:]) / 2.0, share)).astype(np.uint8)
    return np.asarray(table[grey], np.uint8)
