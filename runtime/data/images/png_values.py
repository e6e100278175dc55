"""The stored values of an ordinary PNG: libdeflate inflates its rows, a loop compiled on import undoes their filters.

Twice as fast as libpng and Pillow. What is unusual or damaged is left to them, and so is what they say of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from ....metrics_gpu.compiled import compiled

Chunk = tuple[bytes, int, int]
"""Type of a chunk of a PNG, where its content begins, and where it ends."""

# Types of all chunks in order, and the most bytes of those without pixels.
_BY_LIBPNG: Final = (
    # It takes an ancillary chunk whatever it holds, and looks at nothing behind the pixels. The types that are left out
    # mean transparency or an animation; it takes a third letter that is not a capital for damage.
    re.compile(
        rb"IHDR(?:(?!tRNS|acTL|fcTL|fdAT)[a-z][a-zA-Z][A-Z][a-zA-Z])*(?:IDAT)+(?:(?!IDAT|tRNS|acTL).{4})*", re.DOTALL
    ),
    8_000_000,  # its bound of one chunk
)
_BY_PILLOW: Final = (
    # It reads the chunks before the pixels itself. Behind them are only those that it takes whatever they hold.
    re.compile(rb"IHDR(?:bKGD|cHRM|eXIf|gAMA|iCCP|iTXt|pHYs|sBIT|sRGB|tEXt|tIME|zTXt)*(?:IDAT)+(?:tEXt|tIME)*IEND"),
    1 << 15,  # inflated a thousandfold, less than its bound of all text
)

_KINDS: Final = {
    b"\x08\x00": (1, _BY_LIBPNG),
    b"\x08\x02": (3, _BY_PILLOW),
    b"\x08\x04": (2, _BY_PILLOW),
    b"\x08\x06": (4, _BY_PILLOW),
    b"\x10\x00": (1, _BY_PILLOW),
    b"\x10\x02": (3, _BY_LIBPNG),
    b"\x10\x04": (2, _BY_LIBPNG),
    b"\x10\x06": (4, _BY_LIBPNG),
}
"""Bit depth and colour type -> number of channels, and what the library takes that otherwise decodes such a file."""


def stored_values(data: bytes, size: tuple[int, int], chunks: Sequence[Chunk]) -> NDArray[Any] | None:
    """uint8 or uint16 [H, W], of several channels [H, W, C]; None: a library must decode the file.

    `size`: height and width; `chunks`: of the whole file, their checksums checked. The rows are inflated to exactly the
    length that follows from the header, and their own checksum is checked (PNG, third edition, 10).
    """
    kind = _KINDS.get(data[24:26])
    if kind is None or data[26:29] != bytes(3):
        return None
    channels, (order, most) = kind
    besides = sum(end - begin for name, begin, end in chunks if name != b"IDAT")
    if besides > most or not order.fullmatch(b"".join(name for name, _, _ in chunks)):
        return None
    pixel = channels * (data[24] // 8)
    height, width = size
    filtered = np.empty((height, 1 + pixel * width), np.uint8)
    view = memoryview(data)
    try:
        from imagecodecs import deflate_decode

        stream = b"".join(view[begin:end] for name, begin, end in chunks if name == b"IDAT")
        length = len(deflate_decode(stream, out=filtered.reshape(-1).data))
    except (ImportError, RuntimeError, ValueError):
        return None  # not installed, damaged, or longer
    if 256 << (stream[0] >> 4) < min(filtered.size, 1 << 15):
        return None  # the libraries refuse a distance beyond the window that the stream names, libdeflate does not
    values: NDArray[Any] = np.empty((height, pixel * width), np.uint8)
    if length != filtered.size or not _unfilter_c(filtered, values, pixel):
        return None
    if data[24] == 16:
        values = values.view(">u2").astype(np.uint16)
    return values if channels == 1 else values.reshape(height, width, channels)


def _along(kind: int, row: Any, above: Any, out: Any, pixel: int) -> None:
    """Undoes a filter that looks at the left neighbour, for every `pixel`-th byte."""
    left = corner = 0
    if kind == 1:
        for x in range(0, len(row), pixel):
            left = (row[x] + left) & 255
            out[x] = left
    elif kind == 3:
        for x in range(0, len(row), pixel):
            left = (row[x] + ((left + above[x]) >> 1)) & 255
            out[x] = left
    else:
        for x in range(0, len(row), pixel):
            # Paeth's choice without his three distances, which takes fewer steps from one value to the next: the corner
            # if this lies between the other two, else the one on the far side.
            up = int(above[x])
            low, high, beyond = min(left, up), max(left, up), 3 * corner - left - up
            nearest = high if beyond <= low else low if high <= beyond else corner
            left = (row[x] + nearest) & 255
            out[x] = left
            corner = up


_along_c = compiled(_along)


def _unfilter(filtered: Any, values: Any, pixel: int) -> bool:
    """Rows [H, 1 + n], each behind the type of its filter (PNG, third edition, 9), to their values [H, n]; False for a
    type that does not exist."""
    above = np.zeros(values.shape[1], np.uint8)
    for y in range(len(values)):
        kind, row, out = filtered[y, 0], filtered[y, 1:], values[y]
        if kind > 4:
            return False
        if kind == 0:
            for x in range(len(row)):
                out[x] = row[x]
        elif kind == 2:
            for x in range(len(row)):
                out[x] = row[x] + above[x]
        else:
            # Channel by channel: the left neighbour then stays in a register, where a loop over bytes would wait for it
            # to be stored and loaded again.
            for channel in range(pixel):
                _along_c(kind, row[channel:], above[channel:], out[channel:], pixel)
        above = out
    return True


_unfilter_c = compiled(_unfilter, types.boolean(types.uint8[:, ::1], types.uint8[:, ::1], types.int64))
