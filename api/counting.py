"""Maps and regions -> counts at all thresholds, and scores of single pairs computed from the counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .metrics_gpu.grounding.best_thresholds import at_level
from .metrics_gpu.sweep.counts import Counts, dice_curves, iou_curves
from .metrics_gpu.sweep.pointing import Ties, pointing_hits
from .metrics_gpu.sweep.sweep import sweep
from .metrics_gpu.sweep.sweep_options import THRESHOLDS, level

__all__ = ["best_threshold", "dice", "iou", "pointing", "sweep"]


def pointing(counts: Counts, ties: Ties = "first") -> NDArray[np.float64]:
    """Whether the maximum of each map lies in its region: float64 [P], 1 for a hit and 0 for a miss.

    ties: if several pixels are the maximum, the `first` in row-major order decides, `any` of them, or the share of
    them inside (`expected`). A map that is constant or not finite is a miss.
    """
    return pointing_hits(counts, ties)


def dice(counts: Counts, tau: float | None = None) -> NDArray[np.float64]:
    """Dice of each pair, float64 [P] at the threshold `tau`, or float64 [P, 101] at 0.00, 0.01, ..., 1.00 without it.

    A value is rounded to a multiple of 2^-32, so that sums of pairs are exact (docs/metrics.md §8.1). Raises ValueError
    for any other threshold, and when a pair has no region.
    """
    return _at(dice_curves(counts), tau)


def iou(counts: Counts, tau: float | None = None) -> NDArray[np.float64]:
    """Intersection over union of each pair, in the same form as `dice`."""
    return _at(iou_curves(counts), tau)


def best_threshold(counts: Counts, tau_from: float = 0.0) -> float:
    """The threshold, at least `tau_from`, with the largest mean Dice of all pairs; of equal ones the smallest.

    It is chosen on the same pairs, so a score of these pairs at it is in-sample. Raises ValueError when there is no
    pair, or a pair has no region.
    """
    if not len(counts):
        raise ValueError("there is no pair to choose a threshold for")
    first = level(tau_from)
    return round(float(THRESHOLDS[first + int(np.argmax(dice_curves(counts).mean(axis=0)[first:]))]), 2)


def _at(curves: NDArray[np.float64], tau: float | None) -> NDArray[Any]:
    return curves if tau is None else at_level(curves, level(tau))
