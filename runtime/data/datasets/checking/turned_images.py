"""Finds annotated images that annotation tools and browsers show turned, by their EXIF orientation.

Pixels are read as they are stored, so regions drawn on the turned picture lie elsewhere (docs/datasets.md §0.7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .....engines.errors import ImageError
from ....host.machine_record import usable_cores
from ...images.orientation import exif_orientation
from ...images.size import image_size
from ..dataset import Case
from ..region_boxes import ROUNDING, extents

KIND: Final = "orientation"
_TURN: Final = "write {these} anew with PIL.ImageOps.exif_transpose, which turns the pixels and removes the orientation"


@dataclass(frozen=True)
class TurnedImage:
    """`orientation`: 2 to 8; `size`: (height, width) of the pixels as they are stored."""

    orientation: int
    size: tuple[int, int]

    @property
    def sideways(self) -> bool:
        """Whether the picture as shown has height and width of the stored pixels exchanged."""
        return self.orientation >= 5


def turned_images(cases: Sequence[Case], threads: int | None = None) -> dict[str, TurnedImage]:
    """The cases with a region whose image has an EXIF orientation other than 1, by their ids; headers are read only."""
    drawn = [case for case in cases if case.regions]
    paths = list(dict.fromkeys(case.image for case in drawn))
    with ThreadPoolExecutor(threads or usable_cores(), thread_name_prefix="orientation") as pool:
        turned = {path: image for path, image in zip(paths, pool.map(_turned, paths), strict=True) if image is not None}
    return {case.case_id: turned[case.image] for case in drawn if case.image in turned}


def orientation_warning(cases: Sequence[Case], turned: Mapping[str, TurnedImage]) -> dict[str, str]:
    """One sentence with what was counted, what it means for the regions, and what mends it; empty if nothing does."""
    drawn = {case.image: case for case in cases if case.regions}
    shown = [case for case in drawn.values() if case.case_id in turned]
    if not shown:
        return {}
    kinds = sorted({turned[case.case_id].orientation for case in shown})
    text = (
        f"{len(shown)} of {len(drawn)} annotated images have an EXIF orientation other than 1 "
        f"({', '.join(map(str, kinds))}), {shown[0].image.name} first: the pixels are read as they are stored, but "
        "browsers and most annotation tools show such an image turned, and a region drawn on the turned image covers "
        f"other pixels; {_advice([_grid_is_turned(case, turned[case.case_id]) for case in shown])}."
    )
    return {KIND: text}


def _turned(path: Path) -> TurnedImage | None:
    orientation = exif_orientation(path)
    if orientation == 1:
        return None
    try:
        return TurnedImage(orientation, image_size(path))
    except ImageError:
        return None


def _grid_is_turned(case: Case, image: TurnedImage) -> bool | None:
    """Whether the regions lie on the turned image, by the stated size, else by what fits only one of the two; None: it
    does not show."""
    height, width = image.size
    if not image.sideways or height == width:
        return None
    if case.size is not None:
        stated_height, stated_width = case.size
        return None if stated_height == stated_width else (stated_height > stated_width) != (height > width)
    fits = [_fit(case, *size) for size in ((height, width), (width, height))]
    return fits[1] if fits[0] != fits[1] else None


def _fit(case: Case, height: int, width: int) -> bool:
    return all(
        x <= width + ROUNDING and y <= height + ROUNDING
        for region in case.regions.values()
        for _, _, x, y in extents(region, height, width)
    )


def _advice(grids: Sequence[bool | None]) -> str:
    """What puts the regions right. A tool shows all images turned or none, so one image can speak for the others."""
    turned, stored = grids.count(True), grids.count(False)
    these = _TURN.format(these="these images")
    if turned and not stored:
        return f"the annotation of {turned} of them fits the turned image alone, so {these}"
    if stored and not turned:
        return (
            f"the annotation of {stored} of them fits the stored pixels alone, so the tool probably did not turn "
            f"them: if so, remove the orientation from these files, else {these}"
        )
    if turned:
        return (
            f"the annotation of {turned} of them fits the turned image alone and the annotation of {stored} the "
            f"stored pixels alone: {_TURN.format(these='the former')}, and remove the orientation from the latter"
        )
    return f"if the tool showed them turned, {these}; if it did not, remove the orientation from these files"
