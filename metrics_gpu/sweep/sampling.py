"""Sampling tables: the saliency cells and the weight from which each pixel of the evaluation grid is interpolated.

Every upsampling variant and every field of view is a table of two cell indices and a weight per pixel and axis, so that
one kernel serves all of them (docs/metrics.md §1 and §14 rows 2 and 3, docs/datasets.md §0.3). Tables are
computed in float64 and rounded once to float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .sweep_options import MODES, Mode

__all__ = ["Axis", "axis"]


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis of the evaluation grid: pixel value = v[lo] * (1 - weight) + v[hi] * weight.

    lo, hi: int32 [pixels], indices into the saliency grid, both -1 where the model does not see the pixel.
    weight: float32 [pixels] in [0, 1].
    """

    lo: NDArray[np.int32]
    hi: NDArray[np.int32]
    weight: NDArray[np.float32]

    @property
    def seen(self) -> NDArray[np.bool_]:
        """bool [pixels]: the pixel's centre lies inside the field of view."""
        return self.lo >= 0


def axis(cells: int, pixels: int, start: float = 0.0, stop: float = 1.0, mode: Mode = "bilinear") -> Axis:
    """Sampling table of one axis.

    cells, pixels: lengths of the saliency grid and of the evaluation grid along this axis.
    start, stop: the part of the native frame that the saliency grid covers, as fractions of the frame's length; below 0
        or above 1 where the model's input is padded. A pixel i is seen iff start <= (i + 0.5) / pixels < stop.
    mode: `bilinear` with half-pixel centres; `align_corners`, outer pixel centres on outer cell centres (MAVL);
        `nearest`, the cell that holds the pixel's centre, at full view a plain repetition (MedKLIP).

    Raises ValueError for an unknown mode, lengths below 1, or an empty or non-finite field of view.
    """
    if mode not in MODES:
        raise ValueError(f"unknown upsampling {mode!r}; known: {', '.join(MODES)}")
    if cells < 1 or pixels < 1:
        raise ValueError(f"an axis needs at least one cell and one pixel, got {cells} and {pixels}")
    if not (math.isfinite(start) and math.isfinite(stop) and start < stop):
        raise ValueError(f"a field of view needs finite start < stop, got {start} to {stop}")

    index = np.arange(pixels, dtype=np.float64)
    centre = (index + 0.5) / pixels
    inside = (centre - start) / (stop - start)
    if mode == "align_corners":
        covered = pixels * (stop - start)
        step = (cells - 1) / (covered - 1) if covered > 1 else 0.0
        source = (index - start * pixels) * step
    else:
        source = inside * cells - (0.5 if mode == "bilinear" else 0.0)
    source = np.clip(source, 0.0, cells - 1.0 if mode != "nearest" else np.nextafter(float(cells), 0.0))

    lo = np.floor(source).astype(np.int32)
    if mode == "nearest":
        hi, weight = lo.copy(), np.zeros(pixels, np.float32)
    else:
        hi = np.minimum(lo + 1, cells - 1).astype(np.int32)
        weight = (source - lo).astype(np.float32)
    unseen = (centre < start) | (centre >= stop)
    lo[unseen] = hi[unseen] = -1
    weight[unseen] = 0.0
    for table in (lo, hi, weight):
        table.setflags(write=False)
    return Axis(lo, hi, weight)
