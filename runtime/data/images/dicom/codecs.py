"""A decoder for each transfer syntax: the bytes of a frame -> integers, with what their stream says of them.

No decoder masks, shifts or signs: `stored_values` does that for all. The codecs are from imagecodecs:
libjpeg-turbo, CharLS and OpenJPEG. Of lossless JPEG, other libraries clamp differences that were taken modulo 2^P
(libjpeg of pylibjpeg) or pass over restart intervals (liblj92), without an error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from .....engines.errors import ImageError
from .elements import BIG_ENDIAN, EXPLICIT, IMPLICIT, RUN_LENGTHS
from .jpeg_header import JpegHeader
from .run_lengths import decode_run_lengths
from .stored_values import Decoded, PixelLayout

Decoder = Callable[[bytes, PixelLayout], Decoded]
"""The bytes of one frame, and the layout that its data set states -> integers [rows, columns]."""

_LOSSLESS: Final = 0xC3  # the marker of lossless JPEG with Huffman codes
_END: Final = b"\xff\xd9"


def _native(frame: bytes, layout: PixelLayout) -> Decoded:
    """Little-endian words."""
    words = np.frombuffer(frame, f"<u{layout.allocated // 8}", layout.rows * layout.columns)
    return Decoded(words.reshape(layout.rows, layout.columns), layout.allocated)


def _native_big(frame: bytes, layout: PixelLayout) -> Decoded:
    words = np.frombuffer(frame, f">u{layout.allocated // 8}", layout.rows * layout.columns)
    native = words.astype(words.dtype.newbyteorder("="), copy=False)
    return Decoded(native.reshape(layout.rows, layout.columns), layout.allocated)


def _run_lengths(frame: bytes, layout: PixelLayout) -> Decoded:
    return Decoded(decode_run_lengths(frame, layout.rows, layout.columns, layout.allocated), layout.allocated)


def _jpeg(frame: bytes, layout: PixelLayout) -> Decoded:
    """Baseline, extended (8 or 12 bits), progressive and lossless JPEG (2 to 16 bits, any predictor and restarts)."""
    from imagecodecs import jpeg8_decode

    header = _header(frame, layout)
    if header.marker == _LOSSLESS and header.predictor > 4 and header.precision < 16:
        from .lossless import decode_averaging

        return Decoded(decode_averaging(frame, header), header.precision)
    return Decoded(np.asarray(jpeg8_decode(frame)), header.precision, lossy=header.marker != _LOSSLESS)


def _jpeg_ls(frame: bytes, layout: PixelLayout) -> Decoded:
    from imagecodecs import jpegls_decode

    header = _header(frame, layout)
    # Where lossless JPEG has its predictor, JPEG-LS has NEAR, the largest error (ITU-T T.87 C.2.3).
    return Decoded(np.asarray(jpegls_decode(frame)), header.precision, lossy=header.predictor > 0)


def _jpeg_2000(frame: bytes, layout: PixelLayout) -> Decoded:
    """JPEG 2000 and its high-throughput form, bare or in a JP2 file."""
    from imagecodecs import jpeg2k_decode

    start = frame.find(b"jp2c") + 4 if frame[4:8] == b"jP  " else 0
    if frame[start : start + 4] != b"\xff\x4f\xff\x51" or len(frame) < start + 43:
        raise ImageError("its JPEG 2000 header is damaged")
    right, bottom, left, top = struct.unpack_from(">IIII", frame, start + 8)
    components, depth = struct.unpack_from(">HB", frame, start + 40)
    _check(layout, (bottom - top, right - left), components)
    style = frame.find(b"\xff\x52", start)  # COD, whose last field is 0 for the irreversible wavelet (T.800 A.6.1)
    lossy = 0 < style < len(frame) - 13 and frame[style + 13] == 0
    return Decoded(np.asarray(jpeg2k_decode(frame)), (depth & 0x7F) + 1, signed=bool(depth & 0x80), lossy=lossy)


def _header(frame: bytes, layout: PixelLayout) -> JpegHeader:
    """The header of a JPEG or JPEG-LS stream, whose size and end are checked before anything is decoded.

    libjpeg-turbo fills what is missing of a cut stream with grey and says nothing; CharLS needs seconds to see it.
    """
    header = JpegHeader.of(frame)
    _check(layout, header.size, header.components)
    if frame.rfind(_END) < header.scan:
        raise ImageError("its JPEG stream is truncated")
    return header


def _check(layout: PixelLayout, size: tuple[int, ...], components: int) -> None:
    if size != (layout.rows, layout.columns):
        raise ImageError(
            f"its header says {layout.columns} x {layout.rows} pixels, its compressed stream {size[1]} x {size[0]}"
        )
    if components != 1:
        raise ImageError(f"its compressed stream has {components} samples a pixel, a grey image has one")


_JPEG_SYNTAXES: Final = "1.2.840.10008.1.2.4"

DECODERS: Final[Mapping[str, Decoder]] = {
    IMPLICIT: _native,
    EXPLICIT: _native,
    BIG_ENDIAN: _native_big,
    RUN_LENGTHS: _run_lengths,
    **{f"{_JPEG_SYNTAXES}.{number}": _jpeg for number in (50, 51, 57, 70)},
    **{f"{_JPEG_SYNTAXES}.{number}": _jpeg_ls for number in (80, 81)},
    **{f"{_JPEG_SYNTAXES}.{number}": _jpeg_2000 for number in (90, 91, 201, 202, 203)},
}
"""UID of a transfer syntax -> its decoder. A test encodes an image for each and compares the stored values."""

NATIVE: Final = (IMPLICIT, EXPLICIT, BIG_ENDIAN)
"""The transfer syntaxes whose pixels are not compressed."""
