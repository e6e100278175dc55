"""A number of a study with its interval and its replicates, and the mean of several over datasets."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.grounding.scores import Grounding
from ....metrics_gpu.statistics.bootstrap import macro_mean
from ....metrics_gpu.statistics.intervals import Interval, percentile_interval
from ...results.numbers.fields import Sample, grounding_interval


@dataclass(frozen=True, eq=False)
class Estimate:
    """A number, None if it is not defined, with its interval and its replicates float64 [B]."""

    value: float | None
    interval: Interval | None
    drawn: NDArray[np.float64]


def grounding_estimate(
    grounding: Grounding, key: str, value: float | None, name: str, sample: Sample, level: float
) -> Estimate:
    """The `value` that a field of grounding has for a class, or without a name for their mean; the pairs have draws."""
    assert grounding.drawn is not None
    drawn = grounding.drawn.of(key, name or "macro")
    return Estimate(value, grounding_interval(grounding, key, name, sample, level), drawn)


def over_datasets(estimates: Iterable[Estimate], level: float) -> Estimate:
    """The unweighted mean of the values that are defined.

    It has an interval where each of them has one of the bootstrap: Student's, of few patients, cannot be averaged.
    """
    defined = [estimate for estimate in estimates if estimate.value is not None]
    drawn = np.mean([estimate.drawn for estimate in defined], axis=0) if defined else np.zeros(0)
    enough = all(each.interval is not None and each.interval.method != "t" for each in defined) and defined
    interval = percentile_interval(drawn, level) if enough else None
    return Estimate(macro_mean(estimate.value for estimate in defined), interval, drawn)
