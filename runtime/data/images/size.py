"""The native size of an image file, from its header alone."""

from __future__ import annotations

import struct
from pathlib import Path

from ....engines.errors import ImageAccessError, ImageError
from .kinds import image_kind
from .other_kinds import refusal
from .png_jpeg import jpeg_size

_HEAD = 1 << 20  # more than any JPEG has before its frame header


def image_size(path: Path) -> tuple[int, int]:
    """(height, width) of a PNG, JPEG or DICOM file; its pixels are not read.

    Raises ImageError, and nothing else, naming the file and the cause; ImageAccessError as `decode`.
    """
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
        return _size(path, head)
    except ImageError as error:
        raise ImageError(f"{path} cannot be read: {error}.") from None
    except OSError as error:
        raise ImageAccessError(f"{path} cannot be read: {error.strerror or error}.") from error
    except Exception as error:
        raise ImageError(f"{path} cannot be read: its header is damaged ({type(error).__name__}).") from None


def _size(path: Path, head: bytes) -> tuple[int, int]:
    image_format = image_kind(head)
    if image_format == "png":
        if head[12:16] != b"IHDR" or len(head) < 24:
            raise ImageError("its PNG header is damaged")
        width, height = struct.unpack_from(">II", head, 16)
    elif image_format == "jpeg":
        height, width = jpeg_size(head)
    elif image_format == "dicom":
        from .dicom.open_dicom import open_data_set

        with path.open("rb") as stream:
            header = open_data_set(stream, ("Rows", "Columns"), pixels=False)
        height, width = header.integer("Rows"), header.integer("Columns")
    else:
        raise ImageError(refusal(head))
    if height < 1 or width < 1:
        raise ImageError("its header says it has no pixels")
    return height, width
