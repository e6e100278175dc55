"""PNG and JPEG -> native 8-bit grey through Pillow, plain grey PNG through libpng where it is installed.

docs/datasets.md §0.2 says what is done with other kinds of pixels.
"""

from __future__ import annotations

import io
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import ImageError

__all__ = ["decode_raster", "stretch"]

_PLAIN = b"\x08\x00\x00\x00\x00"  # 8 bits, grey, the only compression and filter method, not interlaced
_NOT_PLAIN = (b"tRNS", b"acTL")  # transparency, which libpng would expand, and animations
_DEEP = {"I", "I;16", "I;16B", "I;16L", "I;16N"}


def decode_raster(data: bytes, kind: Literal["PNG", "JPEG"]) -> NDArray[np.uint8]:
    """uint8 [H, W]: grey as it stands, colour by luminance, transparency dropped, 16 bits stretched to 0..255.

    An EXIF orientation is not applied: the official pipelines open films with Pillow, which leaves it alone.

    Raises ImageError, and whatever Pillow raises on a damaged file.
    """
    from PIL import Image

    if kind == "PNG" and (grey := _plain_png(data)) is not None:
        return grey
    with Image.open(io.BytesIO(data), formats=(kind,)) as image:
        if getattr(image, "n_frames", 1) > 1:
            raise ImageError("it is an animation")
        image.load()
        if image.mode in _DEEP:
            return stretch(np.asarray(image))
        if image.mode == "L":
            return np.asarray(image)
        if image.mode in ("1", "LA", "RGB", "P", "PA", "La"):
            return np.asarray(image.convert("L"))
        if image.mode in ("RGBA", "RGBX", "RGBa", "CMYK", "YCbCr"):
            return np.asarray(image.convert("RGB").convert("L"))
        raise ImageError(f"its pixels are of the kind '{image.mode}', which is not grey or colour")


def _plain_png(data: bytes) -> NDArray[np.uint8] | None:
    """The pixels of an 8-bit grey PNG by imagecodecs, which inflates and unfilters faster than Pillow; the same bytes.

    None for every other kind, for a file that it refuses (Pillow then says why), and without imagecodecs.
    """
    if data[24:29] != _PLAIN or any(chunk in data for chunk in _NOT_PLAIN):
        return None
    try:
        from imagecodecs import png_decode

        return np.asarray(png_decode(data), np.uint8)
    except (ImportError, RuntimeError, ValueError):
        return None


def stretch(values: NDArray[np.integer]) -> NDArray[np.uint8]:
    """uint8: linear from [min, max] to [0, 255], rounded half to even; a constant image becomes zeros."""
    low, high = int(values.min()), int(values.max())
    if low == high:
        return np.zeros(values.shape, np.uint8)
    if low < 0 or high > 65535:
        raise ImageError("its pixels have more than 16 bits")
    table = np.zeros(high + 1, np.uint8)
    table[low:] = np.rint((np.arange(low, high + 1) - low) / (high - low) * 255.0)
    return np.asarray(table[values], np.uint8)
