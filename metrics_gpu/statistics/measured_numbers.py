"""A measured number with its interval and its test (docs/metrics.md §8)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .intervals import Interval

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Parts:
    """What patients add to a number. names: of the patients; added: float64 [G]; seed: of the sign flips.

    With `ranked` the number is a difference of AUCs, and the parts are those of its deviation from what is expected.
    """

    names: tuple[str, ...]
    added: Float
    seed: int
    ranked: bool = False


@dataclass(frozen=True)
class Measured:
    """A number: a fraction, or a difference of fractions; `delta_dice` is in percentage points.

    value: None where it does not exist. interval: None where it would mean nothing. n: its pairs, or labels; patients:
    of these; both 0 where nobody asks. p: two-sided, None without a test; p_bound: no sign pattern was as extreme, so
    that p is below this value. p_holm: p, corrected for the `family` tests that were declared together. parts: what is
    tested. drawn: bootstrap replicates, float64 [B], NaN where undefined; None where there are none. Best thresholds
    are chosen again in each replicate, those of `cross_fitted` on the drawn patients of other folds. missing: why there
    is no value, in a few words. basis: equal for numbers of the same data, which alone are ranked. ranked: whether
    tables rank it at all.
    """

    value: float | None = None
    interval: Interval | None = None
    n: int = 0
    patients: int = 0
    p: float | None = None
    p_bound: bool = False
    p_holm: float | None = None
    family: int = 0
    missing: str = ""
    basis: Hashable = field(default=None, repr=False, compare=False)
    ranked: bool = field(default=False, compare=False)
    parts: Parts | None = field(default=None, repr=False, compare=False)
    drawn: Float | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of_row(cls, row: Float, n: int = 0) -> Measured:
        """The number of a row [1 + B]: its estimate and replicates, or [1] without these; empty where it is NaN."""
        if np.isnan(row[0]):
            return cls()
        return cls(float(row[0]), n=n, drawn=row[1:] if len(row) > 1 else None)

    @property
    def low(self) -> float | None:
        """The lower end of the interval."""
        return None if self.interval is None else self.interval.low

    @property
    def high(self) -> float | None:
        """The upper end of the interval."""
        return None if self.interval is None else self.interval.high

    def limits(self, scale: float = 1.0) -> dict[str, float | None]:
        """The columns `value`, `low` and `high` of a row, times `scale`."""
        numbers = {"value": self.value, "low": self.low, "high": self.high}
        return {name: None if number is None else scale * number for name, number in numbers.items()}

    @property
    def test(self) -> dict[str, Any]:
        """The columns of the test of a row."""
        return {"p": self.p, "p_bound": self.p_bound, "p_holm": self.p_holm, "family": self.family}

    @property
    def disagrees(self) -> bool:
        """Whether the interval and the test (before the correction) answer differently about 0 at the interval's
        level."""
        if self.interval is None or self.p is None:
            return False
        outside = not self.interval.low <= 0 <= self.interval.high
        return outside != (self.p < 1 - self.interval.level)


@dataclass(frozen=True, eq=False)
class MeasuredRows:
    """Numbers of the C classes of one (model, dataset) and of two means over them, with bootstrap replicates.

    names: of the classes. counts: name -> intp [C], pairs or labels; `n` is the number that a class rests on. rows:
    name -> float64 [C + 2, 1 + B], of each class and of the means `macro` and `micro`, NaN where undefined. A row is
    the estimate and its replicates; [C + 2, 1] without replicates.
    """

    names: tuple[str, ...]
    counts: Mapping[str, NDArray[np.intp]]
    rows: Mapping[str, Float] = field(repr=False)

    def count(self, key: str, name: str = "") -> int:
        """One of `counts` of a class, or (no name) of all; 0 for an unknown class."""
        if name in self.names:
            return int(self.counts[key][self.names.index(name)])
        return 0 if name else int(self.counts[key].sum())

    def number(self, key: str, name: str) -> Measured:
        """One of `rows` of a class, or of `macro` or `micro`; empty where it is undefined or the class unknown."""
        groups = (*self.names, "macro", "micro")
        if name not in groups:
            return Measured()
        return Measured.of_row(self.rows[key][groups.index(name)], self.count("n", name if name in self.names else ""))

    def value(self, key: str, name: str = "macro") -> float | None:
        """The estimate of `number`."""
        groups = (*self.names, "macro", "micro")
        value = float(self.rows[key][groups.index(name), 0]) if name in groups else math.nan
        return None if math.isnan(value) else value

    def record(self, name: str) -> dict[str, str | int | float | None]:
        """All counts and estimates of a class, or of `macro` or `micro`."""
        group = name if name in self.names else ""
        counts = {key: self.count(key, group) for key in self.counts}
        return {"name": name, **counts, **{key: self.value(key, name) for key in self.rows}}


def disagreements(items: Sequence[Measured], noun: str = "difference") -> Iterator[str]:
    """A sentence if intervals and tests answer differently for some of the items, which are called `noun`."""
    levels = [item.interval.level for item in items if item.interval is not None and item.disagrees]
    for level in dict.fromkeys(levels):
        count = levels.count(level)
        words = f"of {count} {noun}{'s' * (count > 1)} the interval and p (before the correction) disagree"
        yield f"{words} at {100 * (1 - level):g} %"
