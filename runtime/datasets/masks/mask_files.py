"""Reads masks stored as PNG files; any value above 0 is region (docs/datasets.md §2, §3)."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import DataError, ImageError
from ..images.png_jpeg import check_pixels, png_size

__all__ = ["MaskFile", "decode_mask", "decode_values", "read_mask", "read_png"]

_MAX_BYTES = 1 << 28


def read_mask(path: Path) -> NDArray[np.bool_]:
    """bool [H, W], see `decode_mask`. Raises DataError naming the file and the cause."""
    try:
        return decode_mask(read_png(path))
    except ImageError as error:
        raise DataError(f"The mask {path} cannot be read: {error}.") from error


def read_png(path: Path) -> bytes:
    """The content of a file of plausible size. Raises ImageError."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ImageError(f"it has more than {_MAX_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ImageError(f"{error.strerror or error}") from error


def decode_mask(data: bytes) -> NDArray[np.bool_]:
    """bool [H, W]: the pixels whose stored value is above 0, never scaled; for a palette the index, not the colour.

    With several channels, a value above 0 in any of them counts, except in transparency. Raises ImageError.
    """
    values, colours = decode_values(data)
    drawn = values > 0
    return np.asarray(drawn if drawn.ndim == 2 else drawn[..., :colours].any(axis=2), np.bool_)


def decode_values(data: bytes, *, rgba: bool = False) -> tuple[NDArray[Any], int]:
    """The stored values of a PNG file, [H, W] or [H, W, channels], and how many of the channels are no transparency.

    A palette gives its indices. `rgba`: red, green, blue and opacity of 8 bits instead, also of a palette. Raises
    ImageError with the cause.
    """
    from PIL import Image

    if not data.startswith(b"\x89PNG\r\n\x1a\n"):
        raise ImageError("it is no PNG file")
    check_pixels(png_size(data))
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            image.load()
            if rgba:
                return np.asarray(image.convert("RGBA")), 3
            return np.asarray(image), len(image.getbands()) - (image.mode in ("LA", "PA", "RGBA"))
    except OSError as error:
        raise ImageError(error.strerror or "it is damaged") from error
    # The library can raise any exception on a damaged file.
    except Exception as error:
        cause = " ".join(str(error).split()) or type(error).__name__
        raise ImageError(f"it is damaged ({cause[:200]})") from error


@dataclass(frozen=True)
class MaskFile:
    """A region stored as a PNG file, read when it is drawn."""

    path: Path

    def mask(self, height: int, width: int) -> NDArray[np.bool_]:
        """bool [height, width]. Raises DataError when the file cannot be read or has another size."""
        drawn = read_mask(self.path)
        if drawn.shape != (height, width):
            raise DataError(
                f"The mask {self.path} is {drawn.shape[0]} x {drawn.shape[1]}, not {height} x {width}; "
                "the image and its annotation do not belong together."
            )
        return drawn
