"""The sweep: saliency grids and regions to counts at all 101 thresholds, in one pass (docs/metrics.md §2-§5)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arguments import check_frames, check_maps, grid_size, kind_of
from .counts import Counts
from .masks import GRID
from .sweep_options import DEFAULT, Sweeping
from .tables import Tables


def sweep(
    saliency: NDArray[np.float32],
    masks: NDArray[np.bool_] | NDArray[np.uint8],
    *,
    size: tuple[int, int] | None = None,
    frames: NDArray[np.float64] | None = None,
    sweeping: Sweeping = DEFAULT,
    stream: Any = None,
) -> Counts:
    """Counts of P (image, class) pairs: each saliency grid upsampled, min-max normalised and compared with its region.

    saliency: float32 [P, h, w], any scale; the model's own grid.
    masks: regions on the evaluation grid, bool [P, H, W] or as `pack_masks` gives them, uint8 [P, H, ceil(W / 8)].
    size: (H, W); needed for packed masks only if it is not (224, 224).
    frames: float64 [P, 4], the part of the native frame each saliency grid covers as fractions (y0, x0, y1, x1);
        default (0, 0, 1, 1). Pixels outside were not seen by the model and take the map's minimum.
    sweeping: how maps are upsampled, normalised and compared; default: bilinear, min-max, Mn >= k/100.
    stream: only for CuPy arrays, the `cupy.cuda.Stream` to work in; default the current one.

    CuPy arrays are swept on their GPU, and the counts are CuPy arrays there (`Counts.on_host`); same integers.

    The arithmetic is fixed to the last bit (docs/metrics.md §2): float32, horizontal then vertical interpolation
    as v[lo] * (1 - w) + v[hi] * w, Mn = (v - min) / (max - min), comparison Mn >= float32(k / 100). A map that is
    constant, holds a NaN or an infinity at a seen pixel, has a range beyond float32, or of which nothing is seen is
    `degenerate`: Mn = 0 everywhere, no hit; so is, for `max`, a map without a value above 0.

    Raises TypeError for a wrong dtype, ValueError for shapes that do not fit or a bad frame.
    """
    if type(saliency).__module__.partition(".")[0] == "cupy":
        from .gpu import sweep_on_gpu

        return sweep_on_gpu(saliency, masks, size, frames, sweeping, stream)
    if stream is not None:
        raise TypeError("a stream is for maps that are CuPy arrays")
    if not isinstance(masks, np.ndarray) or masks.dtype not in (np.bool_, np.uint8):
        raise TypeError(f"masks must be a bool or a packed uint8 array, got {kind_of(masks)}")
    height, width = grid_size(masks, size, GRID)
    if not isinstance(saliency, np.ndarray):
        raise TypeError(f"saliency must be a float32 array, got {kind_of(saliency)}")
    pairs = len(masks)
    check_maps(saliency, pairs)
    if pairs == 0:
        return Counts.empty()
    tables = Tables.of(check_frames(frames, pairs), pairs, saliency.shape[1:], (height, width), sweeping.upsample)
    common = (np.ascontiguousarray(saliency), _as_words(masks), width, tables.arrays)
    if sweeping.unit_range:
        from .cpu import sweep_batch  # compiles on import, so only when a sweep is run

        levels, single, flags = sweep_batch(*common)
    else:
        from .plain import sweep_plain

        levels, single, flags = sweep_plain(*common, sweeping.normalisation_number, sweeping.thresholds)
    return Counts(*levels, *single, *flags)


def _as_words(masks: NDArray[np.bool_] | NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Checked masks as rows of 32-bit words."""
    packed = np.packbits(masks, axis=-1, bitorder="little") if masks.dtype == np.bool_ else masks.view(np.uint8)
    short = -packed.shape[2] % 4
    if short:
        packed = np.pad(packed, ((0, 0), (0, 0), (0, short)))
    words = np.ascontiguousarray(packed).view(np.dtype("<u4"))
    return np.require(words, np.uint32, ("C", "A"))
