"""The difference of one number between two results, its interval and its test (docs/metrics.md §8.4).

Means over pairs are tested by sign flips by patient, AUC by DeLong's method by patient. A number whose threshold was
chosen on the pairs it is scored on is not tested. No other module of `runtime` subtracts or tests two results.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as field_of
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.statistics.bootstrap import micro_mean
from ....metrics_gpu.statistics.intervals import Interval
from ..numbers.cell_values import CellValues
from ..numbers.fields import GROUNDING

Float = NDArray[np.float64]

TESTS: Final = (
    "p: two-sided, of sign flips by patient, of AUC by DeLong's method by patient; <: no pattern was as extreme; -: no "
    "test, of a number whose threshold was chosen on the same pairs, of AUPRC, and of an AUC with fewer than 3 "
    "patients of a label",
    "p (Holm): corrected for m tests",
)
"""How differences are tested, for the notes of tables."""


@dataclass(frozen=True, eq=False)
class Parts:
    """What patients add to a difference. names: of the patients; added: float64 [G]; seed: of the sign flips.

    With `ranked` it is a difference of AUCs, and the parts are those of its deviation from what is expected.
    """

    names: tuple[str, ...]
    added: Float
    seed: int
    ranked: bool = False


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One number of two results on what both have, `minuend` minus `reference`, as fractions.

    value: the difference, to which interval and p belong. field: of `results.numbers.fields`; name: a class or a
    stratum, empty for the mean over classes. n: pairs, or labels, of both. interval: None where it would mean nothing.
    p: two-sided, None where there is no test; p_bound: no sign pattern was as extreme, so that p is below this value.
    p_holm: p, corrected for its family; family: the number of tests in it. parts: what is tested; replicates,
    drawn_reference: float64 [B], of the difference and of the reference, NaN where undefined.
    """

    field: str
    name: str = ""
    n: int = 0
    value: float
    minuend: float
    reference: float
    interval: Interval | None = None
    p: float | None = None
    p_bound: bool = False
    p_holm: float | None = None
    family: int = 0
    parts: Parts | None = field_of(default=None, repr=False, compare=False)
    replicates: Float | None = field_of(default=None, repr=False, compare=False)
    drawn_reference: Float | None = field_of(default=None, repr=False, compare=False)

    def quotient(self, level: float = 0.95) -> tuple[float, Interval] | None:
        """minuend / reference with its paired bootstrap interval; None where the difference has no bootstrap interval,
        or the reference is 0 in the value or a replicate."""
        from ....metrics_gpu.statistics.intervals import percentile_interval

        below, gaps = self.drawn_reference, self.replicates
        known = self.interval is not None and self.interval.method == "bootstrap" and self.reference > 0
        if not known or below is None or gaps is None or (below <= 0).any():
            return None
        interval = percentile_interval(1 + gaps / below, level)
        return None if interval is None else (self.minuend / self.reference, interval)

    @property
    def disagrees(self) -> bool:
        """Whether the interval and the test (before the correction) answer differently at the interval's level."""
        if self.interval is None or self.p is None:
            return False
        outside = not self.interval.low <= 0 <= self.interval.high
        return outside != (self.p < 1 - self.interval.level)


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
    found = Difference(
        field=field,
        name=name,
        n=value.count(field, name),
        value=a.value - b.value,
        minuend=a.value,
        reference=b.value,
    )
    if value.sample is None:
        return found
    if a.drawn is not None and b.drawn is not None:
        found = replace(found, replicates=a.drawn - b.drawn, drawn_reference=b.drawn)
    names, seed = value.sample.names, value.sample.seed
    if field not in GROUNDING:
        one, two = value.auc_parts(name), reference.auc_parts(name)
        if field == "auc" and one is not None and two is not None:
            return _compared(replace(found, parts=Parts(names, one - two, seed, ranked=True)), level)
        return _resampled(found, level) if a.interval and b.interval else found
    first, second = value.shares(field, name), reference.shares(against, name)
    if first is None or second is None:
        return found
    from ....metrics_gpu.statistics.intervals import mean_interval

    shares = first.minus(second)
    interval = mean_interval(found.replicates, shares, level, None)
    tested = value.out_of_sample(field) and reference.out_of_sample(against)
    parts = Parts(names, shares.of_patients, seed) if tested else None
    return replace(found, interval=interval, parts=parts)


