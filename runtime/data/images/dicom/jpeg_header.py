"""The header of a JPEG or JPEG-LS stream inside a DICOM file."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from .....engines.errors import ImageError
from ..png_jpeg import JPEG_FRAMES, jpeg_segments


@dataclass(frozen=True)
class JpegHeader:
    """Frame header, first scan header and restart interval (ITU-T T.81 B.2).

    `frame`, `scan`: where both headers are. `predictor`, `shift`: selection value and point transform of lossless JPEG.
    `restart`: samples of a restart interval, 0 if there are none.
    """

    frame: int
    marker: int
    precision: int
    size: tuple[int, int]
    components: int
    scan: int
    predictor: int
    shift: int
    restart: int

    @classmethod
    def of(cls, stream: bytes) -> JpegHeader:
        """Raises ImageError for a stream that has not both headers."""
        if not stream.startswith(b"\xff\xd8"):
            raise ImageError("its compressed stream is not a JPEG")
        frame, scan, restart = 0, 0, 0
        for marker, position in jpeg_segments(stream):
            if marker in JPEG_FRAMES:
                frame = position
            elif marker == 0xDD and position + 6 <= len(stream):
                restart = struct.unpack_from(">H", stream, position + 4)[0]
            elif marker == 0xDA:
                scan = position
        if not frame or not scan or scan + 10 > len(stream):
            raise ImageError("its JPEG stream has no frame header or no scan")
        precision, height, width, components = struct.unpack_from(">BHHB", stream, frame + 4)
        selection = scan + 5 + 2 * stream[scan + 4]
        if selection + 3 > len(stream):
            raise ImageError("its JPEG stream is truncated")
        predictor, shift = stream[selection], stream[selection + 2] & 15
        size = (height, width)
        return cls(frame, stream[frame + 1], precision, size, components, scan, predictor, shift, restart)
