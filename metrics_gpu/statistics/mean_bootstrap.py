"""Bootstrap replicates of any mean over pairs, per class and over classes (docs/metrics.md §8.2).

For statistics that `grounding_bootstrap` does not know: whole curves, shares of pixels, a calibrated Dice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..grounding.search import macro_curve
from .bootstrap import Draws, percentile_intervals

__all__ = ["MeanReplicates", "band", "class_means", "macro_means", "mean_replicates"]

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MeanReplicates:
    """Replicates of K means, NaN where no pair was drawn.

    classes: float64 [B, C, K]. macro: float64 [B, K], the mean over the classes of which a pair was drawn.
    """

    classes: Float
    macro: Float


def class_means(values: Float, class_of: NDArray[np.integer], classes: int) -> Float:
    """float64 [C, K]: mean of each class's rows of `values` [P, K], NaN for a class without pairs."""
    means = np.full((classes, values.shape[1]), np.nan)
    for c in range(classes):
        rows = values[class_of == c]
        if len(rows):
            means[c] = rows.mean(axis=0)
    return means


def macro_means(means: Float) -> Float:
    """float64 [K]: unweighted mean of [C, K] over the classes that have pairs; NaN without any."""
    return macro_curve(list(means)) if len(means) else np.full(means.shape[1], np.nan)


def mean_replicates(
    values: Float, class_of: NDArray[np.integer], classes: int, draws: Draws, patient_of: NDArray[np.intp]
) -> MeanReplicates:
    """Replicates of `class_means` and `macro_means`.

    values: float64 [P, K], of each pair. class_of: integers [P] in 0..classes-1. draws: of the patients of the dataset.
    patient_of: integers [P]. Raises ValueError if they do not fit together.
    """
    class_of = np.asarray(class_of)
    if values.ndim != 2 or class_of.shape != (len(values),):
        raise ValueError(f"values [P, K] and class_of [P] do not fit: {values.shape} and {class_of.shape}")
    if len(class_of) and not (class_of.min() >= 0 and class_of.max() < classes):
        raise ValueError(f"class_of must lie in 0..{classes - 1}, got {class_of.min()}..{class_of.max()}")
    patient_of = draws.check(patient_of, len(values))
    found = np.full((draws.replicates, classes, values.shape[1]), np.nan)
    for c in range(classes):
        pairs = np.flatnonzero(class_of == c)
        sums = draws.sums(patient_of[pairs], np.column_stack([np.ones(len(pairs)), values[pairs]]))
        with np.errstate(invalid="ignore", divide="ignore"):
            found[:, c] = sums[:, 1:] / sums[:, :1]
    if not classes:
        return MeanReplicates(found, np.full((draws.replicates, values.shape[1]), np.nan))
    return MeanReplicates(found, macro_curve([found[:, c] for c in range(classes)]))


def band(replicates: Float, level: float = 0.95) -> tuple[Float, Float]:
    """Pointwise percentile limits, two float64 [K], of replicates [B, K]; NaN where no replicate is defined.

    Raises ValueError unless 0 < level < 1.
    """
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, got {level}")
    low, high = np.full((2, replicates.shape[1]), np.nan)
    for place, interval in enumerate(percentile_intervals(replicates, level)):
        if interval is not None:
            low[place], high[place] = interval.low, interval.high
    return low, high
