"""DICOM files and compressed frames written from their specifications, to be read in tests.

`written` writes a file element by element, with any VR, byte order and length. `ENCODERS` has an encoder for each
transfer syntax that is read.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

IMPLICIT, EXPLICIT, BIG_ENDIAN = "1.2.840.10008.1.2", "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.2"
RUN_LENGTHS, JPEG = "1.2.840.10008.1.2.5", "1.2.840.10008.1.2.4"

Words = NDArray[np.unsignedinteger]
Value = Any  # bytes, text, whole numbers, or the items of a sequence
Entry = tuple[int, str, Value]
_LONG = ("OB", "OW", "OF", "UN", "SQ", "UT")
_NUMBERS = {"US": "H", "SS": "h", "UL": "I", "SL": "i", "FD": "d", "FL": "f"}


def film(shape: tuple[int, int], pixels: bytes, allocated: int = 16, bits: int = 12, **changes: Value) -> list[Entry]:
    """The elements of a film. `changes`: by tag, as x00280101=("US", [12]); None leaves an element out."""
    entries: dict[int, tuple[str, Value]] = {
        0x00080016: ("UI", "1.2.840.10008.5.1.4.1.1.1"),
        0x00080018: ("UI", "1.2.3.4"),
        0x00280002: ("US", [1]),
        0x00280004: ("CS", "MONOCHROME2"),
        0x00280010: ("US", [shape[0]]),
        0x00280011: ("US", [shape[1]]),
        0x00280100: ("US", [allocated]),
        0x00280101: ("US", [bits]),
        0x00280102: ("US", [bits - 1]),
        0x00280103: ("US", [0]),
        0x7FE00010: ("OW", pixels),
    }
    for name, entry in changes.items():
        entries.pop(int(name[1:], 16), None)
        if entry is not None:
            entries[int(name[1:], 16)] = entry
    return [(tag, *entries[tag]) for tag in sorted(entries)]


def written(
    entries: Sequence[Entry], syntax: str = EXPLICIT, *, meta: bytes | None = None, start: bytes = bytes(128) + b"DICM"
) -> bytes:
    """A file of these elements. meta: its file meta information instead of one that states `syntax`."""
    if meta is None:
        meta = _element((0x00020010, "UI", syntax), "<", False)
        meta = _element((0x00020000, "UL", [len(meta)]), "<", False) + meta
    order, implicit = ">" if syntax == BIG_ENDIAN else "<", syntax == IMPLICIT
    return start + meta + b"".join(_element(entry, order, implicit) for entry in entries)


def _element(entry: Entry, order: str, implicit: bool) -> bytes:
    tag, vr, value = entry
    undefined = vr.endswith("*")  # a length that is not stated
    vr = vr[:2]
    if vr == "SQ":
        items = [b"".join(_element(one, order, implicit) for one in item) for item in value]
        content = b"".join(struct.pack(f"{order}HHI", 0xFFFE, 0xE000, len(item)) + item for item in items)
    elif isinstance(value, bytes):
        content = value
    elif isinstance(value, str):
        content = value.encode()
        content += (b"\0" if vr == "UI" else b" ") * (len(content) % 2)
    else:
        content = struct.pack(f"{order}{len(value)}{_NUMBERS[vr]}", *value)
    length = 0xFFFFFFFF if undefined else len(content)
    content += struct.pack(f"{order}HHI", 0xFFFE, 0xE0DD, 0) if undefined else b""
    head = struct.pack(f"{order}HH", tag >> 16, tag & 0xFFFF)
    if implicit:
        return head + struct.pack(f"{order}I", length) + content
    if vr in _LONG:
        return head + vr.encode() + struct.pack(f"{order}HI", 0, length) + content
    return head + vr.encode() + struct.pack(f"{order}H", length) + content


def items(*fragments: bytes, table: bytes = b"", order: str = "<") -> bytes:
    """An offset table and fragments, each made even, without what ends them."""
    parts = [table, *(one + bytes(len(one) % 2) for one in fragments)]
    return b"".join(struct.pack(f"{order}HHI", 0xFFFE, 0xE000, len(part)) + part for part in parts)


def lossless_jpeg(
    stored: Words, bits: int, predictor: int = 1, *, modulus: int = 16, restart: int = 0, shift: int = 0
) -> bytes:
    """A JPEG stream of process 14 (ITU-T T.81 annex H): every sample as its difference to the prediction.

    modulus: differences are taken modulo 2^modulus. restart: rows of a restart interval. shift: the point transform.
    One Huffman table, in which all 17 categories have codes of five bits.
    """
    height, width = stored.shape
    values = (stored.astype(int) >> shift).tolist()
    scan, text = b"", []

    def flushed() -> bytes:
        line = "".join(text)
        text.clear()
        line += "1" * (-len(line) % 8)
        return int(line or "0", 2).to_bytes(len(line) // 8, "big").replace(b"\xff", b"\xff\x00")

    for y, row in enumerate(values):
        first = y % restart == 0 if restart else y == 0
        if first and y:
            scan += flushed() + bytes([0xFF, 0xD0 + (y // restart - 1) % 8])
        for x, value in enumerate(row):
            if first:
                predicted = row[x - 1] if x else 1 << (bits - shift - 1)
            elif x == 0:
                predicted = values[y - 1][0]
            else:
                a, b, c = row[x - 1], values[y - 1][x], values[y - 1][x - 1]
                predicted = (a, b, c, a + b - c, a + (b - c >> 1), b + (a - c >> 1), a + b >> 1)[predictor - 1]
            half = 1 << (modulus - 1)
            difference = (value - predicted + half) % (2 * half) - half
            category = abs(difference).bit_length()
            text.append(f"{category:05b}")
            if 0 < category < 16:  # category 16 is -32768 = 32768 alone
                low = difference if difference > 0 else difference + (1 << category) - 1
                text.append(f"{low:0{category}b}")
    scan += flushed()

    def segment(marker: int, content: bytes) -> bytes:
        return bytes([0xFF, marker]) + (len(content) + 2).to_bytes(2, "big") + content

    table = bytes([0, *(17 if length == 5 else 0 for length in range(1, 17)), *range(17)])
    frame = bytes([bits]) + height.to_bytes(2, "big") + width.to_bytes(2, "big") + bytes([1, 1, 0x11, 0])
    parts = segment(0xC3, frame) + segment(0xC4, table)
    parts += segment(0xDD, (restart * width).to_bytes(2, "big")) if restart else b""
    return b"\xff\xd8" + parts + segment(0xDA, bytes([1, 1, 0, predictor, 0, shift])) + scan + b"\xff\xd9"


def literal_runs(words: Words) -> bytes:
    """A run-length coded frame without a single run; the segments of the high bytes come first."""
    planes = words.astype(words.dtype.newbyteorder(">")).reshape(-1, 1).view(np.uint8).T
    segments = []
    for plane in planes:
        data = plane.tobytes()
        segments.append(
            b"".join(bytes([len(data[at : at + 128]) - 1]) + data[at : at + 128] for at in range(0, len(data), 128))
        )
    starts = [64 + sum(map(len, segments[:number])) for number in range(len(segments))]
    return struct.pack("<16I", len(segments), *starts, *[0] * (15 - len(segments))) + b"".join(segments)


def blocks(bits: int) -> Words:
    """[24, 32] words that use all of `bits` bits; constant 8 x 8 blocks, which baseline JPEG preserves."""
    values = (np.arange(12, dtype=np.uint64) * 40503 * 26544357 >> 7) % (1 << bits)
    values[[0, 5, 7]] = 0, (1 << bits) - 1, 1 << (bits - 1)
    return np.kron(values.reshape(3, 4), np.ones((8, 8), np.uint64)).astype(np.uint8 if bits <= 8 else np.uint16)


@dataclass(frozen=True)
class Encoder:
    """Frames of a transfer syntax: the precisions that its streams can have, and `blocks` of one as a frame. `whole`: a
    frame has the words of BitsAllocated, so that the precision is that."""

    precisions: tuple[int, ...]
    encode: Callable[[int], bytes]
    whole: bool = False


def _discrete_cosine(bits: int) -> bytes:
    from imagecodecs import jpeg8_encode

    return bytes(jpeg8_encode(blocks(bits), level=100, bitspersample=bits))


def _jpeg_ls(bits: int) -> bytes:
    from imagecodecs import jpegls_encode

    return base64.b64decode(_JPEG_LS[bits]) if bits in _JPEG_LS else bytes(jpegls_encode(blocks(bits)))


def _jpeg_2000(bits: int) -> bytes:
    from imagecodecs import jpeg2k_encode

    return bytes(jpeg2k_encode(blocks(bits), level=0, codecformat="j2k", reversible=True, bitspersample=bits))


def _high_throughput(bits: int) -> bytes:
    from imagecodecs import htj2k_encode

    return bytes(htj2k_encode(blocks(bits), reversible=True))


# `blocks` as coded by pyjpegls, because imagecodecs writes JPEG-LS of 8 and 16 bits only.
_JPEG_LS = {
    9: (
        "/9j/9wALCQAYACABAREA/9oACAEBAAAAAPwAAAC+okqgAAAC+pSlKUpAADdKUpSlOozLniuu6U8/C+fhfPwvn4Xz4RlKSlKUMhCE"
        "IQgAAAB9sSVQAAAAXRKqqqqDnnn4Xz8L5+F8/C+fhfPwvnwlX4AAAALvqqqqj/9waKqqqqieefhfPwvn4Xz8L5+F8/C+fP/Z"
    ),
    10: (
        "/9j/9wALCgAYACABAREA/9oACAEBAAAAAPwAAbhESSAAAAAn1KUpSlIAAbkpSlKU6hmLjxLlzpJ07hPTuE9O4Xz8L58AHjSkpSlA"
        "AAAAH8oQhCEIQfKVVVR89VVVVQNPPPwvn4Xz8L5+F8/C+fhfPgPnVVVVPVVRERPvERERPvERESQieefhfPwvn4Xz8L5+F8/C+fD/"
        "2Q=="
    ),
    12: (
        "/9j/9wALDAAYACABAREA/9oACAEBAAAAAPwAAAAAY+oEEEIQgAAAAADH1AoKCgoKCggAAfcEgkJCQkJCdQMwXB4hcLh0hOJxwh4n"
        "HCHiccI8nOEeTmH8YSEgoKCgoAAAAAAMfkBAQEBAQEBg+CgoUKFCgN4woUKFChQoDTk5OcI8nOEeTnCPTuE9O4T07hPTsP5woUKF"
        "ChQHFYUKBAgQIE84ECBAgQIAAAAAAPdECBAgggggVOnTuE9O4T07hPTuE9O4T07hPTv/2Q=="
    ),
}
ENCODERS: Mapping[str, Encoder] = {
    IMPLICIT: Encoder((8, 16), lambda bits: blocks(bits).tobytes(), whole=True),
    EXPLICIT: Encoder((8, 16), lambda bits: blocks(bits).tobytes(), whole=True),
    BIG_ENDIAN: Encoder((8, 16), lambda bits: blocks(bits).astype(f">u{bits // 8}").tobytes(), whole=True),
    RUN_LENGTHS: Encoder((8, 16), lambda bits: literal_runs(blocks(bits)), whole=True),
    f"{JPEG}.50": Encoder((8,), _discrete_cosine),
    f"{JPEG}.51": Encoder((8, 12), _discrete_cosine),
    f"{JPEG}.57": Encoder((2, 7, 8, 9, 10, 12, 16), lambda bits: lossless_jpeg(blocks(bits), bits, 6)),
    f"{JPEG}.70": Encoder((2, 7, 8, 9, 10, 12, 16), lambda bits: lossless_jpeg(blocks(bits), bits)),
    f"{JPEG}.80": Encoder((8, 9, 10, 12, 16), _jpeg_ls),
    f"{JPEG}.81": Encoder((8, 9, 10, 12, 16), _jpeg_ls),
    f"{JPEG}.90": Encoder((2, 7, 8, 9, 10, 12, 16), _jpeg_2000),
    f"{JPEG}.91": Encoder((2, 7, 8, 9, 10, 12, 16), _jpeg_2000),
    f"{JPEG}.201": Encoder((8, 16), _high_throughput),
    f"{JPEG}.202": Encoder((8, 16), _high_throughput),
    f"{JPEG}.203": Encoder((8, 16), _high_throughput),
}
"""Transfer syntax -> how its frames are written."""
