"""The native size of an image file, from its header alone."""

from __future__ import annotations

import struct
from pathlib import Path

from ...engines.errors import ImageError
from .other_kinds import refusal
from .png_jpeg import jpeg_size

__all__ = ["image_size"]

_HEAD = 1 << 20  # more than any JPEG has before its frame header


def image_size(path: Path) -> tuple[int, int]:
    """(height, width) of a PNG, JPEG or DICOM file; its pixels are not read.

    Raises ImageError, and nothing else, naming the file and the cause.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
        return _size(path, head)
    except ImageError as error:
        raise ImageError(f"{path} cannot be read: {error}.") from None
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror or error}.") from error
    # pydicom can raise any exception on a damaged file.
    except Exception as error:
        raise ImageError(f"{path} cannot be read: its header is damaged ({error}).") from error


def _size(path: Path, head: bytes) -> tuple[int, int]:
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        if head[12:16] != b"IHDR" or len(head) < 24:
            raise ImageError("its PNG header is damaged")
        width, height = struct.unpack_from(">II", head, 16)
    elif head.startswith(b"\xff\xd8\xff"):
        height, width = jpeg_size(head)
    elif head[128:132] == b"DICM":
        import pydicom

        found = pydicom.dcmread(path, stop_before_pixels=True, specific_tags=["Rows", "Columns"])
        height, width = int(found.Rows), int(found.Columns)
    else:
        raise ImageError(refusal(head))
    if height < 1 or width < 1:
        raise ImageError("its header says it has no pixels")
    return height, width
