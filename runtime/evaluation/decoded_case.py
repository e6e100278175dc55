"""One case -> its model input and its regions on the evaluation grid."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import ImageAccessError, ImageError
from ..data.datasets.region_grid import region_masks
from ..data.images.contents import ABSENT, Contents
from ..data.images.resizing import field_of_view

if TYPE_CHECKING:
    from ...engines.geometry import Geometry
    from ..data.datasets.dataset import Case
    from ..data.datasets.pixels import PixelSource


@dataclass(slots=True)
class DecodedCase:
    """A case ready for the engine.

    `pixels`: uint8 [S, S], None unless `status` is "ok", and once they are copied into a batch; `frame`: (y0, x0, y1,
    x1), the part of the native image that the model input covers; `masks`: finding -> bool [224, 224], non-empty
    ones only; `sub_pixel`: findings whose region is sub-pixel on the grid, and `faults`: finding -> what is
    wrong with the place of its region, one of `region_boxes.FAULTS` (docs/datasets.md §0.3); `size`: (height, width) of
    the native grid on which the regions were drawn, None if no region was drawn; `image`: a hash of what was read of
    the image file (`images.contents`), None if nothing was; `file_size`: (height, width) of the image, None if its
    pixels were not read.
    """

    case: Case
    status: str
    reason: str | None = None
    pixels: NDArray[np.uint8] | None = None
    frame: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)
    masks: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    sub_pixel: frozenset[str] = frozenset()
    size: tuple[int, int] | None = None
    faults: Mapping[str, str] = field(default_factory=dict)
    image: bytes | None = None
    file_size: tuple[int, int] | None = None


def decode_case(
    case: Case,
    source: PixelSource,
    geometry: Geometry,
    findings: Collection[str],
    contents: Contents | None = None,
) -> DecodedCase:
    """Pixels and the regions of `findings` of one case; a missing or unreadable image becomes a status, not an error.

    `contents`: those in which `source` enters what it reads.

    Raises DataError when a region cannot be drawn, because the annotation is then wrong.
    """
    try:
        pixels, height, width = source(case)
    except FileNotFoundError:
        return DecodedCase(case, "missing", "the image file does not exist", image=ABSENT)
    except ImageError as error:
        image = ABSENT if contents is None or isinstance(error, ImageAccessError) else contents.hash_of(case.image)
        return DecodedCase(case, "unreadable", str(error), image=image)
    size = case.size or (height, width)
    masks, sub_pixel, faults = region_masks(case, size, findings)
    frame = field_of_view(geometry, height, width)
    read = None if contents is None else contents.hash_of(case.image)
    return DecodedCase(case, "ok", None, pixels, frame, masks, sub_pixel, size, faults, read, (height, width))
