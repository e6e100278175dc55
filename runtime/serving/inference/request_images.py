"""Images of a request -> inputs of the engine, with the same code as an evaluation."""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ImageError
from ....engines.geometry import Geometry
from ..protocol.interface import DRAWN
from ..protocol.requests import Request

DISPLAY_SIDE: Final = 1024
"""Maximum length of the longer side of an overlay or a preview."""

NATIVE: Final = 1 << 20
"""As the limit of the longer side: every image keeps its size."""

# Below both limits PNG and JPEG are decoded in a thread. A thread cannot be stopped and may hold Python's lock, so that
# with --timeout 3 an image of 79 million pixels was answered after 26 s; larger files go to a process.
_QUICK_BYTES: Final = 4 << 20
_QUICK_PIXELS: Final = 1 << 24

WHOLE: Final = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True)
class Prepared:
    """One image: `pixels` uint8 [S, S] as the model reads them; `size`: native height and width; `frame`: y0, x0, y1,
    x1, the part of the native image they show; `display`: uint8 grey to be drawn, of `shown_side`, None if not
    requested."""

    pixels: NDArray[np.uint8]
    size: tuple[int, int]
    frame: tuple[float, float, float, float]
    display: NDArray[np.uint8] | None = None


def shown_side(outputs: frozenset[str]) -> int:
    """Maximum length of the longer side of the pictures that these outputs need, 0 for no picture."""
    return NATIVE if "dicom" in outputs else DISPLAY_SIDE if outputs & DRAWN else 0


def prepare_request(request: Request, geometry: Geometry) -> list[Prepared]:
    """The images of a request whose pixels, if it has any, were checked. Raises ImageError, naming the image."""
    side = shown_side(request.outputs)
    if request.pixels is not None:
        return [prepare_pixels(pixels[0], side=side) for pixels in request.pixels]
    return [prepare_file(data, geometry, f"Image {number}", side=side) for number, data in enumerate(request.images)]


def prepare_quick(request: Request, geometry: Geometry) -> list[Prepared] | None:
    """As `prepare_request`; None, and nothing done, for files that belong in a process (`Decoders`).

    PNG and JPEG of few bytes and pixels are decoded within a moment, with any content, and without Python's lock.
    """
    from ...data.images.kinds import image_kind
    from ...data.images.png_jpeg import jpeg_size

    if sum(map(len, request.images)) > _QUICK_BYTES:
        return None
    work = 0
    for data in request.images:
        height, width, scans = 0, 0, 1
        image_format = image_kind(data)
        if image_format == "png":
            if b"zTXt" in data or b"iTXt" in data:  # texts, each of which may expand to megabytes
                return None
            width, height = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
        elif image_format == "jpeg":
            with suppress(ImageError, struct.error):
                height, width = jpeg_size(data)
                scans = data.count(b"\xff\xda")  # each passes over the whole image
        elif image_format == "dicom":
            return None
        work += height * width * max(1, scans)
    return prepare_request(request, geometry) if work <= _QUICK_PIXELS else None


def prepare_file(data: bytes, geometry: Geometry, name: str, *, side: int = 0) -> Prepared:
    """An image from the bytes of a DICOM, PNG or JPEG file; `name` is used in messages, `side` as `shown_side` gives
    it. Raises ImageError."""
    from ...data.images.decode import decode_grey

    grey = decode_grey(data, name, stretched=geometry.stretched)
    display = decode_grey(data, name) if side and geometry.stretched else grey
    return _prepared(grey, geometry, shown(display, side) if side else None)


def prepare_grey(grey: NDArray[np.uint8], geometry: Geometry) -> Prepared:
    """An image from its pixels in native size, uint8 [H, W], bright = radio-dense, which count as stored values."""
    from ...data.images.intensity import stretch_stored

    return _prepared(stretch_stored(grey) if geometry.stretched else grey, geometry)


def _prepared(grey: NDArray[np.uint8], geometry: Geometry, display: NDArray[np.uint8] | None = None) -> Prepared:
    from ...data.images.resizing import field_of_view, to_model

    height, width = grey.shape
    pixels = to_model(grey, geometry)
    return Prepared(pixels, (height, width), field_of_view(geometry, height, width), display)


def prepare_pixels(pixels: NDArray[np.uint8], *, side: int = 0) -> Prepared:
    """An image that is already in the model's geometry; its pixels count as the whole image."""
    return Prepared(pixels, (pixels.shape[0], pixels.shape[1]), WHOLE, shown(pixels, side) if side else None)


def shown(grey: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """The image, made smaller when its longer side is above `side`; a copy, so that the large one can be freed."""
    from PIL import Image

    height, width = grey.shape
    scale = side / max(height, width)
    if scale >= 1:
        return grey.copy()
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(Image.fromarray(grey).resize(size, Image.Resampling.BOX))
