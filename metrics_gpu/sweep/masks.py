"""Masks: the size of the evaluation grid, packing to bits for the sweep, and runs."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from .arguments import kind_of

GRID: Final = (224, 224)
"""Height and width of the evaluation grid."""


def pack_masks(masks: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Bit masks uint8 [P, H, ceil(W / 8)] of bool [P, H, W]: lowest bit first, every row filled up to whole bytes.

    Raises TypeError unless `masks` is bool, ValueError unless it has three axes.
    """
    if not isinstance(masks, np.ndarray) or masks.dtype != np.bool_:
        raise TypeError(f"masks to pack must be a bool array, got {kind_of(masks)}")
    if masks.ndim != 3:
        raise ValueError(f"masks to pack must have shape [P, H, W], got {masks.shape}")
    return np.packbits(masks, axis=-1, bitorder="little")


def unpack_masks(packed: NDArray[np.uint8], width: int) -> NDArray[np.bool_]:
    """The bool [P, H, width] that `pack_masks` packed."""
    return np.unpackbits(packed, axis=-1, count=width, bitorder="little").astype(np.bool_)


def encode_runs(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The column-major runs of a mask [height, width], alternating 0 and 1 and starting with 0."""
    flat = mask.T.ravel()
    edges = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    edges = np.concatenate(([0] if flat[0] else [], edges, [flat.size])).astype(np.int64)
    return np.diff(edges, prepend=0)


def masks_in_view(masks: NDArray[np.bool_], frame: tuple[float, float, float, float], size: int) -> NDArray[np.bool_]:
    """Masks bool [P, H, W] in the view of a model, bool [P, size, size]: each pixel's centre is looked up.

    frame: (y0, x0, y1, x1), the part of the image that the view covers, as fractions; outside the image is False.
    """
    along = [
        np.floor((start + (np.arange(size) + 0.5) / size * (stop - start)) * pixels).astype(np.intp)
        for start, stop, pixels in zip(frame[:2], frame[2:], masks.shape[1:], strict=True)
    ]
    inside = [(index >= 0) & (index < pixels) for index, pixels in zip(along, masks.shape[1:], strict=True)]
    rows, columns = (np.clip(index, 0, pixels - 1) for index, pixels in zip(along, masks.shape[1:], strict=True))
    viewed: NDArray[np.bool_] = masks[:, rows[:, None], columns] & np.logical_and.outer(*inside)
    return viewed
