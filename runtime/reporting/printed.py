"""How numbers are printed in tables."""

from __future__ import annotations

from ...metrics_gpu.aggregate import percent as exact_percent

__all__ = ["NONE", "percent"]

NONE = "-"


def percent(value: float | None) -> str:
    """Percent with two decimals, half to even of the unrounded value (metrics specification §8); "-" for None."""
    return exact_percent(value, missing=NONE)
