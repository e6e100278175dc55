"""Reads masks stored as PNG files: the stored values, never scaled (docs/formats.md §9.8)."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import ImageError, words_of
from ...images.kinds import image_kind
from ...images.png_jpeg import by_libpng, check_pixels, check_rows, png_size

if TYPE_CHECKING:
    from PIL.Image import Image

_MAX_BYTES = 1 << 28  # a mask is read as a whole: the limit bounds its memory
_GREY = 0  # colour type of a PNG file that has neither colours nor opacity


@dataclass(frozen=True)
class StoredMask:
    """What a mask file stores, before it is decided which of it is the mask (`mask_channels`).

    values: [H, W], or [H, W, 3] for colours that are not all grey; a palette gives its indices. opacity: [H, W], 0 is
    transparent; None where the file has none. palette: uint8 [n, 3], the colour of each index. white: the value of
    full brightness in greys of fewer than 8 bits, else 255.
    """

    values: NDArray[Any]
    opacity: NDArray[Any] | None = None
    palette: NDArray[np.uint8] | None = None
    white: int = 255


def read_png(path: Path) -> StoredMask:
    """The stored values of a PNG file of plausible size. Raises ImageError."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ImageError(f"it has more than {_MAX_BYTES} bytes")
        return decode_png(path.read_bytes())
    except OSError as error:
        raise ImageError(f"{error.strerror or error}") from error


def decode_png(data: bytes) -> StoredMask:
    """The stored values of the bytes of a PNG file. Raises ImageError with the cause."""
    if image_kind(data) != "png":
        raise ImageError("it is not a PNG file")
    check_pixels(png_size(data))
    depth, colour_type = data[24], data[25]
    try:
        # Pillow cuts colours and opacity of 16 bits to their high byte, so that the values 1 to 255 would be lost.
        return _decode_deep(data) if depth == 16 and colour_type != _GREY else _decode_by_pillow(data, depth)
    except ImageError:
        raise
    except OSError as error:
        raise ImageError(error.strerror or "it is damaged") from error
    # The libraries can raise any exception on a damaged file.
    except Exception as error:
        raise ImageError(f"it is damaged ({words_of(error, 200)})") from error


def _opened(data: bytes) -> Image:
    """The file in Pillow, with its pixels not decoded yet. Raises ImageError for an animation."""
    from PIL import Image

    image = Image.open(io.BytesIO(data), formats=("PNG",))
    if getattr(image, "n_frames", 1) > 1:
        raise ImageError("it is an animation")
    return image


def _decode_deep(data: bytes) -> StoredMask:
    with _opened(data):
        try:
            values = by_libpng(data)
        except ImportError:
            raise ImageError(
                "it has colours or opacity of 16 bits, and the package imagecodecs, which reads them, cannot be "
                "imported; install it again"
            ) from None
    if values.shape[2] in (2, 4):
        return StoredMask(_plain(values[..., :-1]), values[..., -1])
    return StoredMask(_plain(values))


def _decode_by_pillow(data: bytes, depth: int) -> StoredMask:
    with _opened(data) as image:
        image.load()
        values = np.asarray(image)
        check_rows(data, values)
        if image.mode in ("LA", "RGBA"):
            return StoredMask(_plain(values[..., :-1]), values[..., -1])
        transparent = image.info.get("transparency")
        if image.mode == "P":
            palette = np.asarray(image.getpalette("RGB"), np.uint8).reshape(-1, 3)
            return StoredMask(values, _palette_opacity(values, transparent), palette)
        white = 2**depth - 1 if depth < 8 else 255
        if depth in (2, 4):
            values = values // np.uint8(255 // white)  # Pillow scales these greys to 8 bits
        if transparent is None:
            return StoredMask(_plain(values), white=white)
        level = np.asarray(transparent)  # as it is stored, never scaled
        same = values == (level > 0 if image.mode == "1" else level)
        opacity = np.where(same.all(axis=2) if same.ndim == 3 else same, 0, 255).astype(np.uint8)
        return StoredMask(_plain(values), opacity, white=white)


def _palette_opacity(indices: NDArray[Any], transparent: bytes | int | None) -> NDArray[np.uint8] | None:
    """The opacity of each pixel of a palette image: by a table of all indices, or 0 for one of them."""
    if transparent is None:
        return None
    table = np.full(256, 255, np.uint8)
    if isinstance(transparent, bytes):
        table[: len(transparent)] = np.frombuffer(transparent, np.uint8)
    else:
        table[transparent] = 0
    return np.asarray(table[indices])


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Values of one channel, or of channels that are all equal, as [H, W]; colours as they are."""
    if values.ndim == 3 and (values == values[..., :1]).all():
        return np.ascontiguousarray(values[..., 0])
    return values
