"""How numbers of a study stand in its tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...metrics_gpu.statistics.bootstrap import Interval
from ..tables.printed import NONE, percent
from ..tables.table import Cell

__all__ = [
    "CROSS_FITTED",
    "IN_SAMPLE",
    "between",
    "clean",
    "limits",
    "number_cell",
    "percent_cell",
    "points_cell",
    "share_cell",
]

Limits = tuple[float, float]

IN_SAMPLE = "* in-sample: threshold chosen on the same pairs"
CROSS_FITTED = "+ cross-fitted: threshold chosen on the other half of the patients"


def percent_cell(value: float | None, interval: Limits | None = None, note: str = "") -> Cell:
    """A fraction in percent with its interval."""
    value = clean(value)
    around = "" if interval is None or value is None else f"[{percent(interval[0])}, {percent(interval[1])}]"
    return Cell(percent(value), around, note=note)


def points_cell(value: float | None, interval: Limits | None = None, note: str = "") -> Cell:
    """A number that is in percentage points already, with its interval."""

    def scaled(number: float) -> str:
        return percent(number / 100)

    value = clean(value)
    if value is None:
        return Cell(NONE, note=note)
    around = "" if interval is None else f"[{scaled(interval[0])}, {scaled(interval[1])}]"
    return Cell(scaled(value), around, note=note)


def number_cell(value: float | None, interval: Limits | None = None, decimals: int = 2, note: str = "") -> Cell:
    """A plain number with its interval."""
    value = clean(value)
    if value is None:
        return Cell(NONE, note=note)
    around = "" if interval is None else f"[{interval[0]:.{decimals}f}, {interval[1]:.{decimals}f}]"
    return Cell(f"{value:.{decimals}f}", around, note=note)


def share_cell(value: float | None, interval: Limits | None = None, note: str = "") -> Cell:
    """A fraction in whole percent, for shares of something that is small itself."""
    value = clean(value)
    if value is None:
        return Cell(NONE, note=note)
    around = "" if interval is None else f"[{100 * interval[0]:.0f}, {100 * interval[1]:.0f}]"
    return Cell(f"{100 * value:.0f}", around, note=note)


def limits(name: str, interval: Interval | None) -> dict[str, float | None]:
    """The two columns of an interval in a row."""
    low, high = (None, None) if interval is None else (interval.low, interval.high)
    return {f"{name}_low": low, f"{name}_high": high}


def between(row: Mapping[str, Any], name: str) -> Limits | None:
    """The interval in a row's columns, None if there is none."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return None if low is None or high is None else (float(low), float(high))


def clean(value: Any) -> Any:
    """`value` without NumPy types; None for NaN, which JSON does not have."""
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
