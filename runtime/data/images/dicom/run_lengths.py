"""Run-length coded pixels of a DICOM file -> words (DICOM PS3.5, annex G).

A frame of n bytes can expand to 64 n bytes, and pydicom's decoder creates all of them before it checks their number.
Here decoding of a segment stops as soon as its plane is complete.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import ImageError

_HEADER = 64  # bytes: the number of segments and 15 offsets


def decode_run_lengths(frame: bytes, rows: int, columns: int, allocated: int) -> NDArray[np.unsignedinteger]:
    """The words [rows, columns] of one grey frame, unsigned, of `allocated` bits (8 or 16).

    Needs memory for the result and, during decoding, for one more plane. Raises ImageError for a damaged frame.
    """
    planes = allocated // 8
    if len(frame) < _HEADER:
        raise ImageError("its run-length coded frame is truncated")
    count, *offsets = struct.unpack_from("<16L", frame)
    if count != planes:
        raise ImageError(f"its run-length coded frame has {count} segments, {allocated} bits need {planes}")
    size = rows * columns
    ends = [*offsets[1:planes], len(frame)]
    words = np.empty((size, planes), np.uint8)
    for plane, (start, end) in enumerate(zip(offsets, ends, strict=False)):  # the most significant bytes come first
        # A run needs at most two bytes for a byte of the plane, so later bytes are not needed.
        words[:, plane] = np.frombuffer(_plane(frame[start : min(end, start + 2 * size)], size), np.uint8)
    big_endian = words.view(f">u{planes}")
    return big_endian.astype(f"u{planes}", copy=False).reshape(rows, columns)


def _plane(segment: bytes, size: int) -> bytearray:
    """The first `size` decoded bytes of a segment; bytes after them, for example padding, are ignored."""
    plane, position, end = bytearray(), 0, len(segment)
    while len(plane) < size:
        if position >= end:
            raise ImageError(f"a segment of its run-length coded frame gives {len(plane)} of {size} bytes")
        control = segment[position]
        if control < 128:
            following = position + control + 2
            plane += segment[position + 1 : following]
            position = following
        elif control > 128:
            plane += segment[position + 1 : position + 2] * (257 - control)
            position += 2
        else:  # 128 has no meaning
            position += 1
    del plane[size:]
    return plane
