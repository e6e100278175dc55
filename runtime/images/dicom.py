"""DICOM -> native 8-bit grey, MONOCHROME2 sense, in the order of docs/datasets.md §0.2."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import ImageError
from .dicom_run_length import decode_run_lengths
from .png_jpeg import check_pixels, codestream_size
from .voi import grey_table

__all__ = ["decode_dicom"]

_LITTLE_ENDIAN = frozenset({"1.2.840.10008.1.2", "1.2.840.10008.1.2.1"})  # implicit and explicit VR
_BIG_ENDIAN = "1.2.840.10008.1.2.2"
_DEFLATED = "1.2.840.10008.1.2.1.99"
_JPEG_8BIT = "1.2.840.10008.1.2.4.50"
_RLE = "1.2.840.10008.1.2.5"
# JPEG, lossless JPEG, JPEG-LS, JPEG 2000, high-throughput JPEG 2000
_STREAMS = {f"1.2.840.10008.1.2.4.{kind}" for kind in (50, 51, 57, 70, 80, 81, 90, 91, 201, 202, 203)}
_READABLE = _LITTLE_ENDIAN | _STREAMS | {_BIG_ENDIAN, _RLE}


def decode_dicom(data: bytes, *, stretched: bool = False) -> NDArray[np.uint8]:
    """uint8 [Rows, Columns], bright = radio-dense, from the bytes of a DICOM Part 10 file; stretched: see `grey_table`.

    One frame, one sample per pixel, MONOCHROME1 or MONOCHROME2, 8 or 16 bits allocated. Raises ImageError, and
    any exception of pydicom and its codecs on a damaged file.
    """
    import pydicom

    file = io.BytesIO(data)
    syntax = _transfer_syntax(file)
    file.seek(0)
    dataset = pydicom.dcmread(file)
    rows, columns = _integer(dataset, "Rows"), _integer(dataset, "Columns")
    check_pixels((rows, columns))
    photometric = str(dataset.get("PhotometricInterpretation", "")).strip()
    if photometric not in ("MONOCHROME1", "MONOCHROME2"):
        raise ImageError(f"its PhotometricInterpretation is {photometric!r}, only MONOCHROME1 and MONOCHROME2 are grey")
    if _integer(dataset, "SamplesPerPixel", 1) != 1:
        raise ImageError("it has more than one sample per pixel")
    if _integer(dataset, "NumberOfFrames", 1) > 1:
        raise ImageError(f"it has {dataset.NumberOfFrames} frames, a radiograph has one")
    stored = _stored_values(dataset, syntax, rows, columns)
    low, high = int(stored.min()), int(stored.max())
    table = grey_table(dataset, stored, low, high, inverted=photometric == "MONOCHROME1", stretched=stretched)
    if table is None:
        return stored.astype(np.uint8, copy=False)
    # A table over the values that occur: at most 65,536 entries in float64 instead of millions of pixels.
    indices = stored if low >= 0 else stored.astype(np.int32) - low
    return np.asarray(np.take(table, indices))


def _stored_values(dataset: Any, syntax: str, rows: int, columns: int) -> NDArray[np.integer]:
    """The stored values [rows, columns], integers of 8 or 16 bits, with BitsStored, HighBit and sign applied."""
    allocated = _integer(dataset, "BitsAllocated")
    bits = _integer(dataset, "BitsStored", allocated)
    high_bit = _integer(dataset, "HighBit", bits - 1)
    signed = _integer(dataset, "PixelRepresentation", 0) == 1
    if allocated not in (8, 16) or not 1 <= bits <= allocated or not bits - 1 <= high_bit < allocated:
        raise ImageError(f"BitsAllocated {allocated}, BitsStored {bits} and HighBit {high_bit} do not fit together")
    if "PixelData" not in dataset:
        raise ImageError("it has no PixelData")
    if syntax in _LITTLE_ENDIAN:
        size = rows * columns * allocated // 8
        if len(dataset.PixelData) < size:
            raise ImageError(f"its PixelData has {len(dataset.PixelData)} bytes instead of {size}, it is truncated")
        words = np.frombuffer(dataset.PixelData, f"<u{allocated // 8}", rows * columns).reshape(rows, columns)
        return _bits(words, bits, high_bit, signed)
    if syntax != _BIG_ENDIAN:
        if high_bit != bits - 1:
            raise ImageError(f"its HighBit is {high_bit} although its pixels are compressed")
        frame = _only_frame(dataset)
        if syntax != _RLE:
            return _from_stream(dataset, syntax, frame, rows, columns, bits)
        return _bits(decode_run_lengths(frame, rows, columns, allocated), bits, high_bit, signed)
    from pydicom.pixels import get_decoder

    values = get_decoder(syntax).as_array(dataset, index=0)[0]
    values = values.astype(values.dtype.newbyteorder("="), copy=False)
    return _bits(values.view(f"u{values.itemsize}"), bits, high_bit, signed)


def _only_frame(dataset: Any) -> bytes:
    """The compressed frame, found as pydicom's decoders find it, so that the checked bytes are the decoded ones."""
    from pydicom.encaps import get_frame

    # A second offset table could point the decoders to unchecked bytes; one frame needs no such table.
    for keyword in ("ExtendedOffsetTable", "ExtendedOffsetTableLengths"):
        dataset.pop(keyword, None)
    return bytes(get_frame(dataset.PixelData, 0, number_of_frames=1))


