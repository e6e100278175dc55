"""Attributes of cases -> groups, and which of them are compared (docs/subgroups.md §5.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....data.datasets.attributes.lookup import CaseAttributes
from ....data.datasets.attributes.values import Value

UNKNOWN: Final = "unknown"
REST: Final = "all others"
MOST_GROUPS: Final = 20
"""An attribute with more values is no division into groups."""

_BINS: Final = (("under 18", 18), ("18-39", 40), ("40-59", 60), ("60-79", 80), ("80 and over", float("inf")))
_FIRST: Final = {"view": ("AP", "PA"), "sex": ("F", "M"), "age": tuple(name for name, _ in _BINS)}


@dataclass(frozen=True, eq=False)
class Grouping:
    """The cases of a dataset, divided by an attribute. of_case: case id -> index into `names`, the groups that have a
    case; cases whose attribute is not known are the last."""

    attribute: str
    names: tuple[str, ...]
    of_case: Mapping[str, int]

    def members(self, cases: Sequence[str]) -> NDArray[np.intp]:
        """intp: the group of each of `cases`."""
        return np.array([self.of_case[case] for case in cases], np.intp)

    @property
    def comparisons(self) -> tuple[tuple[str, str], ...]:
        """Names of the first and of the second group of each gap; the second can be `REST`."""
        if len(self.names) == 2:
            return ((self.names[0], self.names[1]),)
        views = ("AP", "PA") if self.attribute == "view" and {"AP", "PA"} <= set(self.names) else ()
        one = (("AP", "PA"),) if views else ()
        return (*one, *((name, REST) for name in self.names if name not in views))


def groupings(
    described: CaseAttributes, cases: Sequence[str], by: Sequence[str] = ()
) -> tuple[list[Grouping], list[str]]:
    """The divisions of `cases`, whose attributes are `described`, and sentences on attributes that divide nothing.

    by: only these attributes.
    """
    divisions, remarks = [], []
    for name in described.names:
        if by and name not in by:
            continue
        values = [_group(name, case.get(name)) for case in described.cases]
        counts = Counter(values)
        unknown = counts.pop(UNKNOWN, 0)
        share = ", ".join([f"known of {len(cases) - unknown} of {len(cases)} cases"])
        if len(counts) < 2:
            remarks.append(f"{name} has one value, {share}: no groups to compare")
        elif len(counts) > MOST_GROUPS:
            remarks.append(
                f"{name} has {len(counts)} values, more than {MOST_GROUPS}, {share}: join them to groups in a table"
            )
        else:
            first = [value for value in _FIRST.get(name, ()) if value in counts]
            names = (*first, *sorted(set(counts) - set(first)), *([UNKNOWN] if unknown else []))
            place = {value: index for index, value in enumerate(names)}
            divisions.append(Grouping(name, names, dict(zip(cases, (place[value] for value in values), strict=True))))
    remarks += [f"{name} is not among its attributes" for name in by if name not in described.names]
    return divisions, remarks


def _group(attribute: str, value: Value | None) -> str:
    if value is None:
        return UNKNOWN
    if attribute == "age":
        return next(name for name, end in _BINS if float(value) < end)
    return str(value)
