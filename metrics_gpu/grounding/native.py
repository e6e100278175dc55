"""The evaluation protocol of the CheXlocalize benchmark, which differs from ours (docs/metrics.md §11.1).

Maps are compared with the regions at the image's native size. A map is resized bilinearly with half-pixel centres, then
scaled by its minimum and maximum over the full-resolution map, and cut with `>` at the threshold of its class. A class
without a threshold uses Otsu's method on the map scaled to 0..255 and truncated to 8 bits; its filled contours are the
segmentation: holes belong to it, and single pixels, which have no contour, do not. Values of an image count only
where the region is not empty and, on the true positive slice, the cut map is not empty either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..sweep.maps import upsampled

TUNED: Final[Mapping[str, float]] = {
    "Airspace Opacity": 0.4,
    "Atelectasis": 0.4,
    "Cardiomegaly": 0.2,
    "Consolidation": 0.4,
    "Edema": 0.4,
    "Enlarged Cardiomediastinum": 0.2,
    "Lung Lesion": 0.7,
    "Pleural Effusion": 0.6,
    "Pneumothorax": 0.6,
    "Support Devices": 0.4,
}
"""The benchmark's thresholds for its Grad-CAM maps, tuned on the validation set in steps of 0.1."""

_NEIGHBOURS: Final = np.arange(9).reshape(3, 3) != 4

SEARCHED: Final = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""The thresholds among which the benchmark tunes one for each class."""


def native_map(
    saliency: NDArray[np.float32],
    height: int,
    width: int,
    frame: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0),
) -> NDArray[np.float32]:
    """float32 [height, width]: a map float32 [h, w] resized to the image, not scaled.

    frame: (y0, x0, y1, x1), the part of the image the map covers; pixels outside take the minimum of those inside, as
    in the sweep. Raises TypeError for another dtype, ValueError for another shape or a map that is not finite at one of
    these pixels; a cell that no pixel samples decides nothing.
    """
    drawn = upsampled(saliency, (height, width), frame)
    if not np.isfinite(drawn.values).all():
        raise ValueError("the saliency map is not finite")
    return drawn.full_image(drawn.values.min() if drawn.values.size else 0.0)


def segment(native: NDArray[np.float32], threshold: float | None = None) -> NDArray[np.bool_]:
    """bool [H, W]: the pixels of a full-resolution map that count as the finding.

    threshold: in [0, 1], of the map scaled by its minimum and maximum; None: Otsu's method. A constant map, which the
    benchmark's arithmetic turns into 0 / 0, gives an empty segmentation.
    """
    low, high = native.min(), native.max()
    if not high > low:
        return np.zeros(native.shape, np.bool_)
    scaled = (native - low) / (high - low)
    if threshold is not None:
        return np.asarray(scaled > np.float32(threshold))
    levels = (np.float32(255) * scaled).astype(np.uint8)
    return with_filled_holes(levels > otsu_level(levels))


def with_filled_holes(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """bool [H, W]: the mask as drawn by its filled contours: with all enclosed pixels, without single pixels.

    A pixel is enclosed if no path of side-connected pixels outside the mask leads from it to the border. A single pixel
    has none of its eight neighbours in the mask.
    """
    from scipy import ndimage

    return np.asarray(ndimage.binary_fill_holes(mask & ndimage.binary_dilation(mask, _NEIGHBOURS)), np.bool_)


def otsu_level(levels: NDArray[np.uint8]) -> int:
    """The level that splits an 8-bit image with the largest variance between the two sides, `levels <= result` and
    `levels > result`; of equal ones the lowest (N. Otsu, IEEE Trans. SMC 9, 1979)."""
    counts = np.bincount(levels.ravel(), minlength=256).astype(np.float64)
    share = counts / counts.sum()
    below = np.cumsum(share)
    first = np.cumsum(share * np.arange(256))
    above, mean = 1.0 - below, first[-1]
    usable = (below > np.finfo(np.float32).eps) & (above > np.finfo(np.float32).eps)
    between = np.zeros(256)
    between[usable] = (mean * below - first)[usable] ** 2 / (below * above)[usable]
    return int(np.argmax(between))


def iou(segmented: NDArray[np.bool_], region: NDArray[np.bool_], *, true_positives_only: bool = True) -> float:
    """Intersection over union of two masks of one shape; NaN where the pair does not count.

    It does not count when the region is empty, or, with `true_positives_only`, the segmentation is. Raises ValueError
    when the shapes differ.
    """
    if segmented.shape != region.shape:
        raise ValueError(f"a segmentation of {segmented.shape} cannot be compared with a region of {region.shape}")
    if not region.any() or (true_positives_only and not segmented.any()):
        return math.nan
    return float(np.count_nonzero(segmented & region) / np.count_nonzero(segmented | region))
