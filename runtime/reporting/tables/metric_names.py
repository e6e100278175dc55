"""The numbers in reports, comparisons and studies: their names, units and printed form.

Definitions are in docs/metrics.md §4 to §8. `results/numbers/fields.py` lists which of
them a cell has, and where; a test compares the two lists.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final, Literal

from ...results.own_metrics import OwnName

IN_SAMPLE: Final = "in-sample: threshold chosen on the same data"
CROSS_FITTED: Final = "threshold chosen on other patients than those it is applied to"

DIGITS, INTERVAL_DIGITS = 2, 1
"""Decimals of percentages and percentage points in tables, and of their intervals in reports, unless a metric has its
own."""


@dataclass(frozen=True)
class Metric:
    """A number.

    key: its name in CSV, JSON and Python. title: the heading of its column; words: its name in a list of numbers.
    unit: "percent" of a fraction, or "points", percentage points that are stored as such. digits: decimals in tables;
    interval_digits: of its interval in a report (comparisons and studies print intervals with `digits`).
    better: "higher", or "" if higher is not better: floors, and differences of two numbers. best: whether it uses a
    best threshold, which is in-sample unless the search is cross-fitted; such a heading has a star.
    """

    key: str
    title: str
    words: str
    unit: Literal["percent", "points"] = "percent"
    digits: int = DIGITS
    interval_digits: int = INTERVAL_DIGITS
    better: Literal["higher", ""] = "higher"
    best: bool = False

    @property
    def scale(self) -> float:
        """Factor from the stored value to `unit`."""
        return 100.0 if self.unit == "percent" else 1.0


class _Metrics(dict[str, Metric]):
    def __contains__(self, key: object) -> bool:
        return isinstance(key, OwnName) or super().__contains__(key)

    def __missing__(self, key: str) -> Metric:
        if not isinstance(key, OwnName):
            raise KeyError(key)
        name, (title, words) = key.metric.replace("_", " "), _PARTS[key.part]
        return Metric(key, f"{name}{title}", f"{name}{words}", best=key.part == "best")


_PARTS: Final = {
    "": ("", ""),
    "fixed": (" 0.5", " at 0.5"),
    "best": ("", ", best"),
    "cross_fitted": (" cross-fitted", ", cross-fitted"),
}
"""What of a user's metric -> the ends of its heading and of its words, as those of Dice."""


METRICS: Final[Mapping[str, Metric]] = _Metrics(
    (metric.key, metric)
    for metric in (
        Metric("pointing", "Point", "pointing"),
        Metric("dice_best", "Dice", "Dice, best", best=True),
        Metric("dice_cross_fitted", "Dice cross-fitted", "Dice, cross-fitted"),
        Metric("iou_best", "IoU", "IoU, best", best=True),
        Metric("iou_cross_fitted", "IoU cross-fitted", "IoU, cross-fitted"),
        Metric("dice_fixed", "Dice 0.5", "Dice at 0.5"),
        Metric("iou_fixed", "IoU 0.5", "IoU at 0.5"),
        Metric("delta_dice", "delta", "delta Dice", "points", better=""),
        Metric("delta_cross_fitted", "delta cross-fitted", "delta Dice, cross-fitted", "points", better=""),
        Metric("floor_dice", "Dice of all-ones", "Dice of the all-ones mask", better=""),
        Metric("floor_iou", "IoU of all-ones", "IoU of the all-ones mask", better=""),
        Metric("chance", "chance", "pointing of a random pixel", better=""),
        Metric("auc", "AUC", "AUC"),
        Metric("auprc", "AUPRC", "AUPRC"),
        Metric("f1", "F1", "F1"),
        Metric("accuracy", "accuracy", "accuracy"),
        Metric("pair_f1", "pair F1", "F1 of the prompt pair"),
        Metric("pair_accuracy", "pair accuracy", "accuracy of the prompt pair"),
    )
)
"""Key -> metric. An `OwnName` is that of a user's metric, a fraction of which more is better (docs/metrics.md §19)."""


def heading(key: str, in_sample: bool = False) -> str:
    """The heading of a number's column, with a star if its threshold was chosen `in_sample`."""
    metric = METRICS[key]
    return f"{metric.title}*" if metric.best and in_sample else metric.title


NONE = "-"


def percent(value: float | None, decimals: int = DIGITS) -> str:
    """`value` (a fraction, 0.5 = 50 %) as per cent without the sign, rounded once, half to even.

    Ties are those of the shortest decimal that denotes the float: 161/800 = 0.20125 prints as 20.12 and 163/800 =
    0.20375 as 20.38, independent of the last bit. "-" for None and NaN (docs/metrics.md §8).
    """
    if value is None or math.isnan(value):
        return NONE
    if math.isinf(value):
        raise ValueError(f"{value} cannot be printed as per cent")
    exact = Decimal(repr(float(value))) * 100
    rounded = exact.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_HALF_EVEN)
    return str(abs(rounded) if rounded == 0 else rounded)  # never "-0.00"


def plain_number(value: float | None, decimals: int) -> str:
    """A number that is no percentage, with these decimals, never "-0.00"; "-" for None."""
    return NONE if value is None else f"{round(value, decimals) + 0.0:.{decimals}f}"


def value_of(key: str, value: float | None, decimals: int | None = None) -> str:
    """A stored value of the metric `key` in its unit, with its digits or `decimals`; "-" for None."""
    metric = METRICS[key]
    fraction = value if value is None or metric.unit == "percent" else value / 100.0
    return percent(fraction, metric.digits if decimals is None else decimals)


def difference_of(key: str, value: float | None) -> str:
    """A difference of two stored values of the metric `key`, in percentage points with its sign; "-" for None."""
    text = value_of(key, value)
    return text if text.startswith(NONE) or not float(text) else f"+{text}"


def p_value(value: float | None, bound: bool = False) -> str:
    """Three decimals, or "<0.001"; "-" for None. bound: the true value is below this one, so "<", rounded up."""
    if value is None:
        return NONE
    if bound and value < 1:
        return f"<{math.ceil(round(1000 * value, 9)) / 1000:.3f}"
    return "<0.001" if value < 0.0005 else f"{value:.3f}"
