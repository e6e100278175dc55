"""How numbers are printed in tables."""

from __future__ import annotations

from ...metrics_gpu.statistics.aggregate import percent as exact_percent

__all__ = ["NONE", "p_value", "percent", "signed"]

NONE = "-"


def percent(value: float | None, decimals: int = 2) -> str:
    """Percent, half to even of the unrounded value (docs/metrics.md §8); "-" for None."""
    return exact_percent(value, decimals, missing=NONE)


def signed(value: float | None, *, points: bool = False) -> str:
    """A difference in percentage points with its sign; `points`: it is already in points."""
    if value is None:
        return NONE
    text = percent(value / 100.0 if points else value)
    return text if text.startswith("-") or text == "0.00" else f"+{text}"


def p_value(value: float | None) -> str:
    """Three decimals, or "<0.001"; "-" for None."""
    if value is None:
        return NONE
    return "<0.001" if value < 0.0005 else f"{value:.3f}"
