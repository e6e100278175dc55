"""Which interval a number has, and whether it means something at all (docs/metrics.md §8.3).

One method per quantity: the bootstrap over patients; Student's t on what patients add, for a mean of few patients;
Wilson's for hits of a class with few pairs, which expected hits are not. A number of too few patients, images of one
label, or models has none. Exact and effective-number rules for proportions, and what patients add to a mean, are here
too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .exact_sums import exact_values

_NOTHING: Final = 1e-14  # what rounding leaves of equal values
SMALL = 30
"""Below this number of pairs the interval of pointing is Wilson's."""


@dataclass(frozen=True)
class Interval:
    """A two-sided interval `low` to `high` at confidence `level`.

    method: how it was computed: `bootstrap`, `t`, `wilson`, `newcombe`, `delong` or `fisher`.
    used: number of replicates it is computed from; fewer than were drawn where a replicate left the value undefined. 0
        for the methods without replicates.
    """

    low: float
    high: float
    level: float
    method: str
    used: int = 0


def check_level(level: float) -> None:
    """Raises ValueError unless 0 < level < 1."""
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, got {level}")


def least_replicates(level: float = 0.95) -> int:
    """The smallest number of replicates that a percentile interval at this level is computed from: 2 / (1 - level), of
    which one whole replicate lies beyond each end; 40 at 95 %. Raises ValueError unless 0 < level < 1."""
    check_level(level)
    return math.ceil(round(2 / (1 - level), 6))  # 1 - 0.9 is not 0.1 in floats


def percentile_interval(values: NDArray[np.float64], level: float = 0.95) -> Interval | None:
    """Percentile interval of replicates float64 [B], NaN where undefined; None if fewer than `least_replicates` are
    defined. Raises ValueError unless 0 < level < 1."""
    least, defined = least_replicates(level), values[~np.isnan(values)]
    if len(defined) < least:
        return None
    low, high = _percentiles(defined, level)
    return Interval(float(low), float(high), level, "bootstrap", len(defined))


def percentile_intervals(values: NDArray[np.float64], level: float = 0.95) -> list[Interval | None]:
    """`percentile_interval` of each column of float64 [B, K], at once for the columns without NaN."""
    if values.shape[1] == 0:
        return []
    intervals: list[Interval | None] = [None] * values.shape[1]
    whole = np.flatnonzero(~np.isnan(values).any(axis=0))
    if len(whole) and len(values) >= least_replicates(level):
        for column, low, high in zip(whole.tolist(), *_percentiles(values[:, whole], level), strict=True):
            intervals[column] = Interval(float(low), float(high), level, "bootstrap", len(values))
    for column in set(range(values.shape[1])).difference(whole.tolist()):
        intervals[column] = percentile_interval(values[:, column], level)
    return intervals


def _percentiles(values: NDArray[np.float64], level: float) -> tuple[Any, Any]:
    """Both ends of the interval, of each column. The upper one is made from the negative values, because NumPy's two
    percentiles can differ in the last bit from theirs: the interval of a - b would not be the negative of b - a."""
    low, high = (np.percentile(sign * values, 50 * (1 - level), axis=0) for sign in (1, -1))
    return low, 0.0 - high


def effective_number(values: NDArray[np.float64], group_of: NDArray[np.integer]) -> float:
    """How many independent values N grouped ones are worth: n / (1 + (m - 1) ICC), float in 1..n.

    m: the mean size of a group; ICC: the one-way estimate from the mean squares, in [0, 1]. Values of `exact_values`
    give the same bits in any order. Raises ValueError without a value.
    """
    n, (_, group, size) = len(values), np.unique(group_of, return_inverse=True, return_counts=True)
    groups = len(size)
    if not n:
        raise ValueError("a number of independent values needs a value")
    if groups in (1, n):
        return 1.0 if groups == 1 else float(n)
    means = np.bincount(group, values) / size
    between = float((size * (means - values.mean()) ** 2).sum()) / (groups - 1)
    within = math.fsum(((values - means[group]) ** 2).tolist()) / (n - groups)
    typical = (n - float((size**2).sum()) / n) / (groups - 1)
    spread = between + (typical - 1) * within
    alike = min(max((between - within) / spread, 0.0), 1.0) if spread > 0 else 1.0
    return n / (1 + (n / groups - 1) * alike)


def normal_quantile(level: float) -> float:
    """By how many standard deviations a normal interval of this level reaches to each side. Raises ValueError unless
    0 < level < 1."""
    check_level(level)
    return NormalDist().inv_cdf(0.5 + level / 2)


