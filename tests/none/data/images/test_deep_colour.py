"""PNG files of several channels of 16 bits, and kinds of files that are refused by name (docs/datasets.md §0.2)."""

from __future__ import annotations

import io
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from make_images import deep_png, dicom, encode
from PIL import Image
from xbench_fast.engines.errors import ImageAccessError, ImageError
from xbench_fast.runtime.data.images.dali import _plain_size
from xbench_fast.runtime.data.images.decode import decode_grey, read_grey, reader_version
from xbench_fast.runtime.data.images.size import image_size

CASE = Path(__file__).parents[3] / "cases" / "png-16-bit-colour-or-alpha"
RNG = np.random.default_rng(11)
SMOOTH = np.add.outer(np.arange(16), np.arange(24)).astype(np.uint8) * 5


def naive_luminance(pixel: list[int]) -> int:
    """Pillow's L, written for whole numbers of any size: (19595 R + 38470 G + 7471 B) / 65536, halves up."""
    return (19595 * pixel[0] + 38470 * pixel[1] + 7471 * pixel[2] + 32768) // 65536


def naive_grey(values: np.ndarray) -> np.ndarray:
    grey = [[naive_luminance(p) if len(p) > 2 else p[0] for p in row] for row in values.tolist()]
    low, high = min(map(min, grey)), max(map(max, grey))
    return np.array([[round((v - low) / (high - low) * 255.0) for v in row] for row in grey])


def deep(channels: int, low: int = 1000, high: int = 4000) -> np.ndarray:
    return RNG.integers(low, high, (9, 13, channels)).astype(np.uint16)


@pytest.mark.parametrize("name", ["grey16", "rgb16", "la16", "rgba16"])
def test_the_files_of_the_case(name: str) -> None:
    ramp = [[0, 17, 34, 51], [68, 85, 102, 119], [136, 153, 170, 187], [204, 221, 238, 255]]
    assert read_grey(CASE / f"{name}.png").tolist() == ramp


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize(("low", "high"), [(0, 65536), (1000, 4000), (65000, 65536), (7, 250)])
def test_all_channels_are_read_with_all_their_bits(channels: int, interlaced: bool, low: int, high: int) -> None:
    values = deep(channels, low, high)
    found = decode_grey(deep_png(values, interlaced=interlaced), "a.png")
    assert found.dtype == np.uint8 and found.flags.c_contiguous
    np.testing.assert_array_equal(found, naive_grey(values))


def test_white_has_the_largest_luminance() -> None:
    values = np.array([[[65535] * 3, [0] * 3, [65535, 0, 0]]], np.uint16)
    assert decode_grey(deep_png(values), "a.png").tolist() == [[255, 0, round(19595 / 65536 * 255)]]


def test_luminance_is_that_of_pillow_where_the_low_bytes_repeat_the_high_ones() -> None:
    colour = RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8)
    colour[0, :2] = [[0] * 3, [255] * 3]
    found = decode_grey(deep_png(colour.astype(np.uint16) * 257), "a.png").astype(int)
    assert np.abs(found - np.asarray(Image.fromarray(colour).convert("L"))).max() <= 1


@pytest.mark.parametrize("channels", [1, 3])
def test_a_transparent_colour_is_dropped(channels: int) -> None:
    values = deep(channels)
    colour = struct.pack(f">{channels}H", *values[0, 0].tolist())
    data = deep_png(values, chunks=((b"tRNS", colour),))
    np.testing.assert_array_equal(decode_grey(data, "a.png"), naive_grey(values))
    alone = decode_grey(deep_png(values), "a.png", stretched=True)
    np.testing.assert_array_equal(decode_grey(data, "a.png", stretched=True), alone)


@pytest.mark.parametrize("chunk", [(b"gAMA", struct.pack(">I", 45455)), (b"sBIT", b"\x0c\x0c\x0c"), (b"sRGB", b"\0")])
def test_what_a_file_says_of_its_display_changes_no_value(chunk: tuple[bytes, bytes]) -> None:
    values = deep(3)
    np.testing.assert_array_equal(decode_grey(deep_png(values, chunks=(chunk,)), "a.png"), naive_grey(values))


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_the_rule_of_stored_values_sees_16_bits(channels: int) -> None:
    """Extremes of all channels, opacity included; truncated; luminance after that."""
    values = deep(channels)
    levels = (values - float(values.min())) / float(values.max() - values.min()) * 255.0
    expected = np.asarray(Image.fromarray(levels.astype(np.uint8)).convert("L"))
    np.testing.assert_array_equal(decode_grey(deep_png(values), "a.png", stretched=True), expected)


