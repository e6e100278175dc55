"""The image that is sent: its size by the rule of the dialect, its pixels, their hash and encoding (docs/ask.md §3)."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import struct
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import ConfigError, ImageError
from ..data.answers.coordinate_frames import Budget, Size, smart_resize
from ..data.images.decode import read_grey
from .grid_drawing import with_grid

GRID_SUFFIX: Final = "+grid"
"""At the end of a preparation that draws the grid."""

_SMART: Final = {28: Budget(3136, 1_003_520, 28), 32: Budget(65_536, 1_048_576, 32)}
_RULE: Final = re.compile(r"(smart|pad|squash|short|long)([1-9]\d{0,4})", re.ASCII)
_FIXED: Final = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,4})", re.ASCII)
_JPEG: Final = re.compile(r"jpeg:([1-9]\d?|100)", re.ASCII)
_AS_IT_IS: Final = "as it is"
_PIXELS: Final = b"xbench-pixels-1\n"


@dataclass(frozen=True)
class SentImage:
    """An image ready to be sent: base64 of its file, the file's SHA-256 and bytes, the hash of its pixels, its size."""

    url: bytes
    sha256: str
    bytes: int
    pixels: str
    size: Size
    original: Size


def check_preparation(name: str) -> str:
    """A preparation by name. Raises ConfigError."""
    match = _RULE.fullmatch(name)
    if name != _AS_IT_IS and not _FIXED.fullmatch(name) and not match:
        raise ConfigError(
            f"--view {name} is neither WIDTHxHEIGHT nor the name of a view; write e.g. 980x980, smart28, pad896, "
            "squash448, short518 or long1024."
        )
    if match and match[1] == "smart" and int(match[2]) not in _SMART:
        raise ConfigError(f"--view {name} does not exist; smart28 and smart32 do.")
    return name


def fixed_size(preparation: str) -> Size | None:
    """The width and height of every image of a preparation; None where they follow from the image."""
    if fixed := _FIXED.fullmatch(preparation):
        return int(fixed[1]), int(fixed[2])
    match = _RULE.fullmatch(preparation)
    return (int(match[2]), int(match[2])) if match and match[1] in ("pad", "squash") else None


def sent_size(preparation: str, size: Size) -> Size:
    """The width and height that an image of `size` is sent with.

    Raises ImageError for an image that the model's code refuses.
    """
    name, (width, height) = preparation.removesuffix(GRID_SUFFIX), size
    if (fixed := fixed_size(name)) is not None:
        return fixed
    match = _RULE.fullmatch(name)
    if match is None:
        return size
    rule, side = match[1], int(match[2])
    if rule == "smart":
        try:
            rows, columns = smart_resize(height, width, _SMART[side])
        except ValueError as error:
            raise ImageError(f"The image has {width} x {height} pixels, and {error}.") from None
        return columns, rows
    if rule == "short":
        least = min(size)
        return size if least <= side else (width * side // least, height * side // least)
    most = max(size)
    if most <= side:
        return size
    return max(1, round(Fraction(width * side, most))), max(1, round(Fraction(height * side, most)))


def prepared(grey: NDArray[np.uint8], preparation: str) -> NDArray[np.uint8]:
    """uint8 [h, w]: the pixels that are sent, from a native image uint8 [H, W]: resized once, bicubic. Raises
    ImageError."""
    from PIL import Image

    height, width = grey.shape
    size = sent_size(preparation, (width, height))
    if preparation.startswith("pad"):
        side = max(height, width)
        square = np.zeros((side, side), np.uint8)
        top, left = (side - height) // 2, (side - width) // 2
        square[top : top + height, left : left + width] = grey
        grey = square
    if grey.shape != size[::-1]:
        grey = np.asarray(Image.fromarray(grey).resize(size, Image.Resampling.BICUBIC))
    return with_grid(grey) if preparation.endswith(GRID_SUFFIX) else grey


def pixels_hash(pixels: NDArray[np.uint8]) -> str:
    """The SHA-256 of width, height, channels and pixels, which no encoder changes."""
    height, width = pixels.shape
    head = _PIXELS + struct.pack(">III", width, height, 1)
    return hashlib.sha256(head + np.ascontiguousarray(pixels).tobytes()).hexdigest()


def encoded(pixels: NDArray[np.uint8], encoding: str) -> bytes:
    """A PNG of 8-bit grey with the three chunks it needs, or a JPEG."""
    from PIL import Image

    buffer = io.BytesIO()
    if encoding == "png":
        # Pillow's own level takes six times as long for a few percent of the bytes.
        Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    else:
        Image.fromarray(pixels).save(buffer, "JPEG", quality=int(encoding.partition(":")[2]))
    return buffer.getvalue()


def check_encoding(text: str) -> str:
    """The value of --encoding. Raises ConfigError."""
    if text != "png" and not _JPEG.fullmatch(text):
        raise ConfigError(f"--encoding {text} is neither png nor jpeg:QUALITY; write e.g. jpeg:95.")
    return text


def as_sent(pixels: NDArray[np.uint8], encoding: str, original: Size) -> SentImage:
    """Prepared pixels as they are sent."""
    file = encoded(pixels, encoding)
    kind = encoding.partition(":")[0]
    return SentImage(
        url=f"data:image/{kind};base64,".encode() + base64.b64encode(file),
        sha256=hashlib.sha256(file).hexdigest(),
        bytes=len(file),
        pixels=pixels_hash(pixels),
        size=(pixels.shape[1], pixels.shape[0]),
        original=original,
    )


def read_sent(path: Path, preparation: str, encoding: str) -> SentImage:
    """An image file as it is sent. Raises ImageError."""
    grey = read_grey(path)
    return as_sent(prepared(grey, preparation), encoding, (grey.shape[1], grey.shape[0]))
