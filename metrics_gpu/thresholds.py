"""The 101 thresholds of the sweep (metrics specification §3)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["LEVELS", "THRESHOLDS", "level"]


def _thresholds() -> NDArray[np.float32]:
    values = (np.arange(101, dtype=np.float64) / 100.0).astype(np.float32)
    values.setflags(write=False)
    return values


THRESHOLDS: Final[NDArray[np.float32]] = _thresholds()
"""float32 [101], read-only: k/100 in float64, rounded once. Adding up steps of 0.01 gives other values."""

LEVELS: Final = 101
"""Number of thresholds, tau = 0.00 to 1.00."""


def level(tau: float) -> int:
    """Index k of the threshold `tau` = k/100; raises ValueError if `tau` is not one of the 101."""
    k = round(tau * 100)
    if not 0 <= k < LEVELS or abs(tau * 100 - k) > 1e-6:
        raise ValueError(f"{tau} is not one of the thresholds 0.00, 0.01, ..., 1.00")
    return k
