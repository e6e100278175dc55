"""Which interval a number has, and whether it means something at all (docs/metrics.md §8.3).

One method per quantity: the bootstrap over patients; Student's t on what patients add, for a mean of few patients;
Wilson's for pointing of a class with few pairs. A number that too few patients, images of one label or models stand
behind has none.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .bootstrap import Interval, percentile_interval
from .proportions import SMALL, effective_number, wilson_interval
from .shares import Shares

__all__ = ["LEAST", "MANY_PATIENTS", "mean_interval", "meaningful", "pointing_interval"]

Float = NDArray[np.float64]

LEAST: Final = {"patients": 4, "positives": 3, "negatives": 3, "models": 4}
"""What an interval needs at least: patients with pairs; of AUC and the like patients with each label; models."""
MANY_PATIENTS: Final = 10
"""From this number of patients the bootstrap is used."""


def meaningful(**counts: int) -> bool:
    """Whether an interval of a number that rests on these counts (keys of `LEAST`) means something."""
    return all(count >= LEAST[name] for name, count in counts.items())


def mean_interval(
    drawn: Float | None, parts: Shares | None, level: float = 0.95, bounds: tuple[float, float] | None = (0.0, 1.0)
) -> Interval | None:
    """Interval of a mean over pairs, or of a difference of two.

    drawn: its bootstrap replicates. parts: what patients add to it. bounds: those of its values, None for none.
    """
    if drawn is None or parts is None or not meaningful(patients=parts.patients):
        return None
    if parts.patients >= MANY_PATIENTS:
        return percentile_interval(drawn, level)
    from scipy.stats import t

    n, value = parts.patients, float(parts.of_patients.sum())
    half = float(t.ppf(0.5 + level / 2, n - 1)) * math.sqrt(n / (n - 1) * float((parts.residuals**2).sum()))
    if half == 0:
        return None
    low, high = bounds or (-math.inf, math.inf)
    return Interval(max(value - half, low), min(value + half, high), level, "t")


def pointing_interval(
    hits: Float, patient_of: NDArray[np.intp], drawn: Float | None, level: float = 0.95
) -> Interval | None:
    """Interval of the pointing of one class.

    hits: float64 [n] in [0, 1], of its pairs. Fewer than 30 pairs or 10 patients: Wilson's, of as many pairs as they
    are worth if those of a patient are alike; of one patient none. drawn: bootstrap replicates.
    """
    patients = len(np.unique(patient_of))
    if drawn is None or patients < 2:
        return None
    if len(hits) >= SMALL and patients >= MANY_PATIENTS:
        return percentile_interval(drawn, level)
    n = effective_number(hits, patient_of)
    return wilson_interval(float(hits.mean()) * n, n, level)
