"""What the headers of compressed images promise, read before anything is decoded."""

from __future__ import annotations

import struct
import zlib

from ...engines.errors import ImageError

__all__ = ["MAX_PIXELS", "MAX_SIDE", "check_pixels", "codestream_size", "jpeg_size", "png_size"]

MAX_PIXELS = 80_000_000  # 9 times the largest radiograph of the seven sets, and below Pillow's own warning
MAX_SIDE = 32_768

_NOT_FRAMES = {0xC4, 0xC8, 0xCC}  # markers of the SOF range that describe tables, not a frame
_BARE = {0x01, *range(0xD0, 0xD9)}  # markers without a length


def check_pixels(size: tuple[int, int]) -> None:
    """Raises ImageError when an image of (height, width) is empty or too large to be a radiograph."""
    height, width = size
    if height < 1 or width < 1:
        raise ImageError("its header says it has no pixels")
    if height * width > MAX_PIXELS or max(height, width) > MAX_SIDE:
        limit = f"{MAX_PIXELS} pixels and {MAX_SIDE} a side"
        raise ImageError(f"its header says {width} x {height} pixels, the limit is {limit}")


def png_size(data: bytes) -> tuple[int, int]:
    """(height, width) of a PNG whose chunks are all there and whole. Raises ImageError where one is cut or damaged.

    Pillow skips the checksum of pixel chunks; a flipped bit there would give wrong pixels without a word.
    """
    view, position, kind = memoryview(data), 8, b""
    while kind != b"IEND":
        if position + 12 > len(data):
            raise ImageError("it is truncated")
        length, kind = struct.unpack_from(">I4s", data, position)
        end = position + 8 + length
        if position == 8 and (kind != b"IHDR" or length != 13):
            raise ImageError("its PNG header is damaged")
        if end + 4 > len(data):
            raise ImageError("it is truncated")
        if zlib.crc32(view[position + 4 : end]) != struct.unpack_from(">I", data, end)[0]:
            raise ImageError(f"the checksum of its PNG chunk {kind!r} at byte {position} does not fit, it is damaged")
        position = end + 4
    width, height = struct.unpack_from(">II", data, 16)
    return height, width


def jpeg_size(data: bytes) -> tuple[int, int]:
    """(height, width) from the frame header of a JPEG stream, lossless JPEG and JPEG-LS included. Raises ImageError."""
    position = 2
    while position + 4 <= len(data):
        if data[position] != 0xFF:
            raise ImageError("its JPEG header is damaged")
        marker = data[position + 1]
        if marker == 0xFF:
            position += 1
            continue
        if marker in _BARE:
            position += 2
            continue
        if (0xC0 <= marker <= 0xCF and marker not in _NOT_FRAMES) or marker == 0xF7:
            if position + 9 > len(data):
                break
            height, width = struct.unpack_from(">HH", data, position + 5)
            return height, width
        if marker in (0xD9, 0xDA):
            raise ImageError("its JPEG stream has no frame header")
        position += 2 + struct.unpack_from(">H", data, position + 2)[0]
    raise ImageError("it is truncated")


def codestream_size(frame: bytes) -> tuple[int, int] | None:
    """(height, width) of a JPEG, JPEG-LS or JPEG 2000 stream inside a DICOM file; None: another kind of stream."""
    if frame.startswith(b"\xff\xd8"):
        return jpeg_size(frame)
    start = 0
    if frame[4:8] == b"jP  ":
        start = frame.find(b"jp2c") + 4
    if start >= 4 or frame.startswith(b"\xff\x4f"):
        if frame[start : start + 4] != b"\xff\x4f\xff\x51" or len(frame) < start + 24:
            raise ImageError("its JPEG 2000 header is damaged")
        right, bottom, left, top = struct.unpack_from(">IIII", frame, start + 8)
        return bottom - top, right - left
    return None