def _from_stream(dataset: Any, syntax: str, frame: bytes, rows: int, columns: int, bits: int) -> NDArray[np.integer]:
    size = codestream_size(frame)
    if size is not None and size != (rows, columns):
        raise ImageError(f"its header says {columns} x {rows} pixels, its compressed stream {size[1]} x {size[0]}")
    if syntax == _JPEG_8BIT and bits == 8 and _integer(dataset, "PixelRepresentation", 0) == 0:
        # Pillow's libjpeg-turbo needs a quarter of the time of pydicom's decoders.
        from PIL import Image

        with Image.open(io.BytesIO(frame), formats=("JPEG",)) as image:
            if image.mode != "L":
                raise ImageError(f"its JPEG stream is of the kind '{image.mode}', not grey")
            return np.asarray(image)
    from pydicom.pixels import get_decoder

    values: NDArray[np.integer] = get_decoder(syntax).as_array(dataset, index=0, decoding_plugin="pylibjpeg")[0]
    if values.shape != (rows, columns) or values.dtype.itemsize > 2:
        raise ImageError(f"its pixels decode to {values.shape} {values.dtype}, not to {rows} x {columns} grey values")
    return values


def _bits(words: NDArray[np.unsignedinteger], bits: int, high_bit: int, signed: bool) -> NDArray[np.integer]:
    """The `bits` bits below and including `high_bit` of unsigned words, sign-extended when `signed`."""
    width = words.dtype.itemsize * 8
    if bits == width:
        return words.view(f"i{words.dtype.itemsize}") if signed else words
    # Shift left to the top of the word, then right: an arithmetic shift if the values are signed.
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


def _transfer_syntax(file: io.BytesIO) -> str:
    """The transfer syntax of a DICOM file, as pydicom will understand it. Raises ImageError for an unsupported one.

    Checked before the data set is read: pydicom would inflate a deflated data set of any size.
    """
    # pydicom offers this for a path only. Its own parser of the group is used: another one could read another value.
    from pydicom.filereader import _read_file_meta_info

    file.seek(132)
    value = _read_file_meta_info(file).get("TransferSyntaxUID")
    syntax = str(value)
    if syntax in _READABLE:
        return syntax
    if value is None:
        raise ImageError("it lacks the tag TransferSyntaxUID")
    if syntax == _DEFLATED:
        raise ImageError("its data set is deflated as a whole; store it with another transfer syntax")
    raise ImageError(
        f"its transfer syntax {syntax[:64]!r} is not read; store it uncompressed, or as JPEG, JPEG-LS, JPEG 2000 or RLE"
    )
