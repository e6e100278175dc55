"""Checks the arguments of a sweep, of NumPy and CuPy arrays; each error message is one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def kind_of(value: object) -> str:
    """The kind of a value for an error message: the dtype of an array, else the type."""
    return f"{value.dtype} array" if hasattr(value, "dtype") else type(value).__name__


def check_maps(saliency: Any, pairs: int) -> None:
    """TypeError or ValueError unless `saliency` is float32 [pairs, h, w]."""
    if getattr(saliency, "dtype", None) != np.float32:
        raise TypeError(f"saliency must be a float32 array, got {kind_of(saliency)}")
    if saliency.ndim != 3 or 0 in saliency.shape[1:]:
        raise ValueError(f"saliency must have shape [P, h, w] with h, w >= 1, got {saliency.shape}")
    if len(saliency) != pairs:
        raise ValueError(f"{len(saliency)} saliency maps do not fit {pairs} masks")


def grid_size(masks: Any, size: tuple[int, int] | None, default: tuple[int, int]) -> tuple[int, int]:
    """Height and width of masks bool [P, H, W], or packed uint8 [P, H, ceil(W / 8)] of `size` or the default size.

    Raises ValueError where the masks do not have three axes, do not fit `size`, or have no pixel.
    """
    if masks.ndim != 3:
        raise ValueError(f"masks must have three axes, [P, H, W] or packed [P, H, ceil(W / 8)], got {masks.shape}")
    if masks.dtype == np.bool_:
        height, width = masks.shape[1:]
        if size is not None and tuple(size) != (height, width):
            raise ValueError(f"size {tuple(size)} does not fit masks of {(height, width)}")
    else:
        height, width = default if size is None else size
        if masks.shape[1:] != (height, (width + 7) // 8):
            raise ValueError(f"packed masks of shape {masks.shape} do not fit size {(height, width)}")
    if height < 1 or width < 1:
        raise ValueError(f"the evaluation grid needs at least one pixel, got {(height, width)}")
    return height, width


def check_frames(frames: NDArray[np.float64] | None, pairs: int) -> NDArray[np.float64]:
    """Checked fields of view [P, 4]; a single row if all pairs share the whole frame."""
    if frames is None:
        return np.array([[0.0, 0.0, 1.0, 1.0]])
    spans = np.asarray(frames, np.float64)
    if spans.shape != (pairs, 4):
        raise ValueError(f"frames must have shape {(pairs, 4)}, got {spans.shape}")
    bad = np.flatnonzero(~(np.isfinite(spans).all(axis=1) & (spans[:, :2] < spans[:, 2:]).all(axis=1)))
    if len(bad):
        raise ValueError(f"frame {bad[0]} must be finite with y0 < y1 and x0 < x1, got {spans[bad[0]].tolist()}")
    return spans
