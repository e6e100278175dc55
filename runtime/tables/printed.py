"""How numbers are printed in tables."""

from __future__ import annotations

import math

from ...metrics_gpu.statistics.aggregate import percent as exact_percent
from .metrics import DIGITS, METRICS

__all__ = ["NONE", "difference_of", "p_value", "percent", "value_of"]

NONE = "-"


def percent(value: float | None, decimals: int = DIGITS) -> str:
    """Percent, half to even of the unrounded value (docs/metrics.md §8); "-" for None."""
    return exact_percent(value, decimals, missing=NONE)


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
