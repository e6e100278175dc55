"""How many bytes and frames the pixels of a file have must be what its header says, in films and in masks."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from dicom_streams import BIG_ENDIAN, ENCODERS, EXPLICIT, IMPLICIT, JPEG, RUN_LENGTHS, blocks, film, items, written
from numpy.typing import NDArray
from xbench_fast.engines.errors import ImageError
from xbench_fast.runtime.data.images.decode import decode_grey
from xbench_fast.runtime.data.images.dicom.dicom_grey import read_stored
from xbench_fast.runtime.data.images.dicom.open_dicom import open_data_set
from xbench_fast.runtime.data.images.dicom.pixel_frames import mask_frames

NATIVE = (IMPLICIT, EXPLICIT, BIG_ENDIAN)
RNG = np.random.default_rng(8)
WORDS = RNG.integers(0, 4096, (6, 7)).astype(np.uint16)
ODD = RNG.integers(0, 256, (3, 5)).astype(np.uint8)
CASES = "tests/cases"


def raw(values: NDArray[Any], syntax: str) -> bytes:
    return values.astype(values.dtype.newbyteorder(">" if syntax == BIG_ENDIAN else "<")).tobytes()


@pytest.mark.parametrize("syntax", NATIVE)
def test_the_length_of_uncompressed_pixels(syntax: str) -> None:
    pixels = raw(WORDS, syntax)
    np.testing.assert_array_equal(read_stored(written(film(WORDS.shape, pixels), syntax)), WORDS)
    for wrong, cause in ((pixels[:-2], "truncated"), (pixels + b"\0\0", "too long"), (pixels * 2, "too long")):
        with pytest.raises(ImageError, match=f"its PixelData has {len(wrong)} bytes instead of 84, it is {cause}"):
            read_stored(written(film(WORDS.shape, wrong), syntax))
    whole = written(film(WORDS.shape, pixels), syntax)
    with pytest.raises(ImageError, match="truncated"):  # the element says more than the file has
        read_stored(whole[:-10])


def test_an_odd_number_of_bytes_may_have_one_more() -> None:
    for pixels in (ODD.tobytes(), ODD.tobytes() + b"\0"):
        for syntax in (IMPLICIT, EXPLICIT):
            entries = film(ODD.shape, pixels, 8, 8, x7FE00010=("OB", pixels))
            np.testing.assert_array_equal(read_stored(written(entries, syntax)), ODD)
    with pytest.raises(ImageError, match="has 17 bytes instead of 15, it is too long"):
        read_stored(written(film(ODD.shape, b"", 8, 8, x7FE00010=("OB", ODD.tobytes() + b"\0\0"))))


@pytest.mark.parametrize("vr", ["OB", "OB*", "OW", "OW*"])
@pytest.mark.parametrize("syntax", NATIVE)
def test_items_in_an_uncompressed_syntax_are_refused(syntax: str, vr: str) -> None:
    order = ">" if syntax == BIG_ENDIAN else "<"
    whole = items(raw(WORDS, syntax), order=order)
    # The last one has the length that the header states.
    for value in (
        whole,
        items(b"", b"", raw(WORDS, syntax), order=order),
        items(raw(WORDS, syntax)[:-16], order=order),
    ):
        with pytest.raises(ImageError, match="its pixels are in items, although its transfer syntax is uncompressed"):
            read_stored(written(film(WORDS.shape, b"", x7FE00010=(vr, value)), syntax))


@pytest.mark.parametrize("syntax", NATIVE)
def test_pixels_of_undefined_length_without_items_are_refused(syntax: str) -> None:
    with pytest.raises(ImageError, match="its pixels are in items, although its transfer syntax is uncompressed"):
        read_stored(written(film(WORDS.shape, b"", x7FE00010=("OW*", raw(WORDS, syntax))), syntax))


def test_pixels_that_look_like_an_item_are_pixels() -> None:
    words = WORDS.copy()
    words[0, :4] = 0xFFFE, 0xE000, 4, 0
    pixels = film(words.shape, words.tobytes(), 16, 16)
    np.testing.assert_array_equal(read_stored(written(pixels)), words)


def test_compressed_pixels_without_items_are_refused() -> None:
    for value in (WORDS.tobytes(), ENCODERS[f"{JPEG}.70"].encode(12), b""):
        with pytest.raises(ImageError, match="not in items, although its transfer syntax is compressed"):
            read_stored(written(film((24, 32), b"", x7FE00010=("OB", value)), f"{JPEG}.70"))


@pytest.mark.parametrize("syntax", [f"{JPEG}.50", f"{JPEG}.70", f"{JPEG}.80", f"{JPEG}.90"])
def test_a_frame_in_several_fragments(syntax: str) -> None:
    frame = ENCODERS[syntax].encode(8)
    cuts = (frame[:20], frame[20:22], b"", frame[22:])
    for table in (b"", struct.pack("<I", 0)):
        value = items(*cuts, table=table)
        found = read_stored(written(film((24, 32), b"", 8, 8, x7FE00010=("OB*", value)), syntax))
        np.testing.assert_array_equal(found, blocks(8))


@pytest.mark.parametrize("syntax", [f"{JPEG}.50", f"{JPEG}.70", f"{JPEG}.80", f"{JPEG}.90", RUN_LENGTHS])
def test_more_frames_than_the_header_says_are_refused(syntax: str) -> None:
    frame = ENCODERS[syntax].encode(8)
    cases = [
        (items(frame, frame), "its pixels are 2 compressed frames, its header says 1"),
        (items(frame, frame, table=struct.pack("<2I", 0, 8 + len(frame))), "its offset table is of 2 frames"),
        (items(frame, table=struct.pack("<I", 8)), "its offset table is of 1 frames"),
        (items(), "its pixels are 0 compressed frames"),
    ]
    for value, cause in cases:
        with pytest.raises(ImageError, match=cause):
            read_stored(written(film((24, 32), b"", 8, 8, x7FE00010=("OB*", value)), syntax))
    several = film((24, 32), b"", 8, 8, x00280008=("IS", "2"), x7FE00010=("OB*", items(frame, frame)))
    with pytest.raises(ImageError, match="it has 2 frames, a radiograph has one"):
        read_stored(written(several, syntax))


def test_a_file_that_ends_within_compressed_pixels_is_truncated() -> None:
    data = written(film((24, 32), b"", 8, 8, x7FE00010=("OB*", items(ENCODERS[f"{JPEG}.50"].encode(8)))), f"{JPEG}.50")
    for end in (len(data) - 8, len(data) - 40):
        with pytest.raises(ImageError, match="its data set is truncated or empty"):
            decode_grey(data[:end], "a.dcm")


# --- masks ---

SHAPE = (5, 7)


def frames_of(entries: Any, syntax: str, count: int) -> NDArray[Any]:
    return np.asarray(mask_frames(open_data_set(io.BytesIO(written(entries, syntax))), count))


@pytest.mark.parametrize("syntax", NATIVE)
@pytest.mark.parametrize("vr", ["OB", "OW"])
def test_frames_of_bits_follow_each_other_without_padding(syntax: str, vr: str) -> None:
    masks = RNG.random((3, *SHAPE)) < 0.4
    text = "".join("01"[bit] for bit in masks.ravel().tolist())
    packed = bytes(int(text[at : at + 8][::-1], 2) for at in range(0, len(text), 8))
    packed += bytes(len(packed) % 2)
    if vr == "OW" and syntax == BIG_ENDIAN:
        packed = bytes(packed[at ^ 1] for at in range(len(packed)))
    entries = film(SHAPE, b"", 1, 1, x7FE00010=(vr, packed))
    np.testing.assert_array_equal(frames_of(entries, syntax, 3), masks)
    for value, cause in ((packed[:-2], "truncated"), (packed + b"\0\0", "too long")):
        with pytest.raises(ImageError, match=f"instead of 14, it is {cause}"):
            frames_of(film(SHAPE, b"", 1, 1, x7FE00010=(vr, value)), syntax, 3)
    order = ">" if syntax == BIG_ENDIAN else "<"
    for kind in (vr, f"{vr}*"):
        with pytest.raises(ImageError, match="its pixels are in items"):
            frames_of(film(SHAPE, b"", 1, 1, x7FE00010=(kind, items(packed, order=order))), syntax, 3)


@pytest.mark.parametrize("syntax", NATIVE)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
def test_frames_of_numbers(syntax: str, dtype: Any) -> None:
    values = RNG.integers(0, 200, (3, *SHAPE)).astype(dtype)
    size = values.dtype.itemsize
    tag = {4: "x7FE00008", 8: "x7FE00009"}.get(size, "x7FE00010")
    vr = {4: "OF", 8: "OW", 1: "OB", 2: "OW"}[size]
    kept = {} if tag == "x7FE00010" else {"x7FE00010": None}
    allocated = 8 * size
    pixels = raw(values, syntax)
    padded = pixels + bytes(len(pixels) % 2)
    entries = film(SHAPE, b"", allocated, min(allocated, 16), **kept, **{tag: (vr, padded)})
    np.testing.assert_array_equal(frames_of(entries, syntax, 3), values)
    with pytest.raises(ImageError, match="it is too long"):
        frames_of(film(SHAPE, b"", allocated, min(allocated, 16), **kept, **{tag: (vr, padded + b"\0\0")}), syntax, 3)
    with pytest.raises(ImageError, match="it is truncated"):
        frames_of(film(SHAPE, b"", allocated, min(allocated, 16), **kept, **{tag: (vr, pixels[:-size])}), syntax, 3)


@pytest.mark.parametrize("syntax", [RUN_LENGTHS, f"{JPEG}.80", f"{JPEG}.90"])
def test_compressed_frames_of_numbers(syntax: str) -> None:
    frame = ENCODERS[syntax].encode(8)
    frame += bytes(len(frame) % 2)
    offsets = struct.pack("<2I", 0, 8 + len(frame))
    for table in (b"", offsets):
        entries = film((24, 32), b"", 8, 8, x7FE00010=("OB*", items(frame, frame, table=table)))
        np.testing.assert_array_equal(frames_of(entries, syntax, 2), np.stack([blocks(8)] * 2))
    for count in (1, 3):
        with pytest.raises(ImageError, match=f"its header says {count}"):
            frames_of(film((24, 32), b"", 8, 8, x7FE00010=("OB*", items(frame, frame))), syntax, count)


def test_compressed_bits_and_unknown_syntaxes_are_refused() -> None:
    with pytest.raises(ImageError, match="compressed in a way that DICOM does not allow for their kind"):
        frames_of(film(SHAPE, b"", 1, 1, x7FE00010=("OB*", items(b"\0\0"))), RUN_LENGTHS, 1)
    with pytest.raises(ImageError, match=r"its transfer syntax 1\.2\.840\.10008\.1\.2\.8\.1 is not read"):
        frames_of(film(SHAPE, b"", 1, 1, x7FE00010=("OB*", items(b"\0\0"))), "1.2.840.10008.1.2.8.1", 1)
    with pytest.raises(ImageError, match="it has no PixelData"):
        frames_of(film(SHAPE, b"", 1, 1, x7FE00010=None), EXPLICIT, 1)
