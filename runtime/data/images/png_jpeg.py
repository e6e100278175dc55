"""PNG and JPEG: sizes from the headers, read before decoding, and pixels as native 8-bit grey.

`png_values` decodes an ordinary PNG where numba is loaded. Otherwise libpng, through imagecodecs, decodes plain grey
and colour of 16 bits, and Pillow the rest; the pixels are the same.

docs/datasets.md §0.2 defines the conversion of other pixel formats.
"""

from __future__ import annotations

import io
import struct
import sys
import zlib
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ImageError
from .intensity import stretch, stretch_stored

MAX_PIXELS = 80_000_000  # 9 times the largest radiograph of the seven sets, and below Pillow's own warning
MAX_SIDE = 32_768

# Markers of frame headers, JPEG-LS included; three of their range describe tables.
JPEG_FRAMES = frozenset({*range(0xC0, 0xD0), 0xF7} - {0xC4, 0xC8, 0xCC})
_BARE = {0x01, *range(0xD0, 0xD9)}  # markers without a length

_JPEG_LS: Final = 0xF7  # the frame marker SOF55, with which a JPEG-LS stream begins
_ANIMATION: Final = "it is an animation; save the intended picture as a separate PNG"

_DEEP_CHANNELS: Final = {b"\x10\x02": 3, b"\x10\x04": 2, b"\x10\x06": 4}
"""Bit depth and colour type of a PNG of several channels of 16 bits -> number of channels."""

_PLAIN = b"\x08\x00\x00\x00\x00"  # 8 bits, grey, the only compression and filter method, not interlaced
_DEEP = {"I", "I;16", "I;16B", "I;16L", "I;16N"}
_DIRECT = {"1", "LA", "RGB", "RGBA", "RGBX", "P", "PA", "La"}  # Pillow converts these to grey in one step
_BY_RGB = {"RGBa", "CMYK", "YCbCr"}
_KNOWN = {"L", *_DEEP, *_DIRECT, *_BY_RGB}
_WHOLE = {"L", "LA", "RGB", "RGBA"}  # their values are the stored ones


def decode_png(data: bytes, *, stretched: bool = False) -> NDArray[np.uint8]:
    """uint8 [H, W]: grey unchanged, colour by luminance, transparency dropped, 16 bits stretched to 0..255.

    stretched: the stored values are stretched first, see `stretch_stored`; colour by luminance after that.
    libpng decodes plain grey, because it is faster than Pillow and gives the same bytes, and several channels of 16
    bits, of which Pillow keeps the high bytes.
    Raises ImageError, and any exception of a library on a damaged file.
    """
    size, chunks = png_chunks(data)
    check_pixels(size)
    values: NDArray[Any] | None = None
    if "numba" in sys.modules:  # as in an evaluation; to load it for a few images takes 0.5 s and 130 MB
        from .png_values import stored_values  # compiles

        values = stored_values(data, size, chunks)
    channels = _DEEP_CHANNELS.get(data[24:26])
    if channels is not None:
        return _deep_colour(data, channels, stretched, values)
    # Not for a file with transparency, which libpng would expand, and not for an animation.
    if data[24:29] == _PLAIN and {kind for kind, _, _ in chunks}.isdisjoint((b"tRNS", b"acTL")):
        try:
            grey = np.asarray(by_libpng(data) if values is None else values, np.uint8)
            return stretch_stored(grey) if stretched else grey
        except (ImportError, RuntimeError, ValueError):
            pass  # not installed, or refused: Pillow then says why
    return _by_pillow(data, "PNG", stretched, values)


def decode_jpeg(data: bytes, *, stretched: bool = False) -> NDArray[np.uint8]:
    """uint8 [H, W], as `decode_png`; of several pictures in one file (MPO) the first, which every viewer shows.

    An EXIF orientation is not applied: the official pipelines open radiographs with Pillow, which ignores it.
    """
    frame = jpeg_frame(data)
    check_pixels((frame.height, frame.width))
    if frame.marker == _JPEG_LS:
        raise ImageError("it is JPEG-LS; save it as PNG or DICOM")
    if frame.bits != 8:
        raise ImageError(f"it is a JPEG of {frame.bits} bits a channel; save it as PNG of 16 bits or as DICOM")
    if frame.channels == 4 and not frame.adobe:
        # Adobe's programs write inks inverted and say so; Pillow inverts the others too, which may give a negative.
        raise ImageError("its four colours are not named (no Adobe marker); save it in grey or RGB")
    return _by_pillow(data, "JPEG", stretched)