def wilson_interval(hits: float, n: float, level: float = 0.95) -> Interval:
    """Wilson's score interval of hits / n (E. B. Wilson, JASA 22, 1927), without continuity correction.

    hits: 0..n. Both are fractions where n is the number that pairs are worth which are not independent.
    Raises ValueError for n < 1, hits outside 0..n or a level outside (0, 1).
    """
    if n < 1 or not 0 <= hits <= n:
        raise ValueError(f"a proportion needs n >= 1 and 0 <= hits <= n, got {hits} of {n}")
    z = normal_quantile(level)
    share, extra = hits / n, z * z / n
    centre = (share + extra / 2) / (1 + extra)
    half = z * math.sqrt(share * (1 - share) / n + extra / (4 * n)) / (1 + extra)
    low = 0.0 if hits == 0 else max(centre - half, 0.0)
    high = 1.0 if hits == n else min(centre + half, 1.0)
    return Interval(low, high, level, "wilson")


Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Shares:
    """The parts of G patients in the mean of K means, those over the pairs of each class.

    added: float64 [G, K], the sum over a patient's pairs divided by the number of all pairs of the class; part: the
    share of these pairs that are the patient's. Both are of the same pairs where two are subtracted.
    """

    added: Float
    part: Float

    @property
    def of_patients(self) -> Float:
        """float64 [G]: what each patient adds; the sum is the value."""
        found: Float = self.added.mean(axis=1)
        return found

    @property
    def residuals(self) -> Float:
        """float64 [G]: what each patient adds beyond the mean of each class; the sum is 0."""
        found: Float = (self.added - self.part * self.added.sum(axis=0)).mean(axis=1)
        return found

    @property
    def patients(self) -> int:
        """How many patients have a pair."""
        return int(self.part.any(axis=1).sum())

    def minus(self, other: Shares) -> Shares:
        """The shares of the difference of two values on the same pairs."""
        return Shares(self.added - other.added, self.part)


def shares(values: Float, class_of: NDArray[np.integer], patient_of: NDArray[np.intp], patients: int) -> Shares | None:
    """Shares of the mean over classes of their mean over pairs; None without a pair.

    values: float64 [P], rounded by `exact_values`; classes with a NaN are left out. class_of: integers [P].
    patient_of: [P] in 0..patients-1.
    """
    values, (names, column) = exact_values(values), np.unique(class_of, return_inverse=True)
    if not len(values):
        return None
    defined = np.flatnonzero(~np.isnan(np.bincount(column, values, len(names))))
    if not len(defined):
        return None
    added, part = np.zeros((2, patients, len(defined)))
    for index, k in enumerate(defined):
        pairs = np.flatnonzero(column == k)
        added[:, index] = np.bincount(patient_of[pairs], values[pairs], patients) / len(pairs)
        part[:, index] = np.bincount(patient_of[pairs], minlength=patients) / len(pairs)
    return Shares(added, part)


LEAST: Final = {"patients": 4, "positives": 3, "negatives": 3, "models": 4}
"""What an interval needs at least: patients with pairs; of AUC and the like patients with each label; models."""
MANY_PATIENTS: Final = 10
"""From this number of patients the bootstrap is used."""


def meaningful(**counts: int) -> bool:
    """Whether a number of these counts (keys of `LEAST`) has an interval that means something."""
    return all(count >= LEAST[name] for name, count in counts.items())


def mean_interval(
    drawn: Float | None, parts: Shares | None, level: float = 0.95, bounds: tuple[float, float] | None = (0.0, 1.0)
) -> Interval | None:
    """Interval of a mean over pairs, or of a difference of two.

    drawn: its bootstrap replicates. parts: what patients add to it. bounds: of its values, None for none.
    """
    if drawn is None or parts is None or not meaningful(patients=parts.patients):
        return None
    if parts.patients >= MANY_PATIENTS:
        return percentile_interval(drawn, level)
    from scipy.special import stdtrit  # the quantile of scipy.stats.t, whose import takes 0.4 s

    # Summed with one rounding, so that patients without a pair change no bit.
    n, value = parts.patients, math.fsum(parts.of_patients.tolist())
    spread = math.fsum((parts.residuals**2).tolist())
    half = float(stdtrit(n - 1, 0.5 + level / 2)) * math.sqrt(n / (n - 1) * spread)
    if half < _NOTHING:
        return None
    low, high = bounds or (-math.inf, math.inf)
    return Interval(max(value - half, low), min(value + half, high), level, "t")


def counted(hits: Float) -> bool:
    """Whether hits [n] are counts, each 0 or 1, and not expected hits, which are shares of tied pixels."""
    return bool(np.isin(hits, (0.0, 1.0)).all())


def pointing_interval(
    hits: Float, patient_of: NDArray[np.intp], drawn: Float | None, level: float = 0.95
) -> Interval | None:
    """Interval of the pointing of one class.

    hits: float64 [n] in [0, 1], of its pairs. Hits of 0 and 1, of fewer than 30 pairs or 10 patients: Wilson's, of as
    many pairs as they are worth if those of a patient are alike; of one patient none. Expected hits have the interval
    of a mean, as chance has: a binomial one would be of hits that nobody counted. drawn: bootstrap replicates.
    """
    patient_of = np.unique(patient_of, return_inverse=True)[1]
    patients = int(patient_of.max(initial=-1)) + 1
    if not counted(hits):
        return mean_interval(drawn, shares(hits, np.zeros(len(hits), np.intp), patient_of, patients), level)
    if drawn is None or patients < 2:
        return None
    if len(hits) >= SMALL and patients >= MANY_PATIENTS:
        return percentile_interval(drawn, level)
    n = effective_number(hits, patient_of)
    return wilson_interval(float(hits.mean()) * n, n, level)
