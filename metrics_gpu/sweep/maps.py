"""Sampling tables, and full-size maps on the evaluation grid where counts are not enough: overlays, other maps.

A table holds the saliency cells and the weight from which each pixel of the evaluation grid is interpolated. Every
upsampling variant and every field of view is a table of two cell indices and a weight per pixel and axis, so that one
kernel serves all of them (docs/metrics.md §1 and §14 rows 2 and 3, docs/datasets.md §0.3). Tables are computed in
float64 and rounded once to float32.

The arithmetic of maps is the sweep's to the last bit (docs/metrics.md §2), so `scaled_map(...) >= threshold` marks
exactly the pixels that the sweep counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .masks import GRID
from .sweep_options import DEFAULT, MODES, Mode, Sweeping


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


Frame = tuple[float, float, float, float]
WHOLE: Final[Frame] = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True, eq=False)
class Upsampled:
    """A map on the evaluation grid: values float32 [n, m] of the pixels that the model sees, and the rows and columns
    of these pixels, bool [H] and [W]."""

    values: NDArray[np.float32]
    rows: NDArray[np.bool_]
    columns: NDArray[np.bool_]

    def full_image(self, rest: np.float32 | float) -> NDArray[np.float32]:
        """float32 [H, W]: the map, with `rest` at the pixels that the model does not see."""
        out = np.full((len(self.rows), len(self.columns)), rest, np.float32)
        out[np.ix_(self.rows, self.columns)] = self.values
        return out


def upsampled(
    saliency: NDArray[np.float32], size: tuple[int, int], frame: Frame = WHOLE, mode: Mode = "bilinear"
) -> Upsampled:
    """A map float32 [h, w] upsampled to `size`, where it covers the part `frame` (y0, x0, y1, x1) of the image.

    Raises TypeError for another dtype, ValueError for another shape or frame.
    """
    if not isinstance(saliency, np.ndarray) or saliency.dtype != np.float32:
        raise TypeError("a saliency map must be a float32 array")
    if saliency.ndim != 2 or 0 in saliency.shape:
        raise ValueError(f"a saliency map must have shape [h, w], got {saliency.shape}")
    rows = axis(saliency.shape[0], size[0], frame[0], frame[2], mode)
    columns = axis(saliency.shape[1], size[1], frame[1], frame[3], mode)
    y, x = rows.seen, columns.seen
    across_weight, down_weight = columns.weight[x], rows.weight[y][:, None]
    one = np.float32(1)
    with np.errstate(invalid="ignore", over="ignore"):
        across = saliency[:, columns.lo[x]] * (one - across_weight) + saliency[:, columns.hi[x]] * across_weight
        values = across[rows.lo[y]] * (one - down_weight) + across[rows.hi[y]] * down_weight
    return Upsampled(values, y, x)


def scaled_map(
    saliency: NDArray[np.float32],
    *,
    size: tuple[int, int] = GRID,
    frame: Frame = WHOLE,
    sweeping: Sweeping = DEFAULT,
) -> NDArray[np.float32]:
    """float32 [H, W]: one map float32 [h, w] upsampled and normalised as `sweep.sweep` does with these arguments.

    Pixels the model does not see have the smallest value of those it sees; a map that is degenerate is 0 everywhere.
    Raises TypeError for another dtype, ValueError for another shape or frame.
    """
    drawn = upsampled(saliency, size, frame, sweeping.upsample)
    zero, one = np.float32(0), np.float32(1)
    if not drawn.values.size:
        return np.zeros(size, np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        low, high = drawn.values.min(), drawn.values.max()
        span = high - low
    finite = np.isfinite(drawn.values).all() and np.isfinite(span)
    if not (finite and span > 0) or (sweeping.normalise == "max" and not high > 0):
        return np.zeros(size, np.float32)
    offset = low if sweeping.normalise == "minmax" else zero
    scale = {"minmax": span, "max": high, "none": one}[sweeping.normalise]
    scaled = ((drawn.values - offset) / scale).astype(np.float32, copy=False)
    return replace(drawn, values=scaled).full_image((low - offset) / scale)