def _deep_colour(data: bytes, channels: int, stretched: bool, known: NDArray[Any] | None) -> NDArray[np.uint8]:
    """A PNG of 16 bits whose pixels have several channels (docs/datasets.md §0.2); known: as in `_by_pillow`."""
    from PIL import Image

    if _is_animation(data):
        raise ImageError(_ANIMATION)
    # Without the opacity that libpng makes of a transparent colour.
    values = by_libpng(data)[..., :channels] if known is None else known
    if stretched:
        return np.asarray(Image.fromarray(stretch_stored(values)).convert("L"))
    return stretch(values[..., 0] if channels == 2 else luminance(values))


def by_libpng(data: bytes) -> NDArray[Any]:
    """The stored values of a PNG, uint8 or uint16 [H, W] or [H, W, C]. Raises ImportError, and as imagecodecs."""
    from imagecodecs import png_decode

    try:
        return np.asarray(png_decode(data))
    except Exception:
        # imagecodecs 2026.3.6 gives back one reference to None too many for a file that libpng refuses. Before Python
        # 3.12 a process aborted after 61,000 such files, which a client of `serve` can send.
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(None))
        raise


def luminance(values: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """uint16 [H, W] of colours uint16 [H, W, 3 or more]: Pillow's `L` in 16 bits, with its weights of 2**-16, rounded
    half up."""
    total = np.full(values.shape[:2], 32768, np.uint32)  # the weights sum to 2**16, so no sum overflows
    for channel, weight in enumerate((19595, 38470, 7471)):
        total += values[..., channel] * np.uint32(weight)
    return np.asarray(total >> 16, np.uint16)


def _is_animation(data: bytes) -> bool:
    """Whether a PNG whose chunks are whole has more than one picture."""
    position = 8
    while position < len(data):
        length, chunk_type = struct.unpack_from(">I4s", data, position)
        if chunk_type in (b"IDAT", b"IEND"):
            return False
        if chunk_type == b"acTL":
            return bool(struct.unpack_from(">I", data, position + 8)[0] > 1)
        position += 12 + length
    return False


def _by_pillow(
    data: bytes, image_format: Literal["PNG", "JPEG"], stretched: bool, known: NDArray[Any] | None = None
) -> NDArray[np.uint8]:
    """known: the stored values, if they are decoded already; Pillow then reads what is before them, and converts."""
    from PIL import Image

    image: Image.Image
    with Image.open(io.BytesIO(data), formats=(image_format,)) as image:
        # Of an MPO, in which Pillow counts frames too, the further pictures are previews or other views.
        if image_format == "PNG" and getattr(image, "n_frames", 1) > 1:
            raise ImageError(_ANIMATION)
        if known is not None:
            image = Image.fromarray(known)
        else:
            image.load()
            if image_format == "PNG":
                check_rows(data, np.asarray(image))
        if stretched and image.mode in _KNOWN:
            # With an opacity its values count too, as in the loader's array.
            values = np.asarray(image if image.mode in {*_DEEP, *_WHOLE} else image.convert("RGB"))
            levels = stretch_stored(values)
            return levels if levels.ndim == 2 else np.asarray(Image.fromarray(levels).convert("L"))
        if image.mode in _DEEP:
            return stretch(np.asarray(image))
        if image.mode == "L":
            return np.asarray(image)
        if image.mode in _DIRECT:
            return np.asarray(image.convert("L"))
        if image.mode in _BY_RGB:
            return np.asarray(image.convert("RGB").convert("L"))
        raise ImageError(f"its pixels are of the kind '{image.mode}', which is not grey or colour")


def check_rows(data: bytes, values: NDArray[np.generic]) -> None:
    """Raises ImageError for a PNG whose pixels end before its last row; values: [H, W, ...], as Pillow decoded them.

    Pillow leaves missing rows 0 and says nothing, so only a file whose last row is 0 is looked at. An interlaced file
    is not checked.
    """
    width, height, depth, colour_type, _, _, interlaced = struct.unpack_from(">IIBBBBB", data, 16)
    if values[-1].any() or interlaced:
        return
    row = 1 + -(-width * depth * {2: 3, 4: 2, 6: 4}.get(colour_type, 1) // 8)
    pixels, position = zlib.decompressobj(), 8
    size, most = 0, height * row
    while position + 8 <= len(data) and size < most:
        length, name = struct.unpack_from(">I4s", data, position)
        part = data[position + 8 : position + 8 + length] if name == b"IDAT" else b""
        while part and size < most and not pixels.eof:
            size += len(pixels.decompress(part, most - size))
            part = pixels.unconsumed_tail
        position += 12 + length
    if size < most:
        raise ImageError(f"its pixels end in row {size // row} of {height}, it is truncated")


def check_pixels(size: tuple[int, int]) -> None:
    """Raises ImageError when an image of (height, width) is empty or too large to be a radiograph."""
    height, width = size
    if height < 1 or width < 1:
        raise ImageError("its header says it has no pixels")
    if height * width > MAX_PIXELS or max(height, width) > MAX_SIDE:
        limit = f"{MAX_PIXELS} pixels and {MAX_SIDE} a side"
        raise ImageError(f"its header says {width} x {height} pixels, the limit is {limit}")


def png_size(data: bytes) -> tuple[int, int]:
    """(height, width) of a PNG; as `png_chunks`."""
    return png_chunks(data)[0]


def png_chunks(data: bytes) -> tuple[tuple[int, int], list[tuple[bytes, int, int]]]:
    """(height, width) of a PNG whose chunks are all complete, and of each chunk its type, where its content begins, and
    where it ends. Raises ImageError if one is truncated or damaged.

    Pillow does not check the checksum of pixel chunks; a flipped bit there would give wrong pixels without an error.
    """
    view, position, chunk_type, chunks = memoryview(data), 8, b"", list[tuple[bytes, int, int]]()
    while chunk_type != b"IEND":
        if position + 12 > len(data):
            raise ImageError("it is truncated")
        length, chunk_type = struct.unpack_from(">I4s", data, position)
        end = position + 8 + length
        if position == 8 and (chunk_type != b"IHDR" or length != 13):
            raise ImageError("its PNG header is damaged")
        if end + 4 > len(data):
            raise ImageError("it is truncated")
        if zlib.crc32(view[position + 4 : end]) != struct.unpack_from(">I", data, end)[0]:
            raise ImageError(
                f"the checksum of its PNG chunk {chunk_type!r} at byte {position} does not fit, it is damaged"
            )
        position = end + 4
        chunks.append((chunk_type, end - length, end))
    width, height = struct.unpack_from(">II", data, 16)
    return (height, width), chunks


class JpegFrame(NamedTuple):
    """The frame header of a JPEG stream: its marker (0xC0 to 0xCF, or 0xF7 for JPEG-LS), bits and number of channels;
    `adobe`: an Adobe marker before it gives the meaning of the channels."""

    marker: int
    bits: int
    height: int
    width: int
    channels: int
    adobe: bool


def jpeg_frame(data: bytes) -> JpegFrame:
    """The frame header of a JPEG stream, lossless JPEG and JPEG-LS included. Raises ImageError."""
    adobe = False
    for marker, position in jpeg_segments(data):
        if marker in JPEG_FRAMES:
            if position + 10 > len(data):
                raise ImageError("it is truncated")
            bits, height, width, channels = struct.unpack_from(">BHHB", data, position + 4)
            return JpegFrame(marker, bits, height, width, channels, adobe)
        adobe |= marker == 0xEE and data[position + 4 : position + 9] == b"Adobe"
    raise ImageError("its JPEG stream has no frame header")


def jpeg_size(data: bytes) -> tuple[int, int]:
    """(height, width) from the frame header of a JPEG stream, as `jpeg_frame`. Raises ImageError."""
    frame = jpeg_frame(data)
    return frame.height, frame.width


def jpeg_segments(data: bytes) -> Iterator[tuple[int, int]]:
    """(marker, position) of each segment of a JPEG stream, up to the header of its first scan. Raises ImageError."""
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
        yield marker, position
        if marker in (0xD9, 0xDA):
            return
        position += 2 + struct.unpack_from(">H", data, position + 2)[0]
    raise ImageError("it is truncated")
