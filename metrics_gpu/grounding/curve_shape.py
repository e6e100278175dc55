"""How sharply a score depends on the threshold, and how peaked the maps are; both from counts alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..sweep.counts import Counts
from ..sweep.sweep_options import LEVELS, level

LEVEL_VALUES: Final[NDArray[np.float64]] = np.append((np.arange(LEVELS - 1) + 0.5) / 100, 0.9975)
"""float64 [101]: the value that represents a level, the middle of its interval [k/100, (k+1)/100). The last level
holds 1 itself and is represented by the value halfway between its neighbour and 1, so that log(1 - v) exists."""


@dataclass(frozen=True, eq=False)
class NearBest:
    """The unbroken range of thresholds around the best that reach `1 - within` of its score, for each leading axis.

    best, low, high: levels, intp. width: (high - low) / 100, float64. -1 and NaN where a curve is not defined.
    """

    best: NDArray[np.intp]
    low: NDArray[np.intp]
    high: NDArray[np.intp]
    width: NDArray[np.float64]


def near_best(curves: NDArray[np.float64], within: float = 0.05, tau_from: float = 0.0) -> NearBest:
    """Where curves float64 [..., 101] stay near their maximum (the smallest of equal ones).

    within: the share of the best score that may be lost. tau_from: the first threshold of the search, as in
    `GroundingOptions`. A narrow range means that the threshold must be tuned well; a range that starts at 0 means that
    the best score is hardly above the all-ones mask. Raises ValueError unless 0 <= within < 1 and `tau_from` is a
    threshold.
    """
    if not 0 <= within < 1:
        raise ValueError(f"the share of the best score that may be lost lies in [0, 1), got {within}")
    defined: NDArray[np.bool_] = np.asarray(~np.isnan(curves).any(axis=-1))
    filled = np.where(defined[..., None], curves, 0.0)
    first = level(tau_from)
    best = first + np.argmax(filled[..., first:], axis=-1)
    index = np.arange(curves.shape[-1])
    enough = (filled >= (1 - within) * filled[..., first:].max(axis=-1, keepdims=True)) & (index >= first)
    short_before = np.where(~enough & (index < best[..., None]), index, -1)
    short_after = np.where(~enough & (index > best[..., None]), index, curves.shape[-1])
    low, high = short_before.max(axis=-1) + 1, short_after.min(axis=-1) - 1
    best, low, high = (np.where(defined, value, -1).astype(np.intp) for value in (best, low, high))
    return NearBest(best, low, high, np.where(defined, (high - low) / 100, np.nan))


def level_histogram(counts: Counts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pixels of each level, and how many of them lie inside the region: two int64 [P, 101].

    Level k holds the normalised values from k/100 to below (k+1)/100, the last one 1. Raises ValueError for counts
    whose first threshold does not mark every pixel (another normalisation or comparison than the default's), since
    values below it are not known.
    """
    if not counts.marks_every_pixel:
        raise ValueError("these counts do not mark every pixel at their first threshold, so values are missing")
    table = np.stack([counts.area, counts.overlap]).astype(np.int64)
    table[:, :, :-1] -= table[:, :, 1:]
    return table[0], table[1]


def map_entropy(counts: Counts) -> NDArray[np.float64]:
    """Entropy of each normalised map read as a distribution over pixels, over its maximum: float64 [P] in [0, 1].

    1: a constant map, as a degenerate one; near 0: all in one pixel. Computed from levels, so exact to their width.
    Raises ValueError as `level_histogram`.
    """
    pixels, _ = level_histogram(counts)
    if not len(pixels):
        return np.zeros(0)
    mass = pixels @ LEVEL_VALUES
    share = LEVEL_VALUES / mass[:, None]
    highest = np.log(np.maximum(pixels.sum(axis=1), 2))
    entropy: NDArray[np.float64] = -(pixels * share * np.log(share)).sum(axis=1) / highest
    return entropy
