"""The sweep: saliency grids and regions to counts at all 101 thresholds, in one pass (docs/metrics.md §2-§5)."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from .counts import Counts
from .sampling import Mode
from .tables import Tables, check_frames, check_upsample
from .thresholds import LEVELS, Comparison, threshold_table

__all__ = ["GRID", "Normalise", "pack_masks", "sweep", "unpack_masks"]

Normalise = Literal["minmax", "max", "none"]

GRID: Final = (224, 224)
"""Height and width of the evaluation grid."""


def pack_masks(masks: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Bit masks uint8 [P, H, ceil(W / 8)] of bool [P, H, W]: lowest bit first, every row filled up to whole bytes.

    Raises TypeError unless `masks` is bool, ValueError unless it has three axes.
    """
    if not isinstance(masks, np.ndarray) or masks.dtype != np.bool_:
        raise TypeError(f"masks to pack must be a bool array, got {_kind(masks)}")
    if masks.ndim != 3:
        raise ValueError(f"masks to pack must have shape [P, H, W], got {masks.shape}")
    return np.packbits(masks, axis=-1, bitorder="little")


def unpack_masks(packed: NDArray[np.uint8], width: int) -> NDArray[np.bool_]:
    """The bool [P, H, width] that `pack_masks` packed."""
    return np.unpackbits(packed, axis=-1, count=width, bitorder="little").astype(np.bool_)


def sweep(
    saliency: NDArray[np.float32],
    masks: NDArray[np.bool_] | NDArray[np.uint8],
    *,
    size: tuple[int, int] | None = None,
    frames: NDArray[np.float64] | None = None,
    upsample: Mode = "bilinear",
    normalise: Normalise = "minmax",
    comparison: Comparison = ">=",
    tau_scale: float = 1.0,
    stream: Any = None,
) -> Counts:
    """Counts of P (image, class) pairs: each saliency grid upsampled, min-max normalised and compared with its region.

    saliency: float32 [P, h, w], any scale; the model's own grid.
    masks: regions on the evaluation grid, bool [P, H, W] or as `pack_masks` gives them, uint8 [P, H, ceil(W / 8)].
    size: (H, W); needed for packed masks only if it is not (224, 224).
    frames: float64 [P, 4], the part of the native frame each saliency grid covers as fractions (y0, x0, y1, x1);
        default (0, 0, 1, 1). Pixels outside were not seen by the model and take the map's minimum.
    upsample: `bilinear` (half-pixel centres), `align_corners` or `nearest`; see `sampling.axis`.

    normalise: `minmax`, Mn = (v - min) / (max - min); `max`, Mn = v / max; `none`, Mn = v (docs/metrics.md §14).
    comparison: a pixel is marked if Mn `>=` or `>` the threshold.
    tau_scale: threshold k is float32(tau_scale * k/100); other than 1 for maps that are not normalised.
    stream: only for CuPy arrays, the `cupy.cuda.Stream` to work in; default the current one.

    CuPy arrays are swept on their GPU, and the counts are CuPy arrays there (`Counts.on_host`); same integers.

    The arithmetic is fixed to the last bit (docs/metrics.md §2): float32, horizontal then vertical interpolation
    as v[lo] * (1 - w) + v[hi] * w, Mn = (v - min) / (max - min), comparison Mn >= float32(k / 100). A map that is
    constant, holds a NaN or an infinity at a seen pixel, has a range beyond float32, or of which nothing is seen is
    `degenerate`: Mn = 0 everywhere, no hit; so is, for `max`, a map without a value above 0.

    Raises TypeError for a wrong dtype, ValueError for shapes that do not fit, a bad frame or an unknown upsampling.
    """
    if normalise not in get_args(Normalise):
        raise ValueError(f"unknown normalisation {normalise!r}; known: {', '.join(get_args(Normalise))}")
    thresholds = threshold_table(comparison, tau_scale)
    if type(saliency).__module__.partition(".")[0] == "cupy":
        from .gpu import sweep_on_gpu

        kind = get_args(Normalise).index(normalise)
        return sweep_on_gpu(saliency, masks, size, frames, upsample, kind, thresholds, stream)
    if stream is not None:
        raise TypeError("a stream is for maps that are CuPy arrays")
    height, width, words = _as_words(masks, size)
    pairs = len(words)
    if not isinstance(saliency, np.ndarray) or saliency.dtype != np.float32:
        raise TypeError(f"saliency must be a float32 array, got {_kind(saliency)}")
    if saliency.ndim != 3 or 0 in saliency.shape[1:]:
        raise ValueError(f"saliency must have shape [P, h, w] with h, w >= 1, got {saliency.shape}")
    if len(saliency) != pairs:
        raise ValueError(f"{len(saliency)} saliency maps do not fit {pairs} masks")
    check_upsample(upsample)
    if pairs == 0:
        return Counts.empty()
    tables = Tables.of(check_frames(frames, pairs), pairs, saliency.shape[1:], (height, width), upsample)
    levels = np.empty((pairs, 2, LEVELS), np.int32)
    single = np.empty((pairs, 2), np.int32)
    flags = np.empty((pairs, 2), np.bool_)
    common = (np.ascontiguousarray(saliency), words, width, *tables.arrays)
    if (normalise, comparison, tau_scale) == ("minmax", ">=", 1.0):
        from .cpu import sweep_batch  # compiles, so only where a sweep is run

        sweep_batch(*common, levels, single, flags)
    else:
        from .plain import sweep_plain

        sweep_plain(*common, get_args(Normalise).index(normalise), thresholds, levels, single, flags)
    area, overlap = (np.ascontiguousarray(levels[:, i]) for i in range(2))
    region, argmax = (np.ascontiguousarray(single[:, i]) for i in range(2))
    hit, degenerate = (np.ascontiguousarray(flags[:, i]) for i in range(2))
    return Counts(area, overlap, region, argmax, hit, degenerate)


def _kind(value: object) -> str:
    return f"{value.dtype} array" if isinstance(value, np.ndarray) else type(value).__name__


def _as_words(
    masks: NDArray[np.bool_] | NDArray[np.uint8], size: tuple[int, int] | None
) -> tuple[int, int, NDArray[np.uint32]]:
    """Height, width and the masks as rows of 32-bit words."""
    if not isinstance(masks, np.ndarray) or masks.dtype not in (np.bool_, np.uint8):
        raise TypeError(f"masks must be a bool or a packed uint8 array, got {_kind(masks)}")
    if masks.ndim != 3:
        raise ValueError(f"masks must have three axes, [P, H, W] or packed [P, H, ceil(W / 8)], got {masks.shape}")
    if masks.dtype == np.bool_:
        height, width = masks.shape[1:]
        if size is not None and tuple(size) != (height, width):
            raise ValueError(f"size {tuple(size)} does not fit masks of {(height, width)}")
        packed = np.packbits(masks, axis=-1, bitorder="little")
    else:
        height, width = GRID if size is None else size
        packed = masks.view(np.uint8)
        if packed.shape[1:] != (height, (width + 7) // 8):
            raise ValueError(f"packed masks of shape {packed.shape} do not fit size {(height, width)}")
    if height < 1 or width < 1:
        raise ValueError(f"the evaluation grid needs at least one pixel, got {(height, width)}")
    short = -packed.shape[2] % 4
    if short:
        packed = np.pad(packed, ((0, 0), (0, 0), (0, short)))
    words = np.ascontiguousarray(packed).view(np.dtype("<u4"))
    return height, width, np.require(words, np.uint32, ("C", "A"))
