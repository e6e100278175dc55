"""Where the pixels of a case come from: a source, and the one that decodes the image file each time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ...engines.geometry import Geometry
    from .base import Case

__all__ = ["PixelSource", "direct_source"]


class PixelSource(Protocol):
    """A case's model input, uint8 [S, S], its native height and width. Raises ImageError, FileNotFoundError."""

    def __call__(self, case: Case, /) -> tuple[NDArray[np.uint8], int, int]: ...


def direct_source(geometry: Geometry) -> PixelSource:
    """A source that decodes the image file each time."""
    from ..images.decode import is_there, read_grey
    from ..images.geometry import to_model

    def read(case: Case, /) -> tuple[NDArray[np.uint8], int, int]:
        if not is_there(case.image):
            raise FileNotFoundError(str(case.image))
        grey = read_grey(case.image)
        return to_model(grey, geometry), grey.shape[0], grey.shape[1]

    return read
