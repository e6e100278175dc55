"""Changes of the grey levels of a native image before the resize (docs/datasets.md §0.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ImageError

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


def stretch(values: NDArray[np.integer]) -> NDArray[np.uint8]:
    """uint8: linear from [min, max] to [0, 255], rounded half to even; a constant image becomes zeros."""
    low, high = int(values.min()), int(values.max())
    if low == high:
        return np.zeros(values.shape, np.uint8)
    if low < 0 or high > 65535:
        raise ImageError("its pixels have more than 16 bits")
    table = np.zeros(high + 1, np.uint8)
    table[low:] = np.rint((np.arange(low, high + 1) - low) / (high - low) * 255.0)
    return np.asarray(table[values], np.uint8)


def stretch_stored(values: NDArray[np.integer]) -> NDArray[np.uint8]:
    """uint8 of the same shape: the stored values of one image from [minimum, maximum] to 0..255, truncated, as BioViL's
    loader does it; in a colour image [H, W, C] over all channels. A constant image becomes zeros.

    Raises ImageError for values of more than 16 bits.
    """
    low, high = int(values.min()), int(values.max())
    if low == high:
        return np.zeros(values.shape, np.uint8)
    if high - low > 65535:
        raise ImageError("its pixels have more than 16 bits")
    # Computed for every value between the extremes, not for every pixel, and in the loader's order: divide, multiply.
    table = (np.arange(high - low + 1, dtype=np.float64) / float(high - low) * 255.0).astype(np.uint8)
    return np.asarray(np.take(table, values.astype(np.int32) - low))
