"""Sums and means of pairs that are exact: the same bits in any order of the pairs, in a run of one piece or merged from
shards, on any number of threads and with any BLAS (docs/metrics.md §8.1)."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

_UNITS: Final = 2.0**32


def exact_values(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """float64 of the shape of `values`: each rounded to a multiple of 2^-32, half to even.

    Such values are integers in units of 2^-32, so their sums and their products with integer weights are exact in
    float64 as long as no partial sum reaches 2^21: two million drawn pairs of at most 1. NaN and infinity stay.
    """
    rounded: NDArray[np.float64] = np.multiply(values, _UNITS, dtype=np.float64)
    np.rint(rounded, out=rounded)
    rounded /= _UNITS
    return rounded


def ratio(part: NDArray[np.number], whole: NDArray[np.number]) -> NDArray[np.float64]:
    """part / whole, float64, broadcast; NaN where the whole is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(whole == 0, np.nan, part / whole), np.float64)


def exact_mean(values: NDArray[np.floating]) -> float | None:
    """The mean of the values [N] that are not NaN, of a sum that is rounded once; None if none is left."""
    defined = values[~np.isnan(values)].tolist()
    return math.fsum(defined) / len(defined) if defined else None
