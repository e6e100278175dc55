"""Lossy pixels a little beyond their range, values of functional groups, and PNG files without their last rows."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dicom_streams import EXPLICIT, JPEG, film, items, written
from PIL import Image
from xbench_fast.engines.errors import DataError, ImageError
from xbench_fast.runtime.data.datasets.formats.mask_folder import PngMasks
from xbench_fast.runtime.data.images.decode import decode_grey
from xbench_fast.runtime.data.images.dicom.dicom_grey import read_stored


def near_lossless(pixels: Any, level: int) -> bytes:
    """A film of 12 bits stored, whose JPEG-LS stream has 16 and may miss each value by `level`."""
    imagecodecs = pytest.importorskip("imagecodecs")
    stream = imagecodecs.jpegls_encode(pixels, level=level)
    return written(film(pixels.shape, b"", x7FE00010=("OB", items(stream))), f"{JPEG}.81")


def test_white_stays_white_where_lossy_coding_overshoots() -> None:
    pixels = np.where(np.arange(32) < 16, 5, 4095).astype(np.uint16) * np.ones((8, 1), np.uint16)
    for shift in range(4):  # the coder may return up to 3 more than was coded
        stored = read_stored(near_lossless(np.minimum(pixels + shift, 4098), 3)).astype(int)
        assert stored.max() <= 4095 and (stored[:, 16:] >= 4092).all() and (stored[:, :16] <= 11).all()


def test_far_values_of_lossy_pixels_are_refused_and_lossless_ones_are_masked() -> None:
    pixels = np.full((8, 16), 100, np.uint16)
    pixels[:, 8:] |= 1 << 15
    assert (read_stored(near_lossless(pixels, 0)) == 100).all(), "an overlay in the unused bits"
    with pytest.raises(ImageError, match="coded with loss and hold values far beyond its BitsStored 12"):
        read_stored(near_lossless(pixels, 3))


@pytest.mark.parametrize("groups", [0x52009229, 0x52009230])
@pytest.mark.parametrize("sequence", [0x00289132, 0x00289145])
def test_values_of_functional_groups_are_not_passed_over(groups: int, sequence: int) -> None:
    group = [(sequence, "SQ", [[(0x00281050, "DS", "10"), (0x00281051, "DS", "20")]])]
    pixels = np.arange(64, dtype="<u2").reshape(8, 8)
    data = written(film((8, 8), pixels.tobytes(), **{f"x{groups:08X}": ("SQ", [group])}), EXPLICIT)
    with pytest.raises(ImageError, match="functional groups"):
        decode_grey(data, "a")


def cut(pixels: Any, rows: int) -> bytes:
    """A PNG whose zlib stream is whole and ends after `rows` rows, which its header does not say."""
    whole = io.BytesIO()
    Image.fromarray(pixels).save(whole, "PNG")
    data, position, parts = whole.getvalue(), 8, []
    while position < len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        parts.append((kind, data[position + 8 : position + 8 + length]))
        position += 12 + length
    raw = zlib.decompress(b"".join(content for kind, content in parts if kind == b"IDAT"))
    short = zlib.compress(raw[: len(raw) // len(pixels) * rows])
    kept = [part for part in parts if part[0] not in (b"IDAT", b"IEND")]
    chunks = [*kept, (b"IDAT", short), (b"IEND", b"")]
    return data[:8] + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )


@pytest.mark.parametrize(
    "pixels",
    [np.full((20, 9), 200, np.uint8), np.full((20, 9), 60000, np.uint16), np.full((20, 9, 3), 90, np.uint8)],
    ids=["grey 8", "grey 16", "colour"],
)
def test_a_png_without_its_last_rows_is_refused(pixels: Any, tmp_path: Path) -> None:
    assert decode_grey(cut(pixels, 20), "a").shape == (20, 9)
    with pytest.raises(ImageError, match=r"its pixels end in row 10 of 20|damaged"):
        decode_grey(cut(pixels, 10), "a")
    dark = pixels.copy()
    dark[15:] = 0
    assert decode_grey(cut(dark, 20), "a").shape == (20, 9), "a dark last row is no missing one"
    for folder in ("masks/Mass", "images"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "images/a.png").write_bytes(cut(pixels, 20))
    (tmp_path / "masks/Mass/a.png").write_bytes(cut(pixels, 10))
    with pytest.raises(DataError, match=r"cannot be read: (its pixels end in row 10 of 20|it is damaged)"):
        PngMasks(tmp_path)
