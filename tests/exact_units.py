"""The rounding of a pair's values, docs/metrics.md §8.1, by other means than the code's."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["in_units", "units"]


def units(value: float) -> int:
    """The value in units of 2^-32, rounded half to even, without any float arithmetic."""
    return round(Fraction(value) * 2**32)


def in_units(values: Any) -> NDArray[np.float64]:
    """An array rounded to multiples of 2^-32; the scaling by a power of two is exact."""
    found: NDArray[np.float64] = np.round(np.asarray(values, np.float64) * 2**32) / 2**32
    return found
