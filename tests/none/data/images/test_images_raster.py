"""PNG and JPEG to 8-bit grey (docs/datasets.md §0.2)."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_images import encode
from PIL import Image
from xbench_fast.engines.errors import ImageError
from xbench_fast.runtime.data.images.decode import decode_grey, read_grey, reader_version

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 256, (37, 53), dtype=np.uint8)
COLOUR = RNG.integers(0, 256, (37, 53, 3), dtype=np.uint8)


def png(
    width: int, height: int, rows: bytes, kind: bytes = b"\x08\0\0\0\0", extra: bytes = b"", chunk: bytes = b""
) -> bytes:
    """A PNG with the filtered rows `rows`; `kind`: bit depth, colour type, compression, filter, interlace; `extra`
    follows the pixels in their chunk, `chunk` is a whole one before it: kind and content."""
    chunks = [
        (b"IHDR", struct.pack(">II", width, height) + kind),
        *([(chunk[:4], chunk[4:])] if chunk else []),
        (b"IDAT", zlib.compress(rows) + extra),
        (b"IEND", b""),
    ]
    body = b"".join(struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


def luminance(rgb: np.ndarray) -> np.ndarray:
    """ITU-R 601-2 in exact arithmetic."""
    return (rgb.astype(np.float64) * [0.299, 0.587, 0.114]).sum(-1)


def test_grey_png_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "picture.jpg"  # the content decides, not the name
    path.write_bytes(encode(GREY, "PNG"))
    found = read_grey(path)
    assert found.dtype == np.uint8 and found.flags.c_contiguous
    np.testing.assert_array_equal(found, GREY)


def test_grey_jpeg_equals_pillow() -> None:
    smooth = np.add.outer(np.arange(40), np.arange(60)).astype(np.uint8)
    found = decode_grey(encode(smooth, "JPEG", quality=95), "a.jpg")
    assert found.shape == smooth.shape and np.abs(found.astype(int) - smooth).max() <= 4


@pytest.mark.parametrize("kind", ["RGB", "RGBA"])
def test_colour_becomes_luminance_and_alpha_is_dropped(kind: str) -> None:
    pixels = COLOUR if kind == "RGB" else np.dstack([COLOUR, RNG.integers(0, 256, COLOUR.shape[:2], dtype=np.uint8)])
    assert (
        np.abs(decode_grey(encode(pixels, "PNG"), "a.png") - luminance(COLOUR)).max() <= 0.505
    )  # Pillow works with 16-bit fractions


@pytest.mark.parametrize("kind", ["RGB", "RGBA", "LA"])
def test_grey_stored_as_colour_loses_nothing(kind: str) -> None:
    np.testing.assert_array_equal(decode_grey(encode(GREY, "PNG", kind), "a.png"), GREY)


def test_palette_uses_its_colours() -> None:
    from PIL import Image

    image = Image.fromarray(COLOUR).quantize(64)
    found = decode_grey(encode(np.asarray(image.convert("RGB")), "PNG", "P", palette=1), "a.png")
    assert found.shape == GREY.shape and found.std() > 10
    import io

    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    found = decode_grey(buffer.getvalue(), "a.png")
    assert (
        np.abs(found - luminance(np.asarray(image.convert("RGB")))).max() <= 0.505
    )  # Pillow works with 16-bit fractions


def test_cmyk_jpeg_is_light_where_no_ink_is() -> None:
    light = np.full((16, 16, 3), 250, np.uint8)
    assert decode_grey(encode(light, "JPEG", "CMYK"), "a.jpg").min() > 240


def test_one_bit_png_is_black_and_white() -> None:
    found = decode_grey(encode(GREY > 128, "PNG"), "a.png")
    np.testing.assert_array_equal(found, np.where(GREY > 128, 255, 0))


def test_sixteen_bits_are_stretched_to_the_full_range() -> None:
    deep = RNG.integers(1000, 50000, (20, 30), dtype=np.uint16)
    low, high = int(deep.min()), int(deep.max())
    expected = np.array([[round((int(v) - low) / (high - low) * 255) for v in row] for row in deep])
    np.testing.assert_array_equal(decode_grey(encode(deep, "PNG"), "a.png"), expected)


def test_constant_sixteen_bits_become_zeros() -> None:
    assert not decode_grey(encode(np.full((4, 4), 777, np.uint16), "PNG"), "a.png").any()


@pytest.mark.parametrize(("width", "height"), [(60000, 60000), (1, 40000), (0, 5), (2**31 - 1, 2**31 - 1)])
def test_a_picture_of_impossible_size_is_refused_before_it_is_decoded(width: int, height: int) -> None:
    with pytest.raises(ImageError, match=r"big\.png cannot be read: its header says"):
        decode_grey(png(width, height, bytes(1000)), "big.png")


def test_jpeg_of_impossible_size_is_refused() -> None:
    data = bytearray(encode(GREY, "JPEG"))
    start = data.index(b"\xff\xc0") + 5
    data[start : start + 4] = struct.pack(">HH", 60000, 60000)
    with pytest.raises(ImageError, match="60000 x 60000"):
        decode_grey(bytes(data), "big.jpg")


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_truncated_file_is_an_error_and_not_a_grey_rest(kind: str, keep: float) -> None:
    data = encode(GREY, kind)
    with pytest.raises(ImageError, match=r"half\.img cannot be read"):
        decode_grey(data[: int(len(data) * keep)], "half.img")


def test_a_flipped_bit_in_the_pixels_of_a_png_is_found() -> None:
    data = bytearray(encode(GREY, "PNG"))
    data[data.index(b"IDAT") + 40] ^= 1
    with pytest.raises(ImageError, match="checksum"):
        decode_grey(bytes(data), "a.png")


def test_missing_empty_and_foreign_files_say_so(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.png").write_text("hello")
    for name, cause in (("none.png", "No such file"), ("empty.png", "it is empty"), ("text.png", "neither PNG")):
        with pytest.raises(ImageError, match=rf"{name} cannot be read: .*{cause}"):
            read_grey(tmp_path / name)
    with pytest.raises(ImageError, match="cannot be read"):
        read_grey(tmp_path)


@pytest.mark.parametrize("rows", [bytes([0, 1, 2, 3, 4, 5, 1, 2, 3, 4]), bytes(9)], ids=["filter", "short"])
def test_rows_that_do_not_fit_the_header_are_refused(rows: bytes) -> None:
    with pytest.raises(ImageError, match="damaged"):
        decode_grey(png(4, 2, rows), "a.png")


def test_an_interlaced_png_is_read() -> None:
    # Adam7 of 2 x 2: pass 1 holds (0,0), pass 6 (0,1), pass 7 row 1.
    file = png(2, 2, bytes([0, 10, 0, 20, 0, 30, 40]), b"\x08\0\0\0\1")
    np.testing.assert_array_equal(decode_grey(file, "a.png"), [[10, 20], [30, 40]])


def test_an_animation_is_refused() -> None:
    import io

    from PIL import Image

    buffer = io.BytesIO()
    frames = [Image.fromarray(GREY), Image.fromarray(255 - GREY)]
    frames[0].save(buffer, "PNG", save_all=True, append_images=frames[1:])
    with pytest.raises(ImageError, match="animation"):
        decode_grey(buffer.getvalue(), "a.png")


def test_the_reader_version_names_the_libraries_that_decide_pixels() -> None:
    assert "pillow-" in reader_version() and "pydicom-" in reader_version()


@settings(max_examples=150)
@given(
    st.integers(1, 9),
    st.integers(1, 9),
    st.binary(min_size=0, max_size=100),
    st.sampled_from([b"", b"gAMA", b"tRNS", b"sRGB", b"bKGD", b"tEXt"]),
    st.booleans(),
)
def test_both_png_decoders_agree(width: int, height: int, noise: bytes, chunk: bytes, filters: bool) -> None:
    """Filters of every kind and none that exist, pixels missing or left over, chunks that libpng may act on."""
    pytest.importorskip("imagecodecs")
    rows = bytearray(noise.ljust(height * (width + 1), b"\x07")[: height * (width + 1)] if filters else noise)
    if filters:
        rows[:: width + 1] = bytes(value % 5 for value in rows[:: width + 1])
    content = {b"gAMA": (100000).to_bytes(4, "big"), b"tRNS": b"\0\x07", b"sRGB": b"\0", b"bKGD": b"\0\0"}
    body = content.get(chunk, b"a\0b")
    file = png(width, height, bytes(rows), chunk=chunk + body if chunk else b"")
    try:
        with Image.open(io.BytesIO(file), formats=("PNG",)) as image:
            image.load()
            expected = np.asarray(image.convert("L"))
    except (OSError, SyntaxError, ValueError):
        with pytest.raises(ImageError):
            decode_grey(file, "a.png")
        return
    np.testing.assert_array_equal(decode_grey(file, "a.png"), expected)
