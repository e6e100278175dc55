"""The options of a sweep: upsampling, normalisation, comparison and its 101 thresholds (docs/metrics.md §3)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Mode = Literal["bilinear", "align_corners", "nearest"]
MODES: Final[tuple[str, ...]] = get_args(Mode)
Normalise = Literal["minmax", "max", "none"]
Comparison = Literal[">=", ">"]


THRESHOLDS: Final = (np.arange(101, dtype=np.float64) / 100.0).astype(np.float32)
"""float32 [101], read-only: k/100 in float64, rounded once. Adding up steps of 0.01 gives other values."""
THRESHOLDS.setflags(write=False)

LEVELS: Final = 101
"""Number of thresholds, tau = 0.00 to 1.00."""


def level(tau: float) -> int:
    """Index k of the threshold `tau` = k/100; raises ValueError if `tau` is not one of the 101."""
    k = round(tau * 100)
    if not 0 <= k < LEVELS or abs(tau * 100 - k) > 1e-6:
        raise ValueError(f"{tau} is not one of the thresholds 0.00, 0.01, ..., 1.00")
    return k


@dataclass(frozen=True)
class Sweeping:
    """How maps are read (docs/metrics.md §14); the defaults are the benchmark's.

    upsample: `bilinear` (half-pixel centres), `align_corners` or `nearest`; see `maps.axis`.
    normalise: `minmax`, Mn = (v - min) / (max - min); `max`, Mn = v / max; `none`, Mn = v.
    comparison: a pixel is marked if Mn `>=` or `>` the threshold.
    tau_scale: threshold k is float32(tau_scale * k/100); other than 1 for maps that are not normalised.

    Raises ValueError for an unknown name, or a scale that is not positive and finite.
    """

    upsample: Mode = "bilinear"
    normalise: Normalise = "minmax"
    comparison: Comparison = ">="
    tau_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.upsample not in MODES:
            raise ValueError(f"unknown upsampling {self.upsample!r}; known: {', '.join(MODES)}")
        if self.normalise not in get_args(Normalise):
            raise ValueError(f"unknown normalisation {self.normalise!r}; known: {', '.join(get_args(Normalise))}")
        if self.comparison not in get_args(Comparison):
            raise ValueError(f"the comparison is >= or >, got {self.comparison!r}")
        if not (self.tau_scale > 0 and math.isfinite(self.tau_scale)):
            raise ValueError(f"thresholds need a positive, finite scale, got {self.tau_scale}")

    @property
    def thresholds(self) -> NDArray[np.float32]:
        """float32 [101]: values t_k with Mn >= t_k where Mn passes threshold k.

        Mn > t is Mn >= the next float32 above t, so that one kernel serves both comparisons exactly.
        """
        table = (self.tau_scale * (np.arange(LEVELS, dtype=np.float64) / 100.0)).astype(np.float32)
        return table if self.comparison == ">=" else np.nextafter(table, np.float32(np.inf))

    @property
    def normalisation_number(self) -> int:
        """The normalisation as a number for the kernels: 0 minmax, 1 max, 2 none."""
        return get_args(Normalise).index(self.normalise)

    @property
    def unit_range(self) -> bool:
        """Whether values lie in [0, 1] and thresholds are k/100, for any upsampling, as the fast kernel needs."""
        return (self.normalise, self.comparison, self.tau_scale) == ("minmax", ">=", 1.0)


DEFAULT: Final = Sweeping()
