"""The mean over datasets of a number of a study."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ....metrics_gpu.statistics.bootstrap import macro_mean
from ....metrics_gpu.statistics.intervals import percentile_interval
from ....metrics_gpu.statistics.measured_numbers import Measured


def over_datasets(numbers: Iterable[Measured], level: float) -> Measured:
    """The unweighted mean of the values that are defined; of these each has replicates.

    It has an interval where each of them has one of the bootstrap: Student's, of few patients, cannot be averaged.
    """
    defined = [number for number in numbers if number.value is not None]
    replicates = [number.drawn for number in defined if number.drawn is not None]
    drawn = np.mean(replicates, axis=0) if replicates else np.zeros(0)
    enough = all(number.interval is not None and number.interval.method != "t" for number in defined) and defined
    interval = percentile_interval(drawn, level) if enough else None
    return Measured(macro_mean(number.value for number in defined), interval, drawn=drawn)