def test_a_constant_colour_is_black() -> None:
    values = np.full((3, 4, 3), 777, np.uint16)
    for stretched in (False, True):
        assert not decode_grey(deep_png(values), "a.png", stretched=stretched).any()


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_without_imagecodecs_the_package_is_named_and_no_high_byte_returned(
    channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "imagecodecs", None)
    for stretched in (False, True):
        with pytest.raises(ImageAccessError, match=r"^a\.png cannot be read on this machine .*imagecodecs"):
            decode_grey(deep_png(deep(channels)), "a.png", stretched=stretched)
    grey = deep(1)
    np.testing.assert_array_equal(decode_grey(deep_png(grey), "a.png"), naive_grey(grey))


def test_the_version_of_imagecodecs_is_part_of_the_key() -> None:
    assert "imagecodecs-" in reader_version()


def test_damaged_rows_are_an_error() -> None:
    values = deep(3)
    data = deep_png(values)
    short = deep_png(values[:4]).replace(struct.pack(">II", 13, 4), struct.pack(">II", 13, 9), 1)
    for broken in (data[:-30], short):
        with pytest.raises(ImageError, match=r"a\.png cannot be read"):
            decode_grey(broken, "a.png")


def test_an_animation_of_16_bits_is_refused() -> None:
    values = deep(3)
    for frames, fails in ((2, True), (1, False)):
        data = deep_png(values, chunks=((b"acTL", struct.pack(">II", frames, 0)),))
        if fails:
            with pytest.raises(ImageError, match="animation"):
                decode_grey(data, "a.png")
        else:
            np.testing.assert_array_equal(decode_grey(data, "a.png"), naive_grey(values))


