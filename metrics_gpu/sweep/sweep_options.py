"""The options of a sweep: upsampling, normalisation, comparison and the range of thresholds, as one dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from .thresholds import Comparison, threshold_table

__all__ = ["DEFAULT", "MODES", "Mode", "Normalise", "Sweeping"]

Mode = Literal["bilinear", "align_corners", "nearest"]
MODES: Final[tuple[str, ...]] = get_args(Mode)
Normalise = Literal["minmax", "max", "none"]


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
        threshold_table(self.comparison, self.tau_scale)

    @property
    def thresholds(self) -> NDArray[np.float32]:
        """float32 [101]: values t_k with Mn >= t_k where Mn passes threshold k."""
        return threshold_table(self.comparison, self.tau_scale)

    @property
    def kind(self) -> int:
        """The normalisation as a number for the kernels: 0 minmax, 1 max, 2 none."""
        return get_args(Normalise).index(self.normalise)

    @property
    def unit_range(self) -> bool:
        """Whether values lie in [0, 1] and thresholds are k/100, for any upsampling, as the fast kernel needs."""
        return (self.normalise, self.comparison, self.tau_scale) == ("minmax", ">=", 1.0)


DEFAULT: Final = Sweeping()
