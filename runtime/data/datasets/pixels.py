"""The interface of a source of pixels, and a source that decodes the image file on every call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ....engines.geometry import Geometry
    from ..images.contents import Contents
    from .dataset import Case


class PixelSource(Protocol):
    """Returns a case's model input, uint8 [S, S], native height and width. Raises ImageError, FileNotFoundError."""

    def __call__(self, case: Case, /) -> tuple[NDArray[np.uint8], int, int]: ...


class ReadyImages(NamedTuple):
    """Which of n images were read at once. ready: bool [n]; sizes int32 [n, 2], native height and width, 0 of the
    others; images uint8 [n, 16], hashes of the files."""

    ready: NDArray[np.bool_]
    sizes: NDArray[np.int32]
    images: NDArray[np.uint8]

    @staticmethod
    def none(count: int) -> ReadyImages:
        """Every image must be read by itself."""
        return ReadyImages(np.zeros(count, np.bool_), np.zeros((count, 2), np.int32), np.zeros((count, 16), np.uint8))


class BulkSource(PixelSource, Protocol):
    """A source that also has images ready, and reads many of them at once."""

    def read_many(self, cases: Sequence[Case], target: NDArray[np.uint8], /) -> ReadyImages: ...


def read_many(source: PixelSource, cases: Sequence[Case], target: NDArray[np.uint8]) -> ReadyImages:
    """Copies the pixels that `source` has ready to `target`, uint8 [n, 1, S, S]; the others are read one by one."""
    read: Callable[..., ReadyImages] | None = getattr(source, "read_many", None)  # of a `BulkSource`
    return ReadyImages.none(len(cases)) if read is None else read(cases, target)


def direct_source(geometry: Geometry, contents: Contents | None = None) -> PixelSource:
    """A source that decodes the image file on every call; `contents` gets the hash of what is read."""
    from ..images.decode import decode_grey, is_there, read_bytes
    from ..images.resizing import to_model

    content = read_bytes if contents is None else contents.read

    def read(case: Case, /) -> tuple[NDArray[np.uint8], int, int]:
        if not is_there(case.image):
            raise FileNotFoundError(str(case.image))
        grey = decode_grey(content(case.image), str(case.image), stretched=geometry.stretched)
        return to_model(grey, geometry), grey.shape[0], grey.shape[1]

    return read
