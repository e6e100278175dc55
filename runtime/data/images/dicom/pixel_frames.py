"""The pixels of a DICOM file, frame by frame; their number and length must be what the data set states."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import ImageError
from .codecs import DECODERS, NATIVE
from .elements import BIG_ENDIAN, RUN_LENGTHS, DataElement, DataSet, Order
from .stored_values import PixelLayout, stored_values

_ITEM, _DELIMITER = (0xFFFE, 0xE000), (0xFFFE, 0xE0DD)
_STARTS: Final = (b"\xff\xd8\xff", b"\xff\x4f\xff\x51", b"\0\0\0\x0cjP  ")  # of JPEG, JPEG 2000 and JP2
_FLOATS: Final = {"FloatPixelData": 4, "DoubleFloatPixelData": 8}


def check_syntax(syntax: str) -> None:
    """Raises ImageError for a transfer syntax without a decoder."""
    if syntax not in DECODERS:
        raise ImageError(
            f"its transfer syntax {syntax} is not read; store it uncompressed, or as JPEG, JPEG-LS, JPEG 2000 or RLE"
        )


def stored_frames(dataset: DataSet, layout: PixelLayout, count: int) -> Iterator[NDArray[np.integer]]:
    """The stored values [rows, columns] of `count` frames. Raises ImageError, which quotes no value."""
    check_syntax(dataset.syntax)
    decoder = DECODERS[dataset.syntax]
    for frame in _frames(dataset, layout, count):
        try:
            decoded = decoder(frame, layout)
        except (ImageError, MemoryError, ImportError):
            raise
        # The codecs can raise any exception on a damaged stream.
        except Exception as error:
            raise ImageError(f"its compressed pixels are damaged ({type(error).__name__})") from None
        yield stored_values(decoded, layout)


def mask_frames(dataset: DataSet, count: int) -> NDArray[np.generic]:
    """The frames [count, rows, columns] of a Segmentation or Parametric Map: bits, whole numbers or floating point.

    Raises ImageError, which quotes no value.
    """
    rows, columns = dataset.integer("Rows"), dataset.integer("Columns")
    shape = (count, rows, columns)
    for keyword, size in _FLOATS.items():
        if keyword in dataset:
            pixels = _native(dataset, keyword, count * rows * columns * size)
            order = ">" if dataset.syntax == BIG_ENDIAN else "<"
            return np.frombuffer(pixels, f"{order}f{size}", count * rows * columns).reshape(shape)
    if dataset.integer("BitsAllocated") == 1:
        # Frames follow each other without padding, the first pixel in the lowest bit (PS3.5 8.1.1, figure 8.1.1-2).
        pixels = _native(dataset, "PixelData", -(-count * rows * columns // 8))
        bits = np.unpackbits(np.frombuffer(pixels, np.uint8), bitorder="little")
        if bits[count * rows * columns :].any():
            raise ImageError(
                "its PixelData has bits set beyond its last pixel; frames follow each other without padding, and only "
                "zeros follow the last"
            )
        return bits[: count * rows * columns].reshape(shape)
    return np.stack(list(stored_frames(dataset, PixelLayout.of(dataset), count)))


def _frames(dataset: DataSet, layout: PixelLayout, count: int) -> list[bytes]:
    size = layout.rows * layout.columns * layout.allocated // 8
    if dataset.syntax in NATIVE:
        pixels = _native(dataset, "PixelData", count * size)
        return [pixels[start : start + size] for start in range(0, count * size, size)]
    element = _pixels(dataset, "PixelData")
    items = _items(element.value, "<")
    if items is None:
        raise ImageError("its pixels are not in items, although its transfer syntax is compressed")
    offsets, fragments = items[0], [fragment for fragment in items[1:] if fragment]
    starts = struct.unpack(f"<{len(offsets) // 4}I", offsets[: len(offsets) // 4 * 4])
    if starts and (len(starts) != count or starts[0] != 0):
        raise ImageError(f"its offset table is of {len(starts)} frames, its header says {count}")
    # A stream begins with its marker and RLE has a fragment a frame (PS3.5 A.4.2): these tell frames without a table.
    alone = dataset.syntax == RUN_LENGTHS
    begins = [number for number, one in enumerate(fragments) if alone or number == 0 or one.startswith(_STARTS)]
    if len(begins) != count:
        raise ImageError(f"its pixels are {len(begins)} compressed frames, its header says {count}")
    ends = [*begins[1:], len(fragments)]
    return [b"".join(fragments[begin:end]) for begin, end in zip(begins, ends, strict=True)]


def _native(dataset: DataSet, keyword: str, size: int) -> bytes:
    """The bytes of uncompressed pixels, of which there are `size`, or one more that makes their number even."""
    check_syntax(dataset.syntax)
    if dataset.syntax not in NATIVE:
        raise ImageError("its pixels are compressed in a way that DICOM does not allow for their kind")
    element = _pixels(dataset, keyword)
    value = element.value
    if element.in_items or _items(value, element.order) is not None:
        raise ImageError("its pixels are in items, although its transfer syntax is uncompressed")
    if not size <= len(value) <= size + size % 2:
        cause = "truncated" if len(value) < size else "too long"
        raise ImageError(f"its {keyword} has {len(value)} bytes instead of {size}, it is {cause}")
    if dataset.syntax == BIG_ENDIAN and element.order == "<":
        raise ImageError(f"its {keyword} has no value representation, so its byte order is unknown")
    if element.order == ">" and element.vr == "OW" and dataset.integer("BitsAllocated") <= 8:
        # Bytes in words of 16 bits are swapped with them (PS3.5 8.2).
        return np.frombuffer(value + bytes(len(value) % 2), np.uint16).byteswap().tobytes()
    return value


def _pixels(dataset: DataSet, keyword: str) -> DataElement:
    element = dataset.element(keyword)
    if element is None:
        raise ImageError(f"it has no {keyword}")
    return element


def _items(value: bytes, order: Order) -> list[bytes] | None:
    """The items of a series, the offset table first; None if `value` is no series of items."""
    series: list[bytes] = []
    position = 0
    while position + 8 <= len(value):
        *tag, length = struct.unpack_from(f"{order}HHI", value, position)
        if tuple(tag) == _DELIMITER and series:
            return series
        if tuple(tag) != _ITEM or position + 8 + length > len(value):
            return None
        series.append(value[position + 8 : position + 8 + length])
        position += 8 + length
    return series if series and position == len(value) else None
