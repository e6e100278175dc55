"""DICOM -> native 8-bit grey, MONOCHROME2 sense, in the order of dataset specification §0.2."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import ImageError
from .headers import check_pixels, codestream_size
from .voi import grey_table

__all__ = ["decode_dicom"]

_IMPLICIT, _EXPLICIT = "1.2.840.10008.1.2", "1.2.840.10008.1.2.1"
_DEFLATED = b"1.2.840.10008.1.2.1.99"
_JPEG_8BIT = "1.2.840.10008.1.2.4.50"
_RLE = "1.2.840.10008.1.2.5"


def decode_dicom(data: bytes) -> NDArray[np.uint8]:
    """uint8 [Rows, Columns], bright = radio-dense, from the bytes of a DICOM Part 10 file.

    One frame, one sample per pixel, MONOCHROME1 or MONOCHROME2, 8 or 16 bits allocated. Raises ImageError, and
    whatever pydicom and its codecs raise on a damaged file.
    """
    import pydicom

    if _is_deflated(data):
        raise ImageError("its data set is deflated as a whole; store it with another transfer syntax")
    dataset = pydicom.dcmread(io.BytesIO(data))
    rows, columns = _integer(dataset, "Rows"), _integer(dataset, "Columns")
    check_pixels((rows, columns))
    photometric = str(dataset.get("PhotometricInterpretation", "")).strip()
    if photometric not in ("MONOCHROME1", "MONOCHROME2"):
        raise ImageError(f"its PhotometricInterpretation is {photometric!r}, only MONOCHROME1 and MONOCHROME2 are grey")
    if _integer(dataset, "SamplesPerPixel", 1) != 1:
        raise ImageError("it has more than one sample per pixel")
    if _integer(dataset, "NumberOfFrames", 1) > 1:
        raise ImageError(f"it has {dataset.NumberOfFrames} frames, a radiograph has one")
    stored = _stored_values(dataset, rows, columns)
    low, high = int(stored.min()), int(stored.max())
    table = grey_table(dataset, stored, low, high, inverted=photometric == "MONOCHROME1")
    if table is None:
        return stored.astype(np.uint8, copy=False)
    # A table over the values that occur: at most 65,536 entries in float64 instead of millions of pixels.
    indices = stored if low >= 0 else stored.astype(np.int32) - low
    return np.asarray(np.take(table, indices))


def _stored_values(dataset: Any, rows: int, columns: int) -> NDArray[np.integer]:
    """The stored values [rows, columns], integers of 8 or 16 bits, with BitsStored, HighBit and sign applied."""
    allocated = _integer(dataset, "BitsAllocated")
    bits = _integer(dataset, "BitsStored", allocated)
    high_bit = _integer(dataset, "HighBit", bits - 1)
    signed = _integer(dataset, "PixelRepresentation", 0) == 1
    if allocated not in (8, 16) or not 1 <= bits <= allocated or not bits - 1 <= high_bit < allocated:
        raise ImageError(f"BitsAllocated {allocated}, BitsStored {bits} and HighBit {high_bit} do not fit together")
    if "PixelData" not in dataset:
        raise ImageError("it has no PixelData")
    syntax = str(dataset.file_meta.TransferSyntaxUID)
    if syntax in (_IMPLICIT, _EXPLICIT):
        size = rows * columns * allocated // 8
        if len(dataset.PixelData) < size:
            raise ImageError(f"its PixelData has {len(dataset.PixelData)} bytes instead of {size}, it is truncated")
        words = np.frombuffer(dataset.PixelData, f"<u{allocated // 8}", rows * columns).reshape(rows, columns)
        return _bits(words, bits, high_bit, signed)
    if high_bit != bits - 1:
        raise ImageError(f"its HighBit is {high_bit} although its pixels are compressed")
    if dataset.file_meta.TransferSyntaxUID.is_encapsulated:
        return _compressed(dataset, syntax, rows, columns, bits)
    from pydicom.pixels import get_decoder

    values = get_decoder(syntax).as_array(dataset, index=0)[0]
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    return _bits(values.view(f"u{values.itemsize}"), bits, high_bit, signed)


def _compressed(dataset: Any, syntax: str, rows: int, columns: int, bits: int) -> NDArray[np.integer]:
    from pydicom.encaps import generate_frames

    frame = next(generate_frames(dataset.PixelData, number_of_frames=1))
    size = codestream_size(frame)
    if size is not None and size != (rows, columns):
        raise ImageError(f"its header says {columns} x {rows} pixels, its compressed stream {size[1]} x {size[0]}")
    if syntax == _JPEG_8BIT and bits == 8 and _integer(dataset, "PixelRepresentation", 0) == 0:
        # Pillow's libjpeg-turbo takes a quarter of the time of pydicom's decoders.
        from PIL import Image

        with Image.open(io.BytesIO(frame), formats=("JPEG",)) as image:
            if image.mode != "L":
                raise ImageError(f"its JPEG stream is of the kind '{image.mode}', not grey")
            return np.asarray(image)
    from pydicom.pixels import get_decoder

    # pylibjpeg's run-length decoder leaves Python's exceptions behind when it meets a damaged frame.
    plugin = "pydicom" if syntax == _RLE else "pylibjpeg"
    values: NDArray[np.integer] = get_decoder(syntax).as_array(dataset, index=0, decoding_plugin=plugin)[0]
    if values.shape != (rows, columns) or values.dtype.itemsize > 2:
        raise ImageError(f"its pixels decode to {values.shape} {values.dtype}, not to {rows} x {columns} grey values")
    return values


def _bits(words: NDArray[np.unsignedinteger], bits: int, high_bit: int, signed: bool) -> NDArray[np.integer]:
    """The `bits` bits below and including `high_bit` of unsigned words, sign-extended when `signed`."""
    width = words.dtype.itemsize * 8
    if bits == width:
        return words.view(f"i{words.dtype.itemsize}") if signed else words
    # Up to the top of the word, then down again: an arithmetic shift where the values are signed.
    top = np.left_shift(words, width - 1 - high_bit)
    if signed:
        top = top.view(f"i{words.dtype.itemsize}")
    return np.asarray(np.right_shift(top, width - bits))


def _integer(dataset: Any, keyword: str, default: int | None = None) -> int:
    value = dataset.get(keyword)
    if value is None or value == "":
        if default is None:
            raise ImageError(f"it lacks the tag {keyword}")
        return default
    return int(value)


def _is_deflated(data: bytes) -> bool:
    """Whether the file is compressed as a whole; pydicom would inflate it without any limit on its size."""
    start = data.find(b"\x02\x00\x10\x00UI", 132)  # (0002,0010) TransferSyntaxUID; its group is always explicit VR
    return start >= 0 and data[start + 8 : start + 8 + len(_DEFLATED)] == _DEFLATED