def test_dali_leaves_these_files_to_the_exact_decoder() -> None:
    deep_files = [deep_png(deep(channels)) for channels in (1, 2, 3, 4)]
    inks = encode(np.dstack([SMOOTH] * 3), "JPEG", "CMYK")
    lossless = encode(SMOOTH, "JPEG").replace(b"\xff\xc0", b"\xff\xc3", 1)
    for data in (*deep_files, inks, jpeg_of_bits(12), lossless, b"\xff\xd8\xff\xe0"):
        assert _plain_size(data) is None
    assert _plain_size(encode(SMOOTH, "JPEG")) == SMOOTH.shape


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("stretched", [False, True])
def test_grey_of_few_bits_fills_8_bits(bits: int, stretched: bool) -> None:
    levels = RNG.integers(0, 2**bits, (5, 8), dtype=np.uint8)
    levels[0, :2] = 0, 2**bits - 1
    buffer = io.BytesIO()
    image = Image.fromarray(levels * (255 // (2**bits - 1)))
    # Pillow writes grey of few bits only of a palette or of one bit, so the file is made here.
    rows = b"".join(b"\0" + packed(row, bits) for row in levels)
    write_png(buffer, image.size, bits, rows)
    found = decode_grey(buffer.getvalue(), "a.png", stretched=stretched)
    np.testing.assert_array_equal(found, levels.astype(int) * 255 // (2**bits - 1))


def packed(row: np.ndarray, bits: int) -> bytes:
    text = "".join(format(int(value), f"0{bits}b") for value in row)
    return int(text, 2).to_bytes(len(text) // 8)


def write_png(stream: io.BytesIO, size: tuple[int, int], bits: int, rows: bytes) -> None:
    import zlib

    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", *size, bits, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    stream.write(b"\x89PNG\r\n\x1a\n")
    for kind, content in chunks:
        stream.write(struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content)))


def jpeg_of_bits(bits: int) -> bytes:
    """A JPEG whose frame header states this number of bits a channel."""
    data = bytearray(encode(SMOOTH, "JPEG"))
    data[data.index(b"\xff\xc0") + 4] = bits
    return bytes(data)


@pytest.mark.parametrize("bits", [12, 16])
def test_jpeg_of_more_than_8_bits_is_refused_by_name(bits: int) -> None:
    with pytest.raises(ImageError, match=rf"it is a JPEG of {bits} bits a channel; save it as PNG of 16 bits"):
        decode_grey(jpeg_of_bits(bits), "a.jpg")


def test_real_streams_of_other_kinds_of_jpeg() -> None:
    codecs = pytest.importorskip("imagecodecs")
    wide = RNG.integers(0, 4096, (16, 24)).astype(np.uint16)
    for data, cause in (
        (codecs.jpeg_encode(wide, bitspersample=12), "12 bits a channel"),
        (codecs.ljpeg_encode(wide, bitspersample=16), "16 bits a channel"),
        (codecs.jpegls_encode(wide), "it is JPEG-LS"),
        (codecs.jpegls_encode(SMOOTH), "it is JPEG-LS"),
        (codecs.jpeg2k_encode(wide), "it is JPEG 2000, neither"),
        (codecs.jpegxl_encode(SMOOTH), "it is JPEG XL, neither"),
        (codecs.avif_encode(np.dstack([SMOOTH] * 3)), "it is AVIF, neither"),
    ):
        with pytest.raises(ImageError, match=cause):
            decode_grey(data, "a.jpg")
    np.testing.assert_array_equal(decode_grey(codecs.ljpeg_encode(SMOOTH), "a.jpg"), SMOOTH)


@pytest.mark.parametrize("kind", ["cmyk", "ycck"])
def test_inks_of_adobe_are_inverted_and_unnamed_ones_refused(kind: str) -> None:
    codecs = pytest.importorskip("imagecodecs")
    inverted = np.dstack([255 - SMOOTH * 0] * 3 + [SMOOTH])  # no ink but black, written as 255 minus the amount
    data = codecs.jpeg_encode(inverted, colorspace="cmyk", outcolorspace=kind, level=100)
    assert np.abs(decode_grey(data, "a.jpg").astype(int) - SMOOTH).max() <= 2
    start = data.index(b"\xff\xee")
    unnamed = data[:start] + data[start + 2 + struct.unpack_from(">H", data, start + 2)[0] :]
    with pytest.raises(ImageError, match="no Adobe marker"):
        decode_grey(unnamed, "a.jpg")


@pytest.mark.parametrize(
    ("kind", "name"),
    [("TIFF", "TIFF"), ("GIF", "GIF"), ("BMP", "BMP"), ("WEBP", "WebP"), ("PPM", "NetPBM"), ("PDF", "PDF")],
)
def test_other_kinds_are_named(kind: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(encode(SMOOTH, kind))
    wanted = rf"a\.png cannot be read: it is {name}, neither PNG, JPEG nor DICOM; save it as one of them\.$"
    for read in (read_grey, image_size):
        with pytest.raises(ImageError, match=wanted):
            read(path)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "a pointer of Git LFS"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"\n<HTML>", "a web page"),
        (b"\x1f\x8b\x08\0", "a gzip archive"),
        (b"\0\0\0\x18ftypheic", "HEIC"),
        (bytes(344) + b"n+1\0", "NIfTI"),
        (b"MM\0*\0\0\0\x08", "TIFF"),
    ],
)
def test_files_that_are_no_pictures_are_named(data: bytes, name: str) -> None:
    with pytest.raises(ImageError, match=f"it is {name}"):
        decode_grey(data, "a.png")


def mpo(first: np.ndarray, second: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(first).save(buffer, "MPO", save_all=True, append_images=[Image.fromarray(second)], quality=95)
    return buffer.getvalue()


@pytest.mark.parametrize("stretched", [False, True])
def test_of_a_file_of_several_jpeg_pictures_the_first_is_read(stretched: bool, tmp_path: Path) -> None:
    data = mpo(SMOOTH, 255 - SMOOTH[:8, :8])
    assert Image.open(io.BytesIO(data)).format == "MPO"
    alone = decode_grey(encode(SMOOTH, "JPEG", quality=95), "a.jpg", stretched=stretched)
    np.testing.assert_array_equal(decode_grey(data, "a.jpg", stretched=stretched), alone)
    path = tmp_path / "a.jpg"
    path.write_bytes(data)
    assert image_size(path) == SMOOTH.shape and _plain_size(data) == SMOOTH.shape


def test_a_dicom_is_still_one() -> None:
    np.testing.assert_array_equal(decode_grey(dicom(SMOOTH), "a.dcm"), SMOOTH)
