"""What the best words could get for a region, and what words get without the image (docs/words.md §7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..detection.boxes import BoxLists, Int, centres
from ..detection.unions import on_grid, pixel_rectangles
from ..sweep.masks import GRID
from .thorax_places import ALL_CELLS, ThoraxFrame, rectangles_of, single_statements

Float = NDArray[np.float64]
Inside = Callable[[int, Int], NDArray[np.bool_]]
"""(pair, int64 [n, 2], columns and rows of pixels of its image) -> bool [n]: they lie in its region."""

BOUNDS: Final = ("ceiling", "ceiling_zones", "oracle", "bilateral", "prior")
"""The best of all statements and of the sets of zones; the true zones, all zones, and the usual zones of the finding in
other patients."""

NUMBERS: Final = ("dice", "iou", "pointing")


@dataclass(frozen=True, eq=False)
class StatementScores:
    """dice, iou: float64 [P, 118]; hit: bool [P, 118], of each statement of `single_statements` for each region."""

    dice: Float
    iou: Float
    hit: NDArray[np.bool_]

    def bounds(self, true_cells: Int, prior_cells: Int) -> Float:
        """float64 [P, 5, 3]: `NUMBERS` of `BOUNDS`. Dice and IoU of a ceiling are of the statement of highest Dice, its
        pointing is 1 if any statement's first centre hits. prior_cells: 0 where no other patient has the finding.
        Without cells the numbers are NaN."""
        pairs = np.arange(len(self.dice))
        chosen = (
            self.dice.argmax(axis=1),
            self.dice[:, :ALL_CELLS].argmax(axis=1),
            np.maximum(true_cells, 1) - 1,
            np.full(len(pairs), ALL_CELLS - 1),
            np.maximum(prior_cells, 1) - 1,
        )
        found = np.stack(
            [np.stack([values[pairs, at] for values in (self.dice, self.iou, self.hit)], axis=1) for at in chosen],
            axis=1,
        ).astype(np.float64)
        found[:, 0, 2], found[:, 1, 2] = self.hit.any(axis=1), self.hit[:, :ALL_CELLS].any(axis=1)
        for bound, cells in (("oracle", true_cells), ("prior", prior_cells)):
            found[cells == 0, BOUNDS.index(bound)] = np.nan
        return found


def statement_scores(
    frames: list[ThoraxFrame], sizes: Int, regions: NDArray[np.bool_], inside: Inside
) -> StatementScores:
    """The scores of every statement for P regions.

    sizes: int64 [P, 2], width and height. regions: bool [P, 224, 224].
    """
    count = len(single_statements())
    dice, iou = np.zeros((len(frames), count)), np.zeros((len(frames), count))
    hit = np.zeros((len(frames), count), np.bool_)
    for pair, (frame, size) in enumerate(zip(frames, sizes.tolist(), strict=True)):
        drawn = _drawn(frame, (size[0], size[1]))
        summed = np.zeros((GRID[0] + 1, GRID[1] + 1), np.int64)
        summed[1:, 1:] = regions[pair].cumsum(axis=0, dtype=np.int64).cumsum(axis=1)
        x1, y1, x2, y2 = drawn.spans.T
        each = summed[y2, x2] - summed[y1, x2] - summed[y2, x1] + summed[y1, x1]
        overlap = np.add.reduceat(each, drawn.starts)
        region = summed[-1, -1]
        dice[pair] = 2.0 * overlap / np.maximum(drawn.area + region, 1)
        iou[pair] = overlap / np.maximum(drawn.area + region - overlap, 1)
        hit[pair] = inside(pair, drawn.centres)
    return StatementScores(dice, iou, hit)


@dataclass(frozen=True, eq=False)
class _Drawn:
    """The statements on an image. The rectangles of one are disjoint, so their sums are those of their union."""

    spans: Int
    starts: Int
    area: Int
    centres: Int


@lru_cache(maxsize=64)
def _drawn(frame: ThoraxFrame, size: tuple[int, int]) -> _Drawn:
    boxes = [[frame.pixels(rectangle, size) for rectangle in rectangles_of(names)] for names in single_statements()]
    lists = BoxLists.of(boxes)
    sizes = np.full((len(lists), 2), size, np.int64)
    spans = on_grid(pixel_rectangles(lists, sizes), sizes).spans
    starts = lists.offsets[:-1]
    area = np.add.reduceat(np.prod(np.maximum(spans[:, 2:] - spans[:, :2], 0), axis=1), starts)
    return _Drawn(spans, starts, area, centres(lists, sizes))
