"""Regions on the evaluation grid (docs/datasets.md §0.3)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import DataError
from .case import Case, Region
from .region_boxes import ROUNDING, Boxes, extents

_PACKED = 224, 28  # the evaluation grid of 224 x 224, eight pixels a byte

DrawnRegions = tuple[Mapping[str, NDArray[np.bool_]], frozenset[str], Mapping[str, str]]
"""Class -> bool [224, 224] of a region that is not empty, which of them are sub-pixel, and class -> fault, one of
`region_boxes.FAULTS`."""


class ManyRegions(NamedTuple):
    """The regions of several cases that are not empty, case by case, each in the order of the findings.

    of_case, of_finding: intp [P], places among the cases and findings; masks: packed bits uint8 [P, 224, 28];
    sub_pixel: bool [P]. faults: case, finding and what is wrong with the place of the region, also of empty ones.
    """

    of_case: NDArray[np.intp]
    of_finding: NDArray[np.intp]
    masks: NDArray[np.uint8]
    sub_pixel: NDArray[np.bool_]
    faults: Sequence[tuple[int, int, str]]

    @staticmethod
    def of(drawn: Sequence[tuple[int, DrawnRegions]], findings: Sequence[str]) -> ManyRegions:
        """The regions of single cases, each with the place of its case, in rising order."""
        from ....metrics_gpu.sweep.masks import pack_masks

        position = {name: at for at, name in enumerate(findings)}
        regions, faults = list[tuple[int, int, NDArray[np.bool_], bool]](), list[tuple[int, int, str]]()
        for case, (masks, sub_pixel, wrong) in drawn:
            for at in sorted(position[name] for name in masks if name in position):
                regions.append((case, at, masks[findings[at]], findings[at] in sub_pixel))
            faults += [(case, position[name], fault) for name, fault in wrong.items() if name in position]
        return ManyRegions(
            np.array([case for case, _, _, _ in regions], np.intp),
            np.array([at for _, at, _, _ in regions], np.intp),
            pack_masks(np.stack([mask for _, _, mask, _ in regions])) if regions else np.zeros((0, *_PACKED), np.uint8),
            np.array([flag for _, _, _, flag in regions], np.bool_),
            faults,
        )

    def at(self, places: NDArray[np.intp]) -> ManyRegions:
        """These regions, of cases at these places among others."""
        faults = [(int(places[case]), finding, fault) for case, finding, fault in self.faults]
        return self._replace(of_case=places[self.of_case], faults=faults)

    @staticmethod
    def joined(parts: Sequence[ManyRegions]) -> ManyRegions:
        """The regions of different cases, in rising order of the cases. There is at least one part."""
        faults = [fault for part in parts for fault in part.faults]
        held = [part for part in parts if len(part.of_case)]
        if len(held) < 2:
            return (held or parts)[0]._replace(faults=faults)
        of_case, of_finding, masks, sub_pixel = (np.concatenate([part[at] for part in held]) for at in range(4))
        order = np.argsort(of_case, kind="stable")
        return ManyRegions(of_case[order], of_finding[order], masks[order], sub_pixel[order], faults)


DrawRegions = Callable[[Sequence[Case], NDArray[np.int32], Sequence[str]], ManyRegions]
"""As `draw_regions`."""


def draw_regions(cases: Sequence[Case], sizes: NDArray[np.int32], findings: Sequence[str]) -> ManyRegions:
    """The regions of `findings` on native grids of `sizes` [n, 2]. Raises DataError when one cannot be drawn."""
    grids = zip(cases, sizes.tolist(), strict=True)
    return ManyRegions.of(
        [(at, region_masks(case, (height, width), findings)) for at, (case, (height, width)) in enumerate(grids)],
        findings,
    )


def region_grid(region: Region, height: int, width: int, grid: int = 224) -> tuple[NDArray[np.bool_], bool]:
    """bool [grid, grid], and whether the region is sub-pixel.

    Grid pixel (i, j) is native pixel (floor(i * height / grid), floor(j * width / grid)). A region that is not empty
    but none of these pixels is sub-pixel: the one grid pixel that contains its centroid is set. An empty region gives
    an empty grid and False. Raises DataError when the region cannot be drawn on this image.
    """
    if isinstance(region, Boxes):
        drawn = _boxes(region, height, width, grid)
        if drawn.any() or not region.spans(height, width):
            return drawn, False
        mask = region.mask(height, width)
    else:
        mask = region.mask(height, width)
        index = np.arange(grid, dtype=np.int64)
        drawn = mask[np.ix_(index * height // grid, index * width // grid)]
        if drawn.any() or not mask.any():
            return drawn, False
    rows, columns = np.nonzero(mask)
    drawn[_holder(rows, height, grid), _holder(columns, width, grid)] = True
    return drawn, True


def region_masks(case: Case, size: tuple[int, int], findings: Collection[str]) -> DrawnRegions:
    """The regions of `findings`, drawn on a native grid of `size`. Raises DataError when a region cannot be drawn."""
    masks: dict[str, NDArray[np.bool_]] = {}
    sub_pixel: set[str] = set()
    faults: dict[str, str] = {}
    for finding in findings:
        region = case.regions.get(finding)
        if region is None:
            continue
        try:
            mask, vanished = region_grid(region, *size)
        except DataError as error:
            raise DataError(f"The region of '{finding}' in {case.image} cannot be drawn: {error}") from error
        fault = region_fault(region, *size, drawn=bool(mask.any()))
        if fault is not None:
            faults[finding] = fault
        if mask.any():
            masks[finding] = mask
            if vanished:
                sub_pixel.add(finding)
    return masks, frozenset(sub_pixel), faults


def region_fault(region: Region, height: int, width: int, *, drawn: bool) -> str | None:
    """What is wrong with the place of a region in a [height, width] image, one of `FAULTS`; None: nothing.

    drawn: whether the region covers a pixel of the image. outside: it covers none, because all of it lies outside;
    empty: it covers none for another reason. clipped: a part reaches beyond the image by more than `ROUNDING`.
    """
    parts = extents(region, height, width)
    if not drawn:
        outside = all(x1 >= width or y1 >= height or x2 <= 0 or y2 <= 0 for x1, y1, x2, y2 in parts)
        return "outside" if parts and outside else "empty"
    beyond = any(max(-x1, -y1, x2 - width, y2 - height) > ROUNDING for x1, y1, x2, y2 in parts)
    return "clipped" if beyond else None


def _boxes(region: Boxes, height: int, width: int, grid: int) -> NDArray[np.bool_]:
    # floor(i * height / grid) >= row if and only if i >= row * grid / height: a native span is a span of the grid.
    drawn = np.zeros((grid, grid), np.bool_)
    for row0, row1, column0, column1 in region.spans(height, width):
        top, bottom = -(-row0 * grid // height), -(-row1 * grid // height)
        left, right = -(-column0 * grid // width), -(-column1 * grid // width)
        drawn[top:bottom, left:right] = True
    return drawn


def _holder(indices: NDArray[np.int64], pixels: int, grid: int) -> int:
    """The grid index that contains the mean of the native pixel centres `indices` + 0.5."""
    return int((2 * int(indices.sum()) + indices.size) * grid // (2 * indices.size * pixels))
