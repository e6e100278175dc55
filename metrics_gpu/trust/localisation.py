"""How well maps find regions, pixel by pixel: exact measures of the canonical maps (docs/trust.md §1.1).

The counts of 101 thresholds do not suffice for these measures where most pixels fall into the lowest bin, so the maps
themselves are ranked. A map is ranked once and can be scored on several regions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..sweep.arguments import check_frames, check_maps, grid_size
from ..sweep.masks import GRID, pack_masks
from ..sweep.sweep_options import Mode
from ..sweep.tables import Tables

Float = NDArray[np.float64]

MEASURES: Final = ("average_precision", "roc_auc", "energy", "cnr", "pointing")
"""The measures of a map and a region, the main one first."""


@dataclass(frozen=True, eq=False)
class Localisation:
    """Scores of M maps on a region each, float64 [M], NaN where undefined.

    average_precision: step-wise. trapezoid: the area under straight lines between the points of the same curve, which
    rewards ties; only for comparison. fraction: of the seen pixels that lie in the region, the chance level of average
    precision, energy and pointing. degenerate: bool [M], of the map. unseen: bool [M], the region has pixels, but the
    model sees none of them. Where a region has no pixel at all, every score is NaN.
    """

    average_precision: Float
    trapezoid: Float
    roc_auc: Float
    energy: Float
    cnr: Float
    pointing: Float
    fraction: Float
    degenerate: NDArray[np.bool_]
    unseen: NDArray[np.bool_]

    @property
    def measures(self) -> Float:
        """float64 [M, 5]: `MEASURES`."""
        return np.column_stack([getattr(self, name) for name in MEASURES])


def localise(
    saliency: NDArray[np.float32],
    masks: NDArray[np.bool_] | NDArray[np.uint8],
    *,
    frames: Float | None = None,
    upsample: Mode = "bilinear",
    full_image: bool = False,
    pairs: tuple[NDArray[np.intp], NDArray[np.intp]] | None = None,
) -> Localisation:
    """Scores of N maps on Q regions: each map on the region of the same place, or M combinations.

    saliency, frames, upsample: as `sweep.sweep` takes them, float32 [N, h, w], float64 [N, 4]; maps are scaled to
    [0, 1] by their extremes. full_image: each map covers the whole image, and its frame only says what is seen. masks:
    regions on the grid of 224 x 224, bool [Q, 224, 224] or packed uint8 [Q, 224, 28]. pairs: intp [M] twice, which map
    is scored on which region. About 0.6 ms a map and 0.05 ms a region.

    A degenerate map has the scores of a constant one: pointing and CNR 0, ROC AUC 0.5, average precision and energy the
    fraction of the region; so has every map on a region of which the model sees no pixel. ROC AUC and CNR of a region
    of all seen pixels are NaN, and so is CNR of a map that is constant inside and constant outside.

    Raises TypeError for a wrong dtype, ValueError for shapes that do not fit or a bad frame.
    """
    if not isinstance(masks, np.ndarray) or masks.dtype not in (np.bool_, np.uint8):
        raise TypeError("masks must be a bool or a packed uint8 array")
    if grid_size(masks, None, GRID) != GRID:
        raise ValueError(f"regions must lie on the grid of {GRID[0]} x {GRID[1]} pixels, got {masks.shape}")
    if pairs is None:
        pairs = np.arange(len(masks)), np.arange(len(masks))
        check_maps(saliency, len(masks))
    map_of, region_of = pairs
    check_maps(saliency, len(saliency))
    for name, chosen, number in (("maps", map_of, len(saliency)), ("regions", region_of, len(masks))):
        if len(chosen) and not (chosen.min() >= 0 and chosen.max() < number):
            raise ValueError(f"{name} must lie in 0..{number - 1}")
    order = np.argsort(map_of, kind="stable")
    starts = np.searchsorted(map_of[order], np.arange(len(saliency) + 1))
    packed = pack_masks(masks.astype(np.bool_)) if masks.dtype == np.bool_ else masks.view(np.uint8)
    regions = np.ascontiguousarray(packed.reshape(len(packed), GRID[0] * (GRID[1] // 8)))
    scored, degenerate = np.empty((len(order), 7)), np.zeros(len(saliency), np.bool_)
    if len(saliency):
        from .ranked_pixels import score_regions  # compiles on import

        spans = check_frames(frames, len(saliency))
        cells = saliency.shape[1:]
        tables = Tables.of(spans, len(saliency), cells, GRID, upsample)
        if full_image:
            tables = Tables.of(check_frames(None, 1), 1, cells, GRID, upsample).seen_through(tables)
        rows = region_of[order].astype(np.int64)
        scores, degenerate = score_regions(
            np.ascontiguousarray(saliency), tables.arrays, regions, starts.astype(np.int64), rows
        )
        scored[order] = scores
    pixels: NDArray[np.bool_] = np.asarray(regions.any(axis=1))[region_of]
    scored[~pixels] = np.nan
    average_precision, trapezoid, roc_auc, energy, cnr, pointing, fraction = scored.T
    return Localisation(
        average_precision,
        trapezoid,
        roc_auc,
        energy,
        cnr,
        pointing,
        fraction,
        degenerate=degenerate[map_of],
        unseen=pixels & (fraction == 0),
    )
