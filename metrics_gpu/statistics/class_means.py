"""Means of any values over pairs, per class and over classes, with bootstrap replicates (docs/metrics.md §8).

Used for statistics that `grounding` does not have: whole curves, shares of pixels, a calibrated Dice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .bootstrap import Draws, macro_curve
from .exact_sums import ratio
from .intervals import percentile_intervals

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClassMeans:
    """K means: in row 0 the estimate, in rows 1 to B its replicates, NaN where there is no pair or none was drawn.

    classes: float64 [1 + B, C, K]. macro: float64 [1 + B, K], the unweighted mean over the classes that have one.
    """

    classes: Float
    macro: Float


def class_means(
    values: Float, class_of: NDArray[np.integer], classes: int, draws: Draws, patient_of: NDArray[np.intp]
) -> ClassMeans:
    """Means of `values` float64 [P, K] over the pairs of each class.

    class_of: integers [P] in 0..classes-1. draws: of the patients of the dataset. patient_of: integers [P].
    Raises ValueError if they do not fit together.
    """
    class_of = np.asarray(class_of)
    if values.ndim != 2 or class_of.shape != (len(values),):
        raise ValueError(f"values [P, K] and class_of [P] do not fit: {values.shape} and {class_of.shape}")
    if len(class_of) and not (class_of.min() >= 0 and class_of.max() < classes):
        raise ValueError(f"class_of must lie in 0..{classes - 1}, got {class_of.min()}..{class_of.max()}")
    patient_of = draws.check(patient_of, len(values))
    means = np.full((1 + draws.replicates, classes, values.shape[1]), np.nan)
    for c in range(classes):
        pairs = np.flatnonzero(class_of == c)
        sums = draws.sums(patient_of[pairs], np.column_stack([np.ones(len(pairs)), values[pairs]]))
        means[:, c] = ratio(sums[:, 1:], sums[:, :1])
    if not classes:
        return ClassMeans(means, np.full((1 + draws.replicates, values.shape[1]), np.nan))
    return ClassMeans(means, macro_curve([means[:, c] for c in range(classes)]))


def band(replicates: Float, level: float = 0.95) -> tuple[Float, Float]:
    """Pointwise percentile limits, two float64 [K], of replicates [B, K]; NaN where no replicate is defined.

    Raises ValueError unless 0 < level < 1.
    """
    low, high = np.full((2, replicates.shape[1]), np.nan)
    for column, interval in enumerate(percentile_intervals(replicates, level)):
        if interval is not None:
            low[column], high[column] = interval.low, interval.high
    return low, high
