"""Image files -> native 8-bit grey, bright = radio-dense (dataset specification §0.2)."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import ImageError
from .headers import check_pixels, jpeg_size, png_size

__all__ = ["decode_grey", "read_bytes", "read_grey", "reader_version"]

_MAX_BYTES = 1 << 29
_REVISION = "1"  # raise it whenever the pixels of any file change


def read_grey(path: Path) -> NDArray[np.uint8]:
    """The image in `path`, uint8 [H, W], native size, contiguous. Safe to call from several threads.

    The kind of file (PNG, JPEG, DICOM) is told by its content, not its name. Raises ImageError, and nothing else,
    naming the file and the cause.
    """
    return decode_grey(read_bytes(path), str(path))


def read_bytes(path: Path) -> bytes:
    """The content of an image file. Raises ImageError where it cannot be read or is too large for a radiograph."""
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise ImageError(f"it has {size} bytes, the limit is {_MAX_BYTES}")
        return path.read_bytes()
    except ImageError as error:
        raise ImageError(f"{path} cannot be read: {error}.") from None
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or str(error)
        raise ImageError(f"{path} cannot be read: {cause}.") from error


def decode_grey(data: bytes, name: str) -> NDArray[np.uint8]:
    """As `read_grey`, from the bytes of a file; `name` is used in messages only. Raises ImageError."""
    try:
        grey = _decode(data)
    except ImageError as error:
        raise ImageError(f"{name} cannot be read: {error}.") from error.__cause__
    # The one border to three libraries that raise whatever they meet on a damaged file.
    except Exception as error:
        cause = " ".join(str(error).split()) or type(error).__name__
        raise ImageError(f"{name} cannot be read: it is damaged or of an unknown kind ({cause[:300]}).") from error
    return np.ascontiguousarray(grey)


def reader_version() -> str:
    """Names everything that decides the pixels; part of the key under which prepared images are kept."""
    parts = [_REVISION]
    for package in ("pillow", "pydicom", "pylibjpeg-libjpeg", "pylibjpeg-openjpeg"):
        try:
            parts.append(f"{package}-{version(package)}")
        except PackageNotFoundError:
            parts.append(f"{package}-none")
    return "+".join(parts)


def _decode(data: bytes) -> NDArray[np.uint8]:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        from .raster import decode_raster

        check_pixels(png_size(data))
        return decode_raster(data, "PNG")
    if data.startswith(b"\xff\xd8\xff"):
        from .raster import decode_raster

        check_pixels(jpeg_size(data))
        return decode_raster(data, "JPEG")
    if data[128:132] == b"DICM":
        from .dicom import decode_dicom

        return decode_dicom(data)
    if not data:
        raise ImageError("it is empty")
    raise ImageError("it is neither PNG, JPEG nor DICOM")
