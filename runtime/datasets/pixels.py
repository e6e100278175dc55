"""The interface of a source of pixels, and a source that decodes the image file on every call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ...engines.geometry import Geometry
    from ..images.contents import Contents
    from .base import Case

__all__ = ["PixelSource", "direct_source", "noting_sizes"]


class PixelSource(Protocol):
    """Returns a case's model input, uint8 [S, S], native height and width. Raises ImageError, FileNotFoundError."""

    def __call__(self, case: Case, /) -> tuple[NDArray[np.uint8], int, int]: ...


def direct_source(geometry: Geometry, contents: Contents | None = None) -> PixelSource:
    """A source that decodes the image file on every call; `contents` gets the hash of what is read."""
    from ..images.decode import decode_grey, is_there, read_bytes
    from ..images.geometry import to_model

    content = read_bytes if contents is None else contents.read

    def read(case: Case, /) -> tuple[NDArray[np.uint8], int, int]:
        if not is_there(case.image):
            raise FileNotFoundError(str(case.image))
        grey = decode_grey(content(case.image), str(case.image))
        return to_model(grey, geometry), grey.shape[0], grey.shape[1]

    return read


def noting_sizes(source: PixelSource, sizes: dict[str, tuple[int, int]]) -> PixelSource:
    """`source`, which also stores the (height, width) of every image it reads in `sizes`, by case."""

    def read(case: Case, /) -> tuple[NDArray[np.uint8], int, int]:
        pixels, height, width = source(case)
        sizes[case.case_id] = height, width
        return pixels, height, width

    return read
