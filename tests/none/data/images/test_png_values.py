"""The stored values of ordinary PNG files, against the filters as the standard has them, and against the libraries."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from xbench_fast.engines.errors import ImageError
from xbench_fast.runtime.data.images import png_values
from xbench_fast.runtime.data.images.decode import decode_grey
from xbench_fast.runtime.data.images.png_jpeg import png_chunks

pytest.importorskip("imagecodecs")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

RNG = np.random.default_rng(3)
KINDS = {(8, 0): 1, (8, 2): 3, (8, 4): 2, (8, 6): 4, (16, 0): 1, (16, 2): 3, (16, 4): 2, (16, 6): 4}
Chunks = Iterable[tuple[bytes, bytes]]


def nearest(left: int, up: int, corner: int) -> int:
    """Paeth's predictor, as section 9.4 writes it."""
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))  # of equals the first


def filtered(rows: list[bytes], pixel: int, kinds: list[int]) -> bytes:
    """Each row behind the type of its filter (section 9.2), value by value."""
    out, above = bytearray(), bytes(len(rows[0]))
    for kind, row in zip(kinds, rows, strict=True):
        out.append(kind)
        for x, value in enumerate(row):
            left, corner = (row[x - pixel], above[x - pixel]) if x >= pixel else (0, 0)
            guess = (0, left, above[x], (left + above[x]) // 2, nearest(left, above[x], corner))[kind]
            out.append((value - guess) % 256)
        above = row
    return bytes(out)


def whole(chunks: Chunks) -> bytes:
    parts = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def header(width: int, height: int, depth: int = 8, colour: int = 0, interlace: int = 0) -> tuple[bytes, bytes]:
    return b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)


def values_of(data: bytes) -> NDArray[Any] | None:
    return png_values.stored_values(data, *png_chunks(data))


