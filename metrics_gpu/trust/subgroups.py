"""Measures of groups of pairs, the gap between two groups, also at equal findings and sizes (docs/subgroups.md §5).

A measure of a group is the mean over its pairs, all classes together. The gap is also standardised: the difference in
each stratum, which is a finding and a size of the region, weighted by the pairs of both groups. So neither group is
judged by findings or sizes that the other one does not have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..statistics.bootstrap import Draws
from ..statistics.exact_sums import exact_values, ratio
from ..statistics.intervals import Interval, counted, effective_number, percentile_interval, pointing_interval
from ..statistics.measured_numbers import Measured
from ..statistics.multiple_tests import corrected as holm_corrected
from ..statistics.sign_flips import LEAST_DRAWS, Tested
from ..statistics.two_groups import MantelHaenszel, mantel_haenszel, newcombe_interval, permutation_tests
from .verdicts import ALPHA, Word

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]

LEAST_PRINTED: Final = 10
"""With fewer patients a group has only its numbers of patients and pairs."""
LEAST_TESTED: Final = 20
"""Patients that each of two groups needs for a test."""
WIDEST: Final = 0.10
"""An interval of a gap that is as wide or wider cannot show that there is none."""
HITS: Final = "pointing"
"""The measure that is a share of pairs."""


@dataclass(frozen=True, eq=False)
class MeasuredPairs:
    """P pairs of a model on a dataset.

    values: measure -> float64 [P], finite; rounded here by `exact_values`. stratum_of, patient_of: intp [P]. draws: of
    the patients of the dataset, the same for all groups, so that a patient in two of them counts in both. level: of the
    intervals.
    """

    values: Mapping[str, Float]
    stratum_of: NDArray[np.intp]
    patient_of: NDArray[np.intp]
    draws: Draws
    level: float = 0.95

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", {name: exact_values(numbers) for name, numbers in self.values.items()})

    def patients(self, members: Mask) -> int:
        """The number of patients with one of the pairs `members`, bool [P]."""
        return len(np.unique(self.patient_of[members]))

    def means(self, members: Mask) -> Float:
        """float64 [1 + B, K]: the means over these pairs, NaN where none was drawn."""
        measured = [numbers[members] for numbers in self.values.values()]
        columns = np.column_stack([np.ones(int(members.sum())), *measured])
        sums = self.draws.sums(self.patient_of[members], columns)
        return ratio(sums[:, 1:], sums[:, :1])


@dataclass(frozen=True)
class Gap(Measured):
    """A difference between two groups. p_holm: of the family that `corrected` was given."""

    @property
    def word(self) -> Word:
        """`fail` for a gap whose interval does not hold 0 and that is significant in its family, `pass` for one whose
        interval holds 0 and is narrow, else `cannot tell`."""
        if self.interval is None or self.p_holm is None:
            return "cannot tell"
        low, high = self.interval.low, self.interval.high
        if not low <= 0 <= high:
            return "fail" if self.p_holm < ALPHA else "cannot tell"
        return "pass" if high - low < WIDEST else "cannot tell"


@dataclass(frozen=True)
class GroupGap:
    """The first group minus the second.

    patients, pairs: of each. shared: patients with pairs in both. tested: whether both have enough patients. raw,
    standardised: by measure. strata: those with pairs of both groups; strata_left_out, pairs_left_out: the others, and
    their pairs. common: pointing within strata, by pairs as if they were independent.
    """

    patients: tuple[int, int]
    pairs: tuple[int, int]
    shared: int
    tested: bool
    raw: Mapping[str, Gap]
    standardised: Mapping[str, Gap]
    strata: int
    strata_left_out: int
    pairs_left_out: int
    common: MantelHaenszel


def group_means(pairs: MeasuredPairs, members: Mask) -> dict[str, Measured]:
    """The measures of the pairs `members`, bool [P], with intervals; {} for fewer than `LEAST_PRINTED` patients."""
    if pairs.patients(members) < LEAST_PRINTED:
        return {}
    drawn = pairs.means(members)
    measures: dict[str, Measured] = {}
    for column, (name, values) in enumerate(pairs.values.items()):
        replicates = drawn[1:, column]
        if name == HITS:
            interval = pointing_interval(values[members], pairs.patient_of[members], replicates, pairs.level)
        else:
            interval = percentile_interval(replicates, pairs.level)
        measures[name] = Measured(float(drawn[0, column]), interval)
    return measures


def group_gap(pairs: MeasuredPairs, first: Mask, second: Mask, draws: int = LEAST_DRAWS) -> GroupGap:
    """The gap between the pairs `first` and `second`, bool [P]; `draws`: of a permutation test.

    Raises ValueError for a pair in both.
    """
    if (first & second).any():
        raise ValueError("a pair cannot be in both groups")
    patients = pairs.patients(first), pairs.patients(second)
    both = first | second
    shared = sum(patients) - pairs.patients(both)
    strata = _strata(pairs.stratum_of, first, second)
    used = strata[pairs.stratum_of] & both
    tested = min(patients) >= LEAST_TESTED
    common = mantel_haenszel(pairs.values[HITS][both], first[both], pairs.stratum_of[both])
    raw: dict[str, Gap] = {}
    standardised: dict[str, Gap] = {}
    if min(patients) >= LEAST_PRINTED:
        raw = _raw(pairs, first, second, shared, draws if tested else 0)
        standardised = _standardised(pairs, first & used, second & used, tested=tested)
    return GroupGap(
        patients=patients,
        pairs=(int(first.sum()), int(second.sum())),
        shared=shared,
        tested=tested,
        raw=raw,
        standardised=standardised,
        strata=int(strata.sum()),
        strata_left_out=len(np.unique(pairs.stratum_of[both & ~used])),
        pairs_left_out=int((both & ~used).sum()),
        common=common,
    )


def corrected(gaps: Sequence[GroupGap]) -> list[GroupGap]:
    """The same with p corrected over the gaps of one model on one dataset: a family for each measure, and one more for
    the same measure standardised, since these are functions of each other."""
    raw, standardised = _adjusted([gap.raw for gap in gaps]), _adjusted([gap.standardised for gap in gaps])
    parts = zip(gaps, raw, standardised, strict=True)
    return [replace(gap, raw=one, standardised=other) for gap, one, other in parts]


def _adjusted(gaps: Sequence[Mapping[str, Gap]]) -> list[dict[str, Gap]]:
    """With p corrected over the gaps of each measure."""
    adjusted = [dict(measures) for measures in gaps]
    for name in dict.fromkeys(name for measures in gaps for name in measures):
        tested = [measures for measures in adjusted if name in measures]
        for measures, gap in zip(tested, holm_corrected([measures[name] for measures in tested]), strict=True):
            measures[name] = gap
    return adjusted


def _strata(stratum_of: NDArray[np.intp], first: Mask, second: Mask) -> Mask:
    """bool [H]: the strata with pairs of both groups."""
    number = int(stratum_of.max()) + 1 if len(stratum_of) else 0
    a, b = (np.bincount(stratum_of[members], minlength=number) for members in (first, second))
    shared: Mask = (a > 0) & (b > 0)
    return shared


def _raw(pairs: MeasuredPairs, first: Mask, second: Mask, shared: int, draws: int) -> dict[str, Gap]:
    a, b = pairs.means(first), pairs.means(second)
    gaps = a - b
    if not draws:
        tests: Sequence[Tested | None] = [None] * len(pairs.values)
    elif shared:
        one = np.zeros(len(first), np.intp)
        tests = [_by_parts(pairs, values, (first, second), one) for values in pairs.values.values()]
    else:
        both = first | second
        names, patient = np.unique(pairs.patient_of[both], return_inverse=True)
        number = np.bincount(patient)
        sums = [np.bincount(patient, values[both]) for values in pairs.values.values()]
        of_first = np.isin(names, pairs.patient_of[first])
        tests = permutation_tests(number, np.column_stack(sums), of_first, draws, pairs.draws.seed)
    measured = {}
    for column, ((name, values), test) in enumerate(zip(pairs.values.items(), tests, strict=True)):
        interval = percentile_interval(gaps[1:, column], pairs.level)
        if name == HITS and not shared and counted(values[first | second]):
            sides = [(values[side], effective_number(values[side], pairs.patient_of[side])) for side in (first, second)]
            (hits_a, n_a), (hits_b, n_b) = ((float(hits.mean()) * n, n) for hits, n in sides)
            interval = newcombe_interval(hits_a, n_a, hits_b, n_b, pairs.level)
        measured[name] = _gap(float(gaps[0, column]), interval, test)
    return measured


def _standardised(pairs: MeasuredPairs, first: Mask, second: Mask, *, tested: bool) -> dict[str, Gap]:
    """first, second: pairs of strata that have both; {} without one."""
    both = first | second
    if not both.any():
        return {}
    _, stratum = np.unique(pairs.stratum_of[both], return_inverse=True)
    strata = int(stratum.max()) + 1
    weights = np.bincount(stratum).astype(np.float64)
    stratum_in = np.full(len(both), -1)
    stratum_in[both] = stratum
    sides = []
    for members in (first, second):
        here = np.zeros((int(members.sum()), strata))
        here[np.arange(len(here)), stratum_in[members]] = 1.0
        columns = [here, *(here * values[members, None] for values in pairs.values.values())]
        sides.append(pairs.draws.sums(pairs.patient_of[members], np.concatenate(columns, axis=1)))
    measured = {}
    for column, (name, values) in enumerate(pairs.values.items(), 1):
        part = slice(column * strata, (column + 1) * strata)
        a, b = (ratio(side[:, part], side[:, :strata]) for side in sides)
        defined = ~np.isnan(a - b)  # a replicate can lack a group in a stratum
        gaps = ratio(np.where(defined, (a - b) * weights, 0.0).sum(axis=1), (defined * weights).sum(axis=1))
        test = _by_parts(pairs, values, (first, second), pairs.stratum_of) if tested else None
        measured[name] = _gap(float(gaps[0]), percentile_interval(gaps[1:], pairs.level), test)
    return measured


def _by_parts(
    pairs: MeasuredPairs, values: Float, sides: tuple[Mask, Mask], stratum_of: NDArray[np.intp]
) -> Tested | None:
    """The normal test of a gap, standardised over strata, by what patients add to it if the groups do not differ.

    A pair adds its deviation from the mean of its stratum, with the weight of its side there. A stratum of n
    pairs underestimates these deviations by n / (n - 1). None without any deviation.
    """
    both = np.flatnonzero(sides[0] | sides[1])
    keys = (values[both], sides[0][both], stratum_of[both], pairs.patient_of[both])
    both = both[np.lexsort(keys)]  # what is added below is no integer: the sums need one order
    _, stratum = np.unique(stratum_of[both], return_inverse=True)
    of_pairs, first = values[both], sides[0][both]
    number = np.bincount(stratum).astype(np.float64)
    on_side = np.stack([np.bincount(stratum[~first], minlength=len(number)), np.bincount(stratum[first])])
    away = (of_pairs - (np.bincount(stratum, of_pairs) / number)[stratum]) / on_side[first.astype(np.intp), stratum]
    added = np.where(first, away, -away) * number[stratum] / number.sum()
    gap = float(added.sum())
    added *= np.sqrt(number / (number - 1))[stratum]
    variance = float((np.bincount(pairs.patient_of[both], added) ** 2).sum())
    return Tested(math.erfc(abs(gap) / math.sqrt(2 * variance))) if variance > 0 else None


def _gap(value: float, interval: Interval | None, test: Tested | None) -> Gap:
    return Gap(value, interval, p=None if test is None else test.p, p_bound=test is not None and test.bound)
