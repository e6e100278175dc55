"""--fail-if: a comparison as a gate for continuous integration, such as "dice_best_drop > 0.1"."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from ....engines.errors import ConfigError
from ....engines.registry import did_you_mean
from ...results.comparing.cell_changes import COMPARED
from ..tables.metric_names import METRICS
from .comparison import Comparison

_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM: Final = re.compile(r"\s*([A-Za-z_]\w*)\s*(>=|<=|==|!=|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


def _drop(key: str) -> tuple[str, str]:
    return f"{key}_drop", f"largest drop of {METRICS[key].words} of a cell, percentage points"


NAMES: Final[Mapping[str, str]] = {
    "flipped_hits": "pairs whose hit changed, over all cells",
    "lost_hits": "of them, hits that became misses",
    "gained_hits": "of them, misses that became hits",
    "moved_maxima": "pairs whose maximum is another pixel",
    **dict(map(_drop, COMPARED)),
    "max_dice_change": "largest change of a single pair's Dice, percentage points",
    "max_logit_change": "largest absolute change of a logit",
    "missing_rows": "rows and pairs that only one run has, those of whole cells included",
    "missing_cells": "finished cells that only one run has",
    "changed_truth": "rows whose label or region differs between the runs",
    "changed_images": "images of another file, or of a patient of another name, in each run",
}
"""The names that a condition can use, and their meaning; a number of a user's metric adds NUMBER_drop."""


@dataclass(frozen=True)
class Condition:
    """`name` `sign` `limit`, one of the names compared with a number."""

    name: str
    sign: str
    limit: float

    def __str__(self) -> str:
        return f"{self.name} {self.sign} {self.limit:g}"

    def holds(self, value: float) -> bool:
        """Whether the value meets the condition."""
        return _OPERATORS[self.sign](value, self.limit)


@dataclass(frozen=True)
class Verdict:
    """A condition and the value found; `fired`: it holds, or there is no value."""

    condition: Condition
    value: float | None

    @property
    def fired(self) -> bool:
        """True also without a value: a gate that cannot be decided fails."""
        return self.value is None or self.condition.holds(self.value)

    def __str__(self) -> str:
        if self.value is None:
            return f"FAIL: {self.condition} cannot be decided, no compared cell has such a number"
        return f"{'FAIL' if self.fired else 'pass'}: {self.condition} ({self.condition.name} = {self.value:.6g})"


def parse_condition(text: str, own: Iterable[str] = ()) -> Condition:
    """A condition from its text; own: the numbers of the user's metrics. Raises ConfigError that says what is wrong and
    lists the known names."""
    known = [*NAMES, *(f"{name}_drop" for name in own)]
    found = _FORM.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"'{text}' is no condition: write NAME, one of {' '.join(_OPERATORS)}, and a number, as in "
            f"'flipped_hits > 0'; known names: {', '.join(known)}."
        )
    name, sign, limit = found.groups()
    if name not in known:
        raise ConfigError(f"'{text}': unknown name '{name}'; {did_you_mean(name, known)}.")
    return Condition(name, sign, float(limit))


def measures(comparison: Comparison) -> dict[str, float | None]:
    """The value of each name that a condition can use; None if no compared cell has such a number."""
    cells = comparison.cells
    drops = {
        f"{metric}_drop": [
            METRICS[metric].scale * (change.reference - change.minuend)
            for cell in cells
            for change in cell.whole
            if change.field == metric
        ]
        for metric in (*COMPARED, *(name for own in comparison.metrics for name in own.numbers))
    }
    dice = [100 * cell.rows.dice[0].size if cell.rows.dice else 0.0 for cell in cells if cell.pairs]
    logits = [cell.rows.logits.largest for cell in cells if cell.rows.logits is not None]
    with_pairs = [cell.rows for cell in cells if cell.pairs]
    return {
        "flipped_hits": _total([len(rows.flips) for rows in with_pairs]),
        "lost_hits": _total([rows.lost for rows in with_pairs]),
        "gained_hits": _total([rows.gained for rows in with_pairs]),
        "moved_maxima": _total([rows.moved for rows in with_pairs]),
        **{name: max(values, default=None) for name, values in drops.items()},
        "max_dice_change": max(dice, default=None),
        "max_logit_change": max(logits, default=None),
        "missing_rows": comparison.missing_rows,
        "missing_cells": len(comparison.alone),
        "changed_truth": sum(len(cell.label_changes) + len(cell.region_changes) for cell in cells),
        "changed_images": sum(len(cell.other_files) + len(cell.other_patients) for cell in cells),
    }


def judge(comparison: Comparison, conditions: list[Condition]) -> list[Verdict]:
    """The verdict on each condition."""
    found = measures(comparison)
    return [Verdict(condition, found[condition.name]) for condition in conditions]


def _total(counts: list[int]) -> float | None:
    return sum(counts) if counts else None
