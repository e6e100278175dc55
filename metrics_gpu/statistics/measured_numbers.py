"""A measured number with its interval and its test (docs/metrics.md §8)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
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


def disagreements(items: Sequence[Measured], noun: str = "difference") -> Iterator[str]:
    """A sentence if intervals and tests answer differently for some of the items, which are called `noun`."""
    levels = [item.interval.level for item in items if item.interval is not None and item.disagrees]
    for level in dict.fromkeys(levels):
        count = levels.count(level)
        words = f"of {count} {noun}{'s' * (count > 1)} the interval and p (before the correction) disagree"
        yield f"{words} at {100 * (1 - level):g} %"
