"""Whether the maps of a folder fit the regions much better when they are mirrored, turned or transposed.

The check looks at the truth, so it is a diagnosis of the files and no score: it says one sentence and changes nothing
(docs/own-maps.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ImageError
from ....metrics_gpu.statistics.ranks import mean_ranks
from ....metrics_gpu.sweep.maps import upsampled
from ....metrics_gpu.sweep.masks import GRID
from .baselines import draw_case

if TYPE_CHECKING:
    from ...data.datasets.dataset import Case
    from ...data.images.contents import Contents
    from .map_files import CaseMaps

_MOST: Final = 200  # pairs that are read, spread over the dataset; more say nothing else
_FEW: Final = 10  # pairs below which the check says nothing (docs/own-maps.md)
_AT_LEAST: Final = 0.6  # mean AUC of the other reading
_BETTER: Final = 0.1
_SURE: Final = 0.85  # mean AUC that no pattern shared by all maps has on findings of many places
_ERRORS: Final = 4.0  # standard errors of the mean difference
_SIDE: Final = 56  # cells a side, each of 4 x 4 pixels of the evaluation grid

Turn = Callable[[NDArray[np.bool_]], NDArray[np.bool_]]

_TURNS: Final[dict[str, Turn]] = {
    "transposed (rows as columns)": lambda mask: mask.T,
    "mirrored (left as right)": lambda mask: mask[:, ::-1],
    "upside down (top as bottom)": lambda mask: mask[::-1],
    "turned by 180 degrees": lambda mask: mask[::-1, ::-1],
    "turned by 90 degrees to the left": lambda mask: np.rot90(mask, -1),
    "turned by 90 degrees to the right": lambda mask: np.rot90(mask),
    "transposed and turned by 180 degrees": lambda mask: mask[::-1, ::-1].T,
}
"""How the maps would be read -> where their cells then meet the region: the inverse, applied to the region."""


def orientation_check(maps: CaseMaps, cases: Sequence[Case], findings: Sequence[str], contents: Contents) -> str:
    """One sentence if another reading of the maps fits the regions clearly better in the mean over pairs, else empty.

    The value of a pair is the ROC AUC of the map's cells against the region, which needs no threshold. Clearly: at
    least 0.6, at least 0.1 more than as the maps are, and the differences of the pairs are 4 standard errors from 0,
    also without the mean of all maps, unless the value is at least 0.85.
    """
    grids, regions = _read(maps, _spread(cases, findings), contents)
    if len(grids) < _FEW:
        return ""
    values = _aucs(grids, regions)
    means = values.mean(axis=0)
    best = int(np.argmax(means[1:])) + 1
    if means[best] < _AT_LEAST or not _clear(values[:, best] - values[:, 0], _BETTER):
        return ""
    # A pattern that all maps share, such as a bright corner, can fit better elsewhere by where findings tend to lie.
    centred = _aucs(grids - grids.mean(axis=0), regions)
    if means[best] < _SURE and not _clear(centred[:, best] - centred[:, 0], 0.0):
        return ""
    return (
        f"read as {list(_TURNS)[best - 1]}, the maps would fit the regions better (mean ROC AUC {means[best]:.2f} "
        f"instead of {means[0]:.2f} in {len(grids)} pairs); they were read as they are, so check how they were saved"
    )


def _clear(gains: NDArray[np.float64], least: float) -> bool:
    """Whether the mean is at least so large and far from 0 by its standard error."""
    error = float(gains.std(ddof=1)) / len(gains) ** 0.5
    return bool(gains.mean() >= least and gains.mean() > _ERRORS * error)


def _spread(cases: Sequence[Case], findings: Sequence[str]) -> list[tuple[Case, str]]:
    pairs = [(case, name) for case in cases for name in findings if name in case.regions]
    chosen = np.linspace(0, len(pairs) - 1, min(_MOST, len(pairs))).astype(np.int64)
    return [pairs[index] for index in chosen.tolist()]


def _read(
    maps: CaseMaps, pairs: Sequence[tuple[Case, str]], contents: Contents
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The ranks of the cells of each map, float64 [P, 56, 56], and its region, of pairs whose map decides something."""
    grids, regions = [], []
    for case, name in pairs:
        item = maps.find(case.case_id, name)
        drawn = draw_case(case, [name], contents)
        if item is None or drawn.status != "ok" or name not in drawn.masks:
            continue
        try:
            values = upsampled(item.read(), (_SIDE, _SIDE)).values
        except ImageError:
            continue
        region = drawn.masks[name].reshape(_SIDE, GRID[0] // _SIDE, _SIDE, GRID[1] // _SIDE).any(axis=(1, 3))
        if np.isfinite(values).all() and values.max() > values.min() and 0 < region.sum() < region.size:
            grids.append(mean_ranks(values.ravel()).reshape(values.shape))
            regions.append(region)
    return np.array(grids, np.float64).reshape(-1, _SIDE, _SIDE), np.array(regions, np.bool_)


def _aucs(grids: NDArray[np.float64], regions: NDArray[np.bool_]) -> NDArray[np.float64]:
    """float64 [P, 1 + turns]: the AUC of each map as it is, and as it would be read."""
    areas = []
    for grid, region in zip(grids, regions, strict=True):
        ranks, inside = mean_ranks(grid.ravel()).reshape(grid.shape), int(region.sum())
        sums = np.array([ranks[turn(region)].sum() for turn in (lambda mask: mask, *_TURNS.values())])
        areas.append((sums - inside * (inside + 1) / 2) / (inside * (region.size - inside)))
    return np.array(areas)
