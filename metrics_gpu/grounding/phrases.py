"""The evaluation of phrase grounding that BioViL's authors describe and AFLoc re-implements: CNR and mean IoU.

A map is smoothed on its own grid, drawn over the part of the image that the network saw, and normalised to [-1, 1]
there. Pixels that it did not see are NaN and count in neither map nor region, so a region in that border costs nothing.
`PhraseScores` keeps these regions and constant maps apart, so that they can be counted, or count as 0
(docs/metrics.md §16).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..statistics.exact_sums import exact_mean
from ..sweep.maps import WHOLE, Frame, upsampled

Floats = NDArray[np.float64]
SIGMA: Final = 1.5
"""Of the Gaussian, in cells of the map."""
IOU_THRESHOLDS: Final = tuple(float(t) for t in np.arange(0.1, 0.6, 0.1))
"""On the scale -1 to 1; NumPy's third one is 0.30000000000000004."""


def smoothed(maps: NDArray[Any], sigma: float = SIGMA) -> Any:
    """Maps [..., h, w] after SciPy's `gaussian_filter` with its defaults (reflect, truncate 4), in their type.

    The filter is a matrix for each axis.
    """
    down, across = (_gaussian(side, sigma) for side in maps.shape[-2:])
    return (down @ maps.astype(np.float64) @ across.T).astype(maps.dtype)


@lru_cache(maxsize=64)
def _gaussian(side: int, sigma: float) -> Floats:
    from scipy.ndimage import gaussian_filter1d

    matrix: Floats = gaussian_filter1d(np.eye(side), sigma, axis=0)
    matrix.setflags(write=False)
    return matrix


@dataclass(frozen=True)
class PhraseScores:
    """The scores of one pair. iou: at each of `IOU_THRESHOLDS`; NaN, as `cnr`, where the region lies in the border.

    cnr: signed. constant: the map has no range, so both are 0. unseen: all of the region lies in the border.
    """

    cnr: float
    iou: tuple[float, ...]
    constant: bool = False
    unseen: bool = False

    @property
    def miou(self) -> float:
        """The mean over the thresholds, NaN for an unseen region."""
        return float(np.mean(self.iou))


def phrase_scores(values: NDArray[Any], region: NDArray[Any]) -> PhraseScores:
    """The scores of a map [H, W], NaN where the network saw nothing, and a region [H, W].

    region: bool, or how many boxes cover a pixel; then pixels of several boxes are left out of CNR, as AFLoc does.
    """
    seen = ~np.isnan(values)
    inside, covered = region[seen] > 0, np.asarray(region[seen], np.uint8)
    nothing = (math.nan,) * len(IOU_THRESHOLDS)
    if not inside.any():
        return PhraseScores(math.nan, nothing, unseen=True)
    seen_values = np.asarray(values[seen], np.float64)
    low, high = seen_values.min(), seen_values.max()
    if not (np.isfinite(low) and np.isfinite(high) and high > low):
        return PhraseScores(0.0, (0.0,) * len(IOU_THRESHOLDS), constant=True)
    scaled = 2 * (seen_values - low) / (high - low) - 1
    marked = [scaled > threshold for threshold in IOU_THRESHOLDS]
    iou = tuple(float((mark & inside).sum() / (mark | inside).sum()) for mark in marked)
    return PhraseScores(_contrast(scaled[covered == 1], scaled[covered == 0]), iou)


def scores_on_grid(
    saliency: NDArray[np.float32], region: NDArray[np.bool_], frame: Frame = WHOLE, *, sigma: float = SIGMA
) -> PhraseScores:
    """The scores of a map [h, w] that covers the part `frame` (y0, x0, y1, x1) of the image, and a region of the image
    on a grid [H, W]: smoothed, upsampled bilinearly, NaN outside the frame. A map that is not finite is constant.

    sigma: of the Gaussian, in cells; 0 for a map that its model has smoothed."""
    cells = smoothed(saliency, sigma) if sigma else saliency
    drawn = upsampled(cells, (region.shape[0], region.shape[1]), frame)
    if not np.isfinite(drawn.values).all():
        drawn = replace(drawn, values=np.zeros_like(drawn.values))
    return phrase_scores(drawn.full_image(np.nan), region)


def _contrast(inside: Floats, outside: Floats) -> float:
    if not inside.size or not outside.size:
        return math.nan
    spread = math.sqrt(inside.var() + outside.var())
    # On the scale -1 to 1, less is the rounding of equal values.
    return float((inside.mean() - outside.mean()) / spread) if spread > 1e-12 else 0.0


@dataclass(frozen=True)
class PhraseMeans:
    """Means over the pairs of each category, then over the categories.

    cnr, cnr_absolute, iou (at each threshold) and miou leave unseen regions out, as the authors do, and count constant
    maps as 0. miou_with_unseen counts unseen regions as 0 too. unseen, constant: how many pairs these are.
    """

    cnr: float
    cnr_absolute: float
    iou: tuple[float, ...]
    miou: float
    miou_with_unseen: float
    pairs: int
    unseen: int
    constant: int


def phrase_means(scores: Sequence[PhraseScores], categories: Sequence[str]) -> PhraseMeans:
    """The means of pairs; `categories`: one for each pair. NaN without any pair."""
    members = [np.flatnonzero(np.array(categories) == name) for name in dict.fromkeys(categories)]

    def mean(values: Sequence[float]) -> float:
        numbers = np.array(values, np.float64)
        return _mean([_mean(numbers[pairs]) for pairs in members])

    iou = tuple(mean([score.iou[t] for score in scores]) for t in range(len(IOU_THRESHOLDS)))
    return PhraseMeans(
        cnr=mean([score.cnr for score in scores]),
        cnr_absolute=mean([abs(score.cnr) for score in scores]),
        iou=iou,
        miou=_mean(iou),
        miou_with_unseen=mean([0.0 if score.unseen else score.miou for score in scores]),
        pairs=len(scores),
        unseen=sum(s.unseen for s in scores),
        constant=sum(s.constant for s in scores),
    )


def _mean(values: ArrayLike) -> float:
    mean = exact_mean(np.asarray(values, np.float64))
    return math.nan if mean is None else mean
