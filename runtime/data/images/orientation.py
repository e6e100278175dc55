"""The EXIF orientation of an image file, from its header alone; no pixel is turned by it (docs/datasets.md §0.2)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, Final

from .kinds import KIND_BYTES, image_kind

_TAG: Final = 0x0112
_HEADER: Final = 33  # bytes of the signature and the chunk IHDR
_END: Final = b"\0\0\0\0IEND\xaeB`\x82"
_HOLDERS: Final = (b"eXIf", b"tEXt", b"zTXt", b"iTXt")
_MOST: Final = 1 << 20  # bytes of a chunk, as Pillow's limit for a text


def exif_orientation(path: Path) -> int:
    """1 to 8; 1 where the file states none, or none of these, or is not a PNG or JPEG that can be read.

    It is looked for where Pillow's `exif_transpose` does: EXIF of a JPEG and of a PNG, EXIF in a text of a PNG, XMP.
    """
    from PIL import Image

    # Pillow raises any exception on a damaged header; the decoder names the fault.
    try:
        with path.open("rb") as stream:
            image_format = image_kind(stream.read(KIND_BYTES))
            if image_format not in ("png", "jpeg"):
                return 1
            stream.seek(0)
            header = _without_pixels(stream) if image_format == "png" else stream
            if header is None:
                return 1
            with Image.open(header, formats=("PNG", "JPEG")) as image:
                value = Image.Image.getexif(image).get(_TAG)  # getexif of a PNG decodes the pixels first
    except Exception:
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _without_pixels(stream: IO[bytes]) -> IO[bytes] | None:
    """A PNG of the header and of the chunks that may hold an orientation, which may stand behind the pixels; None: it
    has none of these chunks."""
    chunks = [stream.read(_HEADER)]
    while len(head := stream.read(8)) == 8:
        length, chunk_type = int.from_bytes(head[:4]), head[4:]
        if chunk_type in _HOLDERS and length <= _MOST:
            chunks += head, stream.read(length + 4)
        else:
            stream.seek(length + 4, io.SEEK_CUR)
    return io.BytesIO(b"".join([*chunks, _END])) if len(chunks) > 1 else None
