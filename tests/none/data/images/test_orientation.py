"""The EXIF orientation is read from headers, wherever Pillow's own advice finds it, and turns no pixel."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_images import dicom, encode
from PIL import Image, ImageOps, PngImagePlugin
from xbench_fast.runtime.data.images.decode import read_grey
from xbench_fast.runtime.data.images.orientation import exif_orientation

GREY = np.random.default_rng(2).integers(0, 256, (12, 20), dtype=np.uint8)
XMP = '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="{}"/></x:xmpmeta>'


def exif(value: int, order: str = "<") -> bytes:
    """One directory with one SHORT, as TIFF 6.0 writes it."""
    start = b"II*\0" if order == "<" else b"MM\0*"
    return start + struct.pack(order + "IHHHIHHI", 8, 1, 0x0112, 3, 1, value, 0, 0)


def segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 255, marker, len(content) + 2) + content


def jpeg(*segments: bytes) -> bytes:
    data = encode(GREY, "JPEG", quality=95)
    return data[:2] + b"".join(segments) + data[2:]


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(before: bytes = b"", behind: bytes = b"") -> bytes:
    data = encode(GREY, "PNG")
    return data[:33] + before + data[33:-12] + behind + data[-12:]


def text_of(info: PngImagePlugin.PngInfo) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(GREY).save(buffer, "PNG", pnginfo=info)
    return buffer.getvalue()


def raw_profile(value: int) -> bytes:
    info, data = PngImagePlugin.PngInfo(), b"Exif\0\0" + exif(value)
    info.add_text("Raw profile type exif", f"\nexif\n{len(data):8}\n{data.hex()}\n", zip=True)
    return text_of(info)


def png_xmp(value: int) -> bytes:
    info = PngImagePlugin.PngInfo()
    info.add_itxt("XML:com.adobe.xmp", XMP.format(value))
    return text_of(info)


CONTAINERS = {
    "jpeg": lambda value: jpeg(segment(0xE1, b"Exif\0\0" + exif(value))),
    "jpeg, big endian": lambda value: jpeg(segment(0xE1, b"Exif\0\0" + exif(value, ">"))),
    "jpeg, behind much else": lambda value: jpeg(
        *[segment(0xE2, bytes(60000))] * 20, segment(0xE1, b"Exif\0\0" + exif(value))
    ),
    "jpeg, xmp": lambda value: jpeg(segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + XMP.format(value).encode())),
    "png": lambda value: png(chunk(b"eXIf", exif(value))),
    "png, behind the pixels": lambda value: png(behind=chunk(b"eXIf", exif(value))),
    "png, raw profile": raw_profile,
    "png, xmp": png_xmp,
}


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("value", range(1, 9))
def test_all_values_in_all_containers(name: str, value: int, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(CONTAINERS[name](value))
    assert exif_orientation(path) == value
    kind = "PNG" if name.startswith("png") else "JPEG"
    np.testing.assert_array_equal(read_grey(path), np.asarray(Image.open(io.BytesIO(plain(kind)))))
    with Image.open(path) as image:
        turned = ImageOps.exif_transpose(image)
    assert turned.size == ((12, 20) if value >= 5 else (20, 12))
    turned.save(path, kind)
    assert exif_orientation(path) == 1


def plain(kind: str) -> bytes:
    return encode(GREY, "JPEG", quality=95) if kind == "JPEG" else encode(GREY, "PNG")


@pytest.mark.parametrize(
    "content",
    [
        plain("PNG"),
        plain("JPEG"),
        jpeg(segment(0xE1, b"Exif\0\0" + exif(0))),
        jpeg(segment(0xE1, b"Exif\0\0" + exif(9))),
        jpeg(segment(0xE1, b"Exif\0\0" + exif(6)[:9])),
        jpeg(segment(0xE1, b"Exif\0\0rubbish")),
        jpeg(segment(0xE1, b"Exif\0\0" + exif(6).replace(b"\x12\x01\x03\0", b"\x12\x01\x02\0"))),
        png(chunk(b"eXIf", b"II*\0")),
        png()[:20],
        png(chunk(b"eXIf", exif(6)))[:40],
        b"\xff\xd8\xff",
        b"",
        b"GIF89a",
        dicom(GREY),
    ],
)
def test_a_file_that_states_none_or_is_damaged_has_the_first(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    assert exif_orientation(path) == 1


def test_a_file_that_is_not_there_has_the_first(tmp_path: Path) -> None:
    assert exif_orientation(tmp_path / "none") == 1 == exif_orientation(tmp_path)


def test_the_first_of_several_pictures_counts(tmp_path: Path) -> None:
    info = Image.Exif()
    info[0x0112] = 6
    first = Image.fromarray(GREY)
    first.save(tmp_path / "a.jpg", "MPO", save_all=True, append_images=[Image.fromarray(GREY[:8, :8])], exif=info)
    assert exif_orientation(tmp_path / "a.jpg") == 6


def test_pixels_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(self: Any) -> None:
        raise AssertionError("the pixels are read")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", load)
    for name in ("png, behind the pixels", "jpeg"):
        (tmp_path / "a").write_bytes(CONTAINERS[name](7))
        assert exif_orientation(tmp_path / "a") == 7