def averaged(found: Sequence[Difference], weights: Sequence[float], level: float, **fields: Any) -> Difference:
    """The mean of differences on several datasets, whose patients are drawn independently.

    fields: those of the mean that are not the first one's.
    """
    total = sum(weights)
    minuend = micro_mean([item.minuend for item in found], weights)
    reference = micro_mean([item.reference for item in found], weights)
    assert minuend is not None and reference is not None  # every difference has both
    means = {"value": minuend - reference, "minuend": minuend, "reference": reference}
    mean = Difference(**{"field": found[0].field, **means, **fields})
    kept = [item.parts for item in found if item.parts is not None]
    if len(kept) == len(found):
        names = tuple(name for item in kept for name in item.names)
        added = [item.added * (weight / total) for item, weight in zip(kept, weights, strict=True)]
        mean = replace(mean, parts=Parts(names, np.concatenate(added), kept[0].seed, kept[0].ranked))
        if kept[0].ranked:
            return _compared(mean, level)
    gaps = [item.replicates for item in found if item.replicates is not None]
    if len(gaps) < len(found):
        return mean
    stack, weight = np.stack(gaps), np.array(weights, np.float64)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        drawn = np.nansum(stack * weight, axis=0) / (weight * ~np.isnan(stack)).sum(axis=0)
    mean = replace(mean, replicates=drawn)
    known = all(item.interval is not None and item.interval.method == "bootstrap" for item in found)
    return _resampled(mean, level) if known else mean


def _resampled(found: Difference, level: float) -> Difference:
    from ....metrics_gpu.statistics.intervals import percentile_interval

    assert found.replicates is not None  # where it is called
    return replace(found, interval=percentile_interval(found.replicates, level))


def _compared(found: Difference, level: float) -> Difference:
    """The same with DeLong's interval and p."""
    from ....metrics_gpu.recognition.delong import auc_difference

    assert found.parts is not None  # where it is called
    tested = auc_difference(found.value, found.parts.added, level)
    return replace(found, interval=tested.interval, p=tested.p)


_Tested = TypeVar("_Tested", bound=Difference)


def corrected(found: Sequence[_Tested], family: Callable[[_Tested], Hashable] = lambda item: None) -> list[_Tested]:
    """The same with their sign-flip tests and Holm's p values.

    family: the key of those that are corrected together, by default all. As many sign patterns are drawn as the family
    asks for.
    """
    if not found:
        return []
    from ....metrics_gpu.statistics.sign_flips import holm

    members: dict[Hashable, list[int]] = {}
    for place, item in enumerate(found):
        members.setdefault(family(item), []).append(place)
    sizes: dict[int, int] = {}
    for places in members.values():
        size = sum(found[place].parts is not None for place in places)
        sizes |= dict.fromkeys(places, size)
    done = _flipped([replace(item, family=sizes[place]) for place, item in enumerate(found)])
    adjusted: dict[int, float | None] = {}
    for places in members.values():
        adjusted |= zip(places, holm([done[place].p for place in places]), strict=True)
    return [replace(item, p_holm=adjusted[place]) for place, item in enumerate(done)]


def _flipped(found: Sequence[_Tested]) -> list[_Tested]:
    """The same with p of those that sign flips test; all of the same patients and number of patterns at once."""
    from ....metrics_gpu.statistics.sign_flips import draws_for, sign_flip_tests

    groups: dict[tuple[tuple[str, ...], int, int], list[tuple[int, Float]]] = {}
    for place, item in enumerate(found):
        if item.parts is not None and not item.parts.ranked:
            key = (item.parts.names, item.parts.seed, draws_for(item.family))
            groups.setdefault(key, []).append((place, item.parts.added))
    done = list(found)
    for (names, seed, draws), items in groups.items():
        added = np.column_stack([own for _, own in items])
        for (place, _), tested in zip(items, sign_flip_tests(added, names, draws, seed), strict=True):
            done[place] = replace(found[place], p=tested.p, p_bound=tested.bound)
    return done


def disagreements(found: Sequence[Difference]) -> Iterator[str]:
    """A sentence if intervals and tests answer differently for some differences."""
    count = sum(item.disagrees for item in found)
    if count:
        yield f"of {count} difference{'s' * (count > 1)} the interval and p (before the correction) disagree at 5 %"
