"""The difference of one number between two results: paired bootstrap over patients, DeLong's test, Holm's correction.

No other module of `runtime` subtracts or tests two results.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as field_of
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...metrics_gpu.statistics.bootstrap import Interval
from ..results.load import CellRows
from ..results.numbers.cell_values import CellValues

if TYPE_CHECKING:
    from ...metrics_gpu.recognition.delong import AucDifference

__all__ = ["Difference", "corrected", "delong", "subtract", "tested"]

Float = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """`value` minus `reference`, one number of two results on what both have, as fractions.

    field: of `results.numbers.fields`; name: a class or a stratum, empty for the mean over classes. n: the pairs, or
    labels, that both values rest on. interval, p: two-sided, of the paired bootstrap over patients; None without
    replicates. delong, p_delong: of the AUC of one class, by DeLong's method, which takes images as independent.
    p_holm: `tested`, corrected for its family. replicates: float64 [B], NaN where undefined.
    """

    field: str
    name: str = ""
    n: int = 0
    value: float
    reference: float
    interval: Interval | None = None
    p: float | None = None
    delong: Interval | None = None
    p_delong: float | None = None
    p_holm: float | None = None
    replicates: Float | None = field_of(default=None, repr=False, compare=False)

    @property
    def difference(self) -> float:
        """value - reference."""
        return self.value - self.reference

    @property
    def tested(self) -> float | None:
        """The p value to be corrected: DeLong's if there is one."""
        return self.p if self.p_delong is None else self.p_delong


def subtract(
    value: CellValues, reference: CellValues, field: str, name: str = "", level: float = 0.95
) -> Difference | None:
    """A number of one cell minus that of another on the same rows; None if one of them does not have it."""
    a, b = value.number(field, name), reference.number(field, name)
    if a.value is None or b.value is None:
        return None
    return tested(a.value, b.value, (a.drawn, b.drawn), level, field=field, name=name, n=value.count(field, name))


def tested(
    value: float, reference: float, drawn: tuple[Float | None, Float | None], level: float, **fields: Any
) -> Difference:
    """value - reference, with interval and p if both have replicates. fields: other fields of `Difference`."""
    a, b = drawn
    found = Difference(value=value, reference=reference, **fields)
    if a is None or b is None:
        return found
    from ...metrics_gpu.statistics.paired import paired_difference

    paired = paired_difference(value, reference, a, b, level)
    return replace(found, interval=paired.interval, p=paired.p, replicates=a - b)


def delong(cells: Sequence[CellRows], finding: str, level: float = 0.95) -> dict[tuple[int, int], AucDifference]:
    """AUC differences of a finding for every two cells, by their indices; cells have the same images and labels.

    Empty if one of the label values has fewer than two images.
    """
    from ...metrics_gpu.recognition.delong import auc_differences

    column = cells[0].findings.index(finding)
    known = cells[0].labels[:, column] >= 0
    truth = cells[0].labels[known, column]
    if min(int((truth == 1).sum()), int((truth == 0).sum())) < 2:
        return {}
    return dict(auc_differences([cell.logits[known, column] for cell in cells], truth, level))


_Tested = TypeVar("_Tested", bound=Difference)


def corrected(found: Sequence[_Tested], family: Callable[[_Tested], Hashable] = lambda item: None) -> list[_Tested]:
    """The same with Holm's p values; `family`: the key of those that are corrected together, by default all."""
    if not found:
        return []
    from ...metrics_gpu.statistics.paired import holm

    members: dict[Hashable, list[int]] = {}
    for place, item in enumerate(found):
        members.setdefault(family(item), []).append(place)
    adjusted: dict[int, float | None] = {}
    for places in members.values():
        adjusted |= zip(places, holm([found[place].tested for place in places]), strict=True)
    return [replace(item, p_holm=adjusted[place]) for place, item in enumerate(found)]
