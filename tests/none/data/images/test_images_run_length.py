"""Run-length coded frames, against pydicom's decoder and the plane each was written from."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xbench_fast.engines.errors import ImageError
from xbench_fast.runtime.data.images.dicom.run_lengths import decode_run_lengths

pydicom_rle = pytest.importorskip("pydicom.pixels.decoders.rle")


def literal(content: bytes) -> tuple[bytes, bytes]:
    return bytes([len(content) - 1]) + content, content


def repeated(value: int, count: int) -> tuple[bytes, bytes]:
    return bytes([257 - count, value]), bytes([value]) * count


# What an encoder may write: (code, the bytes it stands for).
CODES = st.one_of(
    st.builds(literal, st.binary(min_size=1, max_size=128)),
    st.builds(repeated, st.integers(0, 255), st.integers(2, 128)),
)


@st.composite
def segments(draw: st.DrawFn, size: int) -> tuple[bytes, bytes]:
    """A segment and the `size` bytes of its plane; with padding or rubbish behind them."""
    coded, plain = b"", b""
    while len(plain) < size:
        code, content = draw(CODES)
        coded, plain = coded + code, plain + content
    return coded + draw(st.binary(max_size=5)), plain[:size]


def frame_of(parts: list[bytes]) -> bytes:
    starts = [64 + sum(map(len, parts[:number])) for number in range(len(parts))]
    return struct.pack("<16I", len(parts), *starts, *[0] * (15 - len(parts))) + b"".join(parts)


@given(st.data(), st.integers(1, 20), st.integers(1, 20), st.sampled_from([1, 2]))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_words_equal_those_of_pydicom(data: st.DataObject, rows: int, columns: int, planes: int) -> None:
    drawn = [data.draw(segments(rows * columns)) for _ in range(planes)]
    frame = frame_of([coded for coded, _ in drawn])
    found = decode_run_lengths(frame, rows, columns, 8 * planes)
    assert found.shape == (rows, columns) and found.dtype == np.dtype(f"u{planes}")
    for plane, (_, plain) in enumerate(drawn):
        shift = 8 * (planes - 1 - plane)
        assert ((found >> shift) & 255).astype(np.uint8).tobytes() == plain
    theirs = pydicom_rle._rle_decode_frame(frame, rows, columns, 1, 8 * planes)
    assert found.astype(f"<u{planes}").tobytes() == bytes(theirs)


def test_the_longest_code_of_a_plane_is_read_whole() -> None:
    """Every byte as a literal run of its own takes two."""
    plain = bytes(range(200))
    frame = frame_of([b"".join(b"\0" + plain[at : at + 1] for at in range(200))])
    assert decode_run_lengths(frame, 10, 20, 8).tobytes() == plain


@given(st.binary(max_size=300), st.sampled_from([8, 16]))
def test_any_bytes_give_words_or_an_error(data: bytes, allocated: int) -> None:
    for frame in (data, frame_of([data[: len(data) // 2], data[len(data) // 2 :]][: allocated // 8])):
        try:
            assert decode_run_lengths(frame, 3, 5, allocated).shape == (3, 5)
        except ImageError as error:
            assert "run-length coded frame" in str(error)