@pytest.mark.parametrize("levels", [256, 4])  # of few levels the three distances of Paeth's predictor are often equal
@pytest.mark.parametrize(("depth", "colour"), KINDS)
def test_every_filter_is_undone(depth: int, colour: int, levels: int) -> None:
    channels = KINDS[depth, colour]
    samples = RNG.integers(0, levels, (26, 9, channels)).astype(f">u{depth // 8}") * (1 if depth == 8 else 85)
    samples = samples.astype(f">u{depth // 8}")
    kinds = [*range(5), *range(5), *RNG.integers(0, 5, 16).tolist()]
    for first in range(5):  # each filter in the first row too, which has none above
        kinds[0] = first
        rows = filtered([row.tobytes() for row in samples], channels * depth // 8, kinds)
        data = whole([header(9, 26, depth, colour), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")])
        found = values_of(data)
        assert found is not None and found.dtype == (np.uint8 if depth == 8 else np.uint16)
        np.testing.assert_array_equal(found, samples[..., 0] if channels == 1 else samples)


GREY = RNG.integers(0, 256, (40, 50)).astype(np.uint8)
ROWS = filtered([row.tobytes() for row in GREY], 1, [y % 5 for y in range(40)])
STREAM = zlib.compress(ROWS)
END = (b"IEND", b"")
FAR = zlib.compress(b"\0" + RNG.bytes(1500) * 2)  # its second half repeats what is 1500 bytes before


def small_window(stream: bytes, doublings: int) -> bytes:
    """The same stream, which now names a window of 256 bytes, doubled so many times."""
    first = (doublings << 12) + 0x0800
    return struct.pack(">H", first + 31 - first % 31) + stream[2:]


def plain(*chunks: tuple[bytes, bytes]) -> bytes:
    return whole([header(50, 40), *chunks])


def pixels(stream: bytes) -> tuple[bytes, bytes]:
    return b"IDAT", stream


COLOUR, ONE = header(1, 1, 8, 6), pixels(zlib.compress(bytes(5)))
ORDINARY = {
    "several chunks, some empty": plain(pixels(STREAM[:9]), pixels(b""), pixels(STREAM[9:]), pixels(b""), END),
    "bytes behind the stream": plain(pixels(STREAM + b"more"), END),
    "bytes behind the file": plain(pixels(STREAM), END) + bytes(9),
    "other chunks": plain((b"gAMA", b""), (b"prVt", b"x"), pixels(STREAM), (b"tEXt", b"a\0b"), (b"IHDR", b""), END),
    "not compressed": plain(pixels(zlib.compress(ROWS, 0)), END),
    "a window that is as large as the rows": plain(pixels(small_window(STREAM, 3)), END),
}
OTHERS = {
    "nine million bytes beside the pixels": plain((b"prVt", bytes(9_000_000)), pixels(STREAM), END),
    "part of an animation": plain((b"fdAT", b""), pixels(STREAM), END),
    "a name with a small third letter": plain((b"abcd", b""), pixels(STREAM), END),
    "interlaced": whole([header(50, 40, interlace=1), pixels(STREAM), END]),
    "four bits": whole([header(100, 40, 4), pixels(STREAM), END]),
    "a palette": whole([header(50, 40, colour=3), (b"PLTE", bytes(768)), pixels(STREAM), END]),
    "transparency": plain((b"tRNS", b"\0\7"), pixels(STREAM), END),
    "transparency behind": plain(pixels(STREAM), (b"tRNS", b"\0\7"), END),
    "an animation": plain((b"acTL", struct.pack(">II", 2, 0)), pixels(STREAM), END),
    "a second header": plain(header(25, 40), pixels(STREAM), END),
    "an unknown critical chunk": plain((b"CRIT", b""), pixels(STREAM), END),
    "pixels in two places": plain(pixels(STREAM[:99]), (b"tEXt", b"a\0b"), pixels(STREAM[99:]), END),
    "no pixels": plain(END),
    "an empty stream": plain(pixels(b""), END),
    "a value too few": plain(pixels(zlib.compress(ROWS[:-1])), END),
    "a row too many": plain(pixels(zlib.compress(ROWS + ROWS[:51])), END),
    "a thousand times as long": plain(pixels(zlib.compress(bytes(1000 * len(ROWS)))), END),
    "cut": plain(pixels(STREAM[:-5]), END),
    "a wrong checksum of the stream": plain(pixels(STREAM[:-1] + bytes([STREAM[-1] ^ 1])), END),
    "a filter that does not exist": plain(pixels(zlib.compress(b"\5" + ROWS[1:])), END),
    "a distance beyond the window": whole([header(3000, 1), pixels(small_window(FAR, 2)), END]),
    "much text, in colour": whole([COLOUR, (b"tEXt", b"a\0" + bytes(1 << 15)), ONE, END]),
    "an unknown chunk, in colour": whole([COLOUR, (b"prVt", b""), ONE, END]),
    "a header of a profile behind the pixels, in colour": whole([COLOUR, ONE, (b"iCCP", b""), END]),
}


def test_the_pixel_in_colour_is_ordinary() -> None:
    np.testing.assert_array_equal(values_of(whole([COLOUR, (b"pHYs", b""), ONE, (b"tEXt", b""), END])), [[[0] * 4]])


@pytest.mark.parametrize("data", ORDINARY.values(), ids=ORDINARY)
def test_ordinary_files(data: bytes) -> None:
    np.testing.assert_array_equal(values_of(data), GREY)


@pytest.mark.parametrize("data", OTHERS.values(), ids=OTHERS)
def test_other_files_are_left_to_the_libraries(data: bytes) -> None:
    assert values_of(data) is None


def test_it_decodes_where_numba_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, real = list[int](), png_values.stored_values

    def stored(data: bytes, *where: Any) -> NDArray[Any] | None:
        asked.append(len(data))
        return real(data, *where)

    monkeypatch.setattr(png_values, "stored_values", stored)
    data = plain(pixels(STREAM), END)
    for _ in range(2):
        np.testing.assert_array_equal(decode_grey(data, "a.png"), GREY)
        assert len(asked) == 1  # the second time without
        monkeypatch.delitem(sys.modules, "numba", raising=False)


def outcome(data: bytes, stretched: bool) -> object:
    try:
        found = decode_grey(data, "a.png", stretched=stretched)
        return found.shape, found.tobytes()
    except ImageError as error:
        return type(error), str(error).partition(" object at ")[0]


@settings(max_examples=300)
@given(st.data())
def test_the_libraries_have_the_same_pixels_and_errors(data: st.DataObject) -> None:
    """Without the quick decoder Pillow and libpng decode alone: of every kind, with chunks and bytes changed."""
    depth, colour = data.draw(st.sampled_from(sorted(KINDS)))
    pixel = KINDS[depth, colour] * depth // 8
    width, height = data.draw(st.tuples(st.integers(1, 6), st.integers(1, 4)))
    rows = bytearray(data.draw(st.binary(min_size=40, max_size=40)) * 6)[: height * (1 + width * pixel)]
    rows[:: 1 + width * pixel] = bytes(value % 5 for value in rows[:: 1 + width * pixel])
    names = (b"gAMA", b"cHRM", b"pHYs", b"iCCP", b"tEXt", b"zTXt", b"tIME", b"tRNS", b"acTL", b"fdAT", b"PLTE", b"abcd")
    other = st.lists(st.tuples(st.sampled_from(names), st.binary(max_size=9)), max_size=1)
    stream = zlib.compressobj(9, wbits=data.draw(st.sampled_from((9, 15))))
    packed = bytearray(stream.compress(rows) + stream.flush())
    if data.draw(st.integers(0, 3)) == 0:
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = data.draw(st.integers(0, len(packed)))
    chunks = [header(width, height, depth, colour), *data.draw(other), pixels(bytes(packed[:cut]))]
    file = whole([*chunks, pixels(bytes(packed[cut:])), *data.draw(other), END])
    stretched = data.draw(st.booleans())
    with patch.object(png_values, "stored_values", return_value=None):
        expected = outcome(file, stretched)
    assert outcome(file, stretched) == expected


@pytest.mark.parametrize("depth", [8, 16])
def test_a_file_that_libpng_refuses_costs_no_reference_to_none(depth: int) -> None:
    """imagecodecs loses one, so that a process before Python 3.12 would end after many such files."""
    data = whole([header(9, 9, depth, 0 if depth == 8 else 2), (b"IDAT", b"not deflated"), (b"IEND", b"")])
    before = sys.getrefcount(None)
    for _ in range(200):
        with pytest.raises(ImageError):
            decode_grey(data, "x.png")
    assert sys.getrefcount(None) > before - 100


def test_a_sentence_is_the_same_each_time() -> None:
    """Pillow names the address of an object for a colour type that does not exist."""
    data = whole([header(9, 9, 8, 5), (b"IDAT", zlib.compress(bytes(90))), (b"IEND", b"")])
    with pytest.raises(ImageError, match=r"kind \(cannot identify image file\)\.") as raised:
        decode_grey(data, "x.png")
    assert "0x" not in str(raised.value)
