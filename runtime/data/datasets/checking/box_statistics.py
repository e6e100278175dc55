"""Finds boxes that were read in a wrong form, unit or size, by the statistics of all boxes of a dataset.

Only annotations and headers of images are used (docs/datasets.md §0.7 states the thresholds). A finding is a
sentence with what was counted, what it looks like, and what mends it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .....metrics_gpu.sweep.masks import GRID
from ..dataset import Case, Dataset
from ..region_boxes import ROUNDING, extents
from .turned_images import TurnedImage, orientation_warning

Sizes = Mapping[str, tuple[int, int]]

_NONE: Final[Mapping[str, TurnedImage]] = MappingProxyType({})
FEW: Final = 3  # boxes or images below which no statistic is made
SHARE: Final = 0.1  # of boxes or images, from which something is no single mistake
ALMOST_ALL: Final = 0.99
CORNER: Final = (10, 0.55)  # so many boxes, all in this part of the width and of the height
IN_FILE: Final = ((5, 0.55), (10, 0.75))  # the same, where the part is the size of the image files
SAME_ROWS: Final = 20  # entries of a file of which more than half belong to one image

_MENDS: Final = {
    "corners": "write x, y, width and height into the annotation",
    "fractions": "multiply them by the width and height of the images in the annotation",
    "smaller": "use the images on which the boxes were drawn, or scale the boxes in the annotation to these images",
    "larger": "use the images on which the boxes were drawn, or scale the boxes in the annotation to these images",
    "units": "check the unit of the boxes in the annotation",
    "same_rows": "name each image's own file in the annotation",
    "swapped": "exchange height and width in the annotation",
}
"""What mends a finding; a reader's `mends` replaces the texts of those for which it has an option."""


BY_FILES: Final = ("smaller",)
"""Kinds that say more when the sizes of the image files are known."""


def box_warnings(
    dataset: Dataset, cases: Sequence[Case], sizes: Sizes, turned: Mapping[str, TurnedImage] = _NONE
) -> dict[str, str]:
    """What looks wrong with the boxes of `cases`: kind -> sentence; empty if nothing does.

    sizes: case -> (height, width) of the image files, where known. turned: see `turned_images`.
    """
    # Boxes drawn on an image that was shown sideways leave the stored one, which says nothing of their form or unit.
    upright = [case for case in cases if case.case_id not in turned or not turned[case.case_id].sideways]
    problems = [
        *_same_rows(cases),
        *_swapped(upright, sizes),
        *_of_boxes(_boxes_of(upright, sizes)),
    ]
    mends = {**_MENDS, **dataset.mends}
    name = dataset.configured or dataset.name
    return orientation_warning(cases, turned) | {
        problem: f"{text}; {mends[problem].replace('{side}', str(side or 'SIDE')).replace('{name}', name)}."
        for problem, text, side in problems
    }


Finding = tuple[str, str, int]
"""Kind, sentence without its end, and the longer side of the images on which the boxes were drawn, 0: not known."""


@dataclass(frozen=True, eq=False)
class _Boxes:
    """N boxes with a known grid: corners [N, 4], size [N, 2] (width, height) of the grid, and of the file (NaN)."""

    corners: NDArray[np.float64]
    size: NDArray[np.float64]
    file: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.corners)

    @cached_property
    def ends(self) -> NDArray[np.float64]:
        """The lower right corners [N, 2]."""
        return self.corners[:, 2:]

    @cached_property
    def sides(self) -> NDArray[np.float64]:
        """Width and height [N, 2]."""
        return self.ends - self.corners[:, :2]

    @cached_property
    def beyond(self) -> NDArray[np.bool_]:
        """Which boxes reach beyond their grid by more than rounding."""
        over: NDArray[np.bool_] = (self.ends > self.size + ROUNDING) | (self.corners[:, :2] < -ROUNDING)
        return over[:, 0] | over[:, 1]


def _boxes_of(cases: Sequence[Case], sizes: Sizes) -> _Boxes:
    rows = [
        (*box, grid[1], grid[0], *((file[1], file[0]) if file else (np.nan, np.nan)))
        for case in cases
        if case.regions
        for file in [sizes.get(case.case_id)]
        for grid in [case.size or file]
        if grid
        for region in case.regions.values()
        for box in extents(region, *grid)
    ]
    table = np.array(rows, np.float64).reshape(-1, 8)
    return _Boxes(table[:, :4], table[:, 4:6], table[:, 6:])


