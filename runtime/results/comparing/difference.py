"""The difference of one number between two results, its interval and its test (docs/metrics.md §8.4).

Means over pairs are tested by sign flips by patient, AUC by DeLong's method by patient. A number whose threshold was
chosen on the pairs it is scored on is not tested. No other module of `runtime` subtracts or tests two results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from dataclasses import field as field_of
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.statistics.bootstrap import micro_mean
from ....metrics_gpu.statistics.intervals import Interval
from ....metrics_gpu.statistics.measured_numbers import Measured, Parts
from ..numbers.cell_values import CellValues
from ..numbers.fields import RECOGNITION

Float = NDArray[np.float64]

TESTS: Final = (
    "p: two-sided, of sign flips by patient, of AUC by DeLong's method by patient; <: no pattern was as extreme; -: no "
    "test, of a number whose threshold was chosen on the same pairs, of AUPRC, and of an AUC with fewer than 3 "
    "patients of a label",
    "p (Holm): corrected for m tests",
)
"""How differences are tested, for the notes of tables."""


@dataclass(frozen=True, kw_only=True)
class Difference(Measured):
    """One number of two results on what both have, `minuend` minus `reference`, as fractions.

    field: of `results.numbers.fields`; name: a class or a stratum, empty for the mean over classes. n: pairs, or
    labels, of both. drawn_reference: float64 [B], replicates of the reference, NaN where undefined.
    """

    field: str
    name: str = ""
    value: float
    minuend: float
    reference: float
    drawn_reference: Float | None = field_of(default=None, repr=False, compare=False)

    def quotient(self, level: float = 0.95) -> tuple[float, Interval] | None:
        """minuend / reference with its paired bootstrap interval; None where the difference has no bootstrap interval,
        or the reference is 0 in the value or a replicate."""
        from ....metrics_gpu.statistics.intervals import percentile_interval

        below, gaps = self.drawn_reference, self.drawn
        known = self.interval is not None and self.interval.method == "bootstrap" and self.reference > 0
        if not known or below is None or gaps is None or (below <= 0).any():
            return None
        interval = percentile_interval(1 + gaps / below, level)
        return None if interval is None else (self.minuend / self.reference, interval)


def subtract(
    value: CellValues, reference: CellValues, field: str, name: str = "", level: float = 0.95, against: str = ""
) -> Difference | None:
    """A number of one cell minus that of another on the same rows; None if one of them does not have it.

    against: the number of the other, if it is another field. The test follows in `corrected`, since it depends on the
    number of tests.
    """
    against = against or field
    a, b = value.number(field, name), reference.number(against, name)
    if a.value is None or b.value is None:
        return None
    difference = Difference(
        field=field,
        name=name,
        n=value.count(field, name),
        value=a.value - b.value,
        minuend=a.value,
        reference=b.value,
    )
    if value.sample is None:
        return difference
    if a.drawn is not None and b.drawn is not None:
        difference = replace(difference, drawn=a.drawn - b.drawn, drawn_reference=b.drawn)
    names, seed = value.sample.names, value.sample.seed
    if field in RECOGNITION:
        one, two = value.auc_parts(name), reference.auc_parts(name)
        if field == "auc" and one is not None and two is not None:
            return _compared(replace(difference, parts=Parts(names, one - two, seed, ranked=True)), level)
        return _resampled(difference, level) if a.interval and b.interval else difference
    first, second = value.shares(field, name), reference.shares(against, name)
    if first is None or second is None:
        return difference
    from ....metrics_gpu.statistics.intervals import mean_interval

    shares = first.minus(second)
    interval = mean_interval(difference.drawn, shares, level, None)
    tested = value.out_of_sample(field) and reference.out_of_sample(against)
    parts = Parts(names, shares.of_patients, seed) if tested else None
    return replace(difference, interval=interval, parts=parts)


def averaged(differences: Sequence[Difference], weights: Sequence[float], level: float, **fields: Any) -> Difference:
    """The mean of differences on several datasets, whose patients are drawn independently.

    fields: those of the mean that are not the first one's.
    """
    total = sum(weights)
    minuend = micro_mean([item.minuend for item in differences], weights)
    reference = micro_mean([item.reference for item in differences], weights)
    assert minuend is not None and reference is not None  # every difference has both
    means = {"value": minuend - reference, "minuend": minuend, "reference": reference}
    mean = Difference(**{"field": differences[0].field, **means, **fields})
    kept = [item.parts for item in differences if item.parts is not None]
    if len(kept) == len(differences):
        names = tuple(name for item in kept for name in item.names)
        added = [item.added * (weight / total) for item, weight in zip(kept, weights, strict=True)]
        mean = replace(mean, parts=Parts(names, np.concatenate(added), kept[0].seed, kept[0].ranked))
        if kept[0].ranked:
            return _compared(mean, level)
    gaps = [item.drawn for item in differences if item.drawn is not None]
    if len(gaps) < len(differences):
        return mean
    stack, weight = np.stack(gaps), np.array(weights, np.float64)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = np.nansum(stack * weight, axis=0) / (weight * ~np.isnan(stack)).sum(axis=0)
    mean = replace(mean, drawn=drawn)
    bootstrapped = all(item.interval is not None and item.interval.method == "bootstrap" for item in differences)
    return _resampled(mean, level) if bootstrapped else mean


def _resampled(difference: Difference, level: float) -> Difference:
    from ....metrics_gpu.statistics.intervals import percentile_interval

    assert difference.drawn is not None  # where it is called
    return replace(difference, interval=percentile_interval(difference.drawn, level))


def _compared(difference: Difference, level: float) -> Difference:
    """The same with DeLong's interval and p."""
    from ....metrics_gpu.recognition.delong import auc_difference

    assert difference.parts is not None  # where it is called
    tested = auc_difference(difference.value, difference.parts.added, level)
    return replace(difference, interval=tested.interval, p=tested.p)
