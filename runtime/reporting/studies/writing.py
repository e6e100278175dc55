"""Numbers of a study -> cells of its tables and columns of its rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from ....metrics_gpu.statistics.intervals import LEAST, MANY_PATIENTS, SMALL, Interval
from ..tables import metric_names as metrics
from ..tables.metric_names import NONE, percent, plain_number, value_of
from ..tables.table import Cell

Limits = tuple[float, float]

IN_SAMPLE = f"* {metrics.IN_SAMPLE}"
CROSS_FITTED = f"cross-fitted: {metrics.CROSS_FITTED}"
INTERVALS = (
    f"of {LEAST['patients']} to {MANY_PATIENTS - 1} patients intervals are Student's, of fewer there are none; Wilson: "
    f"pointing of a class with fewer than {SMALL} pairs or {MANY_PATIENTS} patients, but not of expected hits"
)


def metric_cell(key: str, value: float | None, interval: Limits | None = None, note: str = "") -> Cell:
    """A value of the metric `key`, or a difference or spread of such values, with its interval."""
    return _cell(value, interval, partial(value_of, key), note)


def percent_cell(value: float | None, interval: Limits | None = None, note: str = "") -> Cell:
    """A fraction in percent with its interval."""
    return _cell(value, interval, percent, note)


def number_cell(value: float | None, interval: Limits | None = None, decimals: int = 2) -> Cell:
    """A plain number with its interval."""
    return _cell(value, interval, partial(plain_number, decimals=decimals))


def share_cell(value: float | None, interval: Limits | None = None) -> Cell:
    """A fraction in whole percent, for shares of a small quantity."""
    return _cell(value, interval, lambda share: f"{100 * share:.0f}")


def _cell(value: float | None, interval: Limits | None, printed: Callable[[float], str], note: str = "") -> Cell:
    value = clean(value)
    if value is None:
        return Cell(NONE, note=note)
    around = "" if interval is None else f"[{printed(interval[0])}, {printed(interval[1])}]"
    return Cell(printed(value), around, note=note)


def limits(name: str, interval: Interval | None) -> dict[str, float | None]:
    """The two columns of an interval in a row."""
    low, high = (None, None) if interval is None else (interval.low, interval.high)
    return {f"{name}_low": low, f"{name}_high": high}


def without_best(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row of boxes from a file: nothing in it at a best threshold, since boxes have none."""
    best = ("dice_best", "dice_cross_fitted", "tau_best")
    return {key: None if key.startswith(best) else value for key, value in row.items()}


def between(row: Mapping[str, Any], name: str) -> Limits | None:
    """The interval in a row's columns, None if there is none."""
    low, high = row.get(f"{name}_low"), row.get(f"{name}_high")
    return None if low is None or high is None else (float(low), float(high))


def clean(value: Any) -> Any:
    """`value` without NumPy types; None for NaN, which JSON does not have."""
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