def _of_boxes(boxes: _Boxes) -> Iterator[Finding]:
    """At most one finding on each of place and size: a wrong form explains what else is odd."""
    if len(boxes) < FEW:
        return
    n, beyond = len(boxes), int(boxes.beyond.sum())
    if boxes.corners.max() <= 1:
        text = f"all {n} boxes lie between 0 and 1 pixel, so they look like fractions of the image's size"
        yield "fractions", text, 0
    elif beyond >= max(FEW, SHARE * n) and _are_corners(boxes):
        yield (
            "corners",
            f"{beyond} of {n} boxes reach beyond their image, and none does if their width and height are taken as "
            "x2, y2: they look like corners x1, y1, x2, y2 that are read as x, y, width, height",
            0,
        )
    elif beyond >= max(FEW, SHARE * n):
        most = float((boxes.ends / boxes.size).max())
        yield (
            "larger",
            f"{beyond} of {n} boxes reach beyond their image, up to {most:.2g} times its width or height: they look "
            "like boxes of larger images, of which these are resized copies",
            0,
        )
    elif (problem := _in_a_corner(boxes)) is not None:
        yield problem
    elif (small := int((boxes.sides * GRID[0] < boxes.size).all(axis=1).sum())) >= max(FEW, SHARE * n):
        text = (
            f"{small} of {n} boxes are smaller than a cell of the {GRID[0]} grid: they look like boxes in another unit"
        )
        yield "units", text, 0


def _are_corners(boxes: _Boxes) -> bool:
    """Whether boxes (x, y, x + width, y + height) make sense if `width` and `height` were x2 and y2."""
    fit = (boxes.sides >= boxes.corners[:, :2]).all(axis=1) & (boxes.sides <= boxes.size + ROUNDING).all(axis=1)
    return bool(fit.mean() >= ALMOST_ALL)


def _in_a_corner(boxes: _Boxes) -> Finding | None:
    """All boxes in the top left part of the grid, which may be the part of the size of the image files."""
    n, reach = len(boxes), float((boxes.ends / boxes.size).max())
    part = float(np.nan_to_num(boxes.file / boxes.size, nan=np.inf).max())
    in_file = bool((boxes.ends <= boxes.file + ROUNDING).all())
    where = f"all {n} boxes lie in the top left {100 * reach:.0f} % of their grid of {_text(boxes.size)}"
    if in_file and reach >= part / 2 and any(n >= least and part <= most for least, most in IN_FILE):
        text = f"{where} and fit the images' own size, {_text(boxes.file)}: they look like boxes of these images"
        return "smaller", text, int(boxes.file.max())
    if n >= CORNER[0] and reach <= CORNER[1]:
        width, height = (int(np.ceil(end)) for end in boxes.ends.max(axis=0))
        text = f"{where}: they look like boxes of smaller images, of {width} x {height} pixels or a little more"
        return "smaller", text, 0
    return None


def _text(sizes: NDArray[np.float64]) -> str:
    low, high = sizes.min(axis=0).astype(int), sizes.max(axis=0).astype(int)
    return f"{high[0]} x {high[1]}" if (low == high).all() else f"up to {high[0]} x {high[1]}"


def _same_rows(cases: Sequence[Case]) -> Iterator[Finding]:
    """Most entries name one image, and were merged into one case; `case_rules` notes cases that share an image."""
    if not cases:
        return
    largest = max(cases, key=lambda case: len(case.rows))
    rows = sum(len(case.rows) for case in cases)
    if len(largest.rows) >= SAME_ROWS and 2 * len(largest.rows) > rows:
        yield "same_rows", f"{len(largest.rows)} of {rows} entries name the image {largest.image.name}", 0


def _swapped(cases: Sequence[Case], sizes: Sizes) -> Iterator[Finding]:
    """Stated sizes (width, height) of images that are (height, width)."""
    both = [(case.size, sizes[case.case_id]) for case in cases if case.size and case.case_id in sizes]
    swapped = sum(stated == real[::-1] and stated != real for stated, real in both)
    if swapped >= max(FEW, SHARE * len(both)):
        yield (
            "swapped",
            f"{swapped} of {len(both)} stated sizes have height and width of their images exchanged",
            0,
        )
