"""One function tells the kind of a file, every reader uses it, and DICOM is also told without its preamble."""

from __future__ import annotations

import ast
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from dicom_streams import BIG_ENDIAN, ENCODERS, EXPLICIT, IMPLICIT, JPEG, blocks, film, items, written
from make_images import encode
from xbench_fast.engines.errors import ImageError
from xbench_fast.runtime.data.datasets.attributes.lookup import read_header
from xbench_fast.runtime.data.datasets.formats.dicom.dicom_files import dicom_files
from xbench_fast.runtime.data.images.decode import decode_grey
from xbench_fast.runtime.data.images.kinds import KIND_BYTES, dicom_start, image_kind
from xbench_fast.runtime.data.images.size import image_size
from xbench_fast.runtime.serving.http.http_codec import decode_infer
from xbench_fast.runtime.serving.inference.request_images import prepare_quick
from xbench_fast.runtime.serving.protocol.request_errors import BadRequest

WORDS = np.arange(42, dtype=np.uint16).reshape(6, 7) * 90
SYNTAXES = (IMPLICIT, EXPLICIT, BIG_ENDIAN)


def bare(syntax: str, start: bytes = b"", meta: bytes | None = None, **changes: object) -> bytes:
    """A film without preamble; with `meta` empty also without file meta information."""
    pixels = WORDS.astype(">u2" if syntax == BIG_ENDIAN else "<u2").tobytes()
    return written(film(WORDS.shape, pixels, **changes), syntax, start=start, meta=meta)


WITHOUT = {
    f"{syntax} {name}": bare(syntax, start, meta)
    for syntax in SYNTAXES
    for name, start, meta in (
        ("prefix", b"DICM", None),
        ("meta", b"", None),
        ("data", b"", b""),
        ("both", b"DICM", b""),
    )
}


@pytest.mark.parametrize("name", WITHOUT)
def test_dicom_without_its_preamble_is_read_everywhere(name: str, tmp_path: Path) -> None:
    data = WITHOUT[name]
    whole = bare(name.partition(" ")[0], bytes(128) + b"DICM")
    assert image_kind(data[:KIND_BYTES]) == "dicom"
    np.testing.assert_array_equal(decode_grey(data, "a"), decode_grey(whole, "b"))
    path = tmp_path / "film"
    path.write_bytes(data)
    assert image_size(path) == WORDS.shape
    assert read_header(path) == {}
    (found,) = dicom_files(tmp_path)
    assert (found.object_type, found.uid) == ("image", "1.2.3.4")


@pytest.mark.parametrize("first", [0x00080000, 0x00080005, 0x00080008, 0x00080016])
def test_what_a_data_set_may_begin_with(first: int) -> None:
    values = {0x00080000: ("UL", [22]), 0x00080005: ("CS", "ISO_IR 100"), 0x00080008: ("CS", "ORIGINAL\\PRIMARY")}
    vr, value = values.get(first, ("UI", "1.2.840.10008.5.1.4.1.1.1"))
    for syntax in SYNTAXES:
        data = bare(syntax, b"", b"", **{f"x{first:08X}": (vr, value)})
        assert image_kind(data) == "dicom" and dicom_start(data) == 0
        assert decode_grey(data, "a").max() == 255


def test_file_meta_information_in_implicit_vr() -> None:
    syntax = EXPLICIT.encode() + b"\0"
    meta = struct.pack("<HHI", 2, 0x10, len(syntax)) + syntax
    for start in (b"", bytes(128) + b"DICM"):
        data = bare(EXPLICIT, start, meta)
        np.testing.assert_array_equal(decode_grey(data, "a"), decode_grey(bare(EXPLICIT, bytes(128) + b"DICM"), "b"))


def test_compressed_pixels_of_an_unknown_syntax_are_refused() -> None:
    frame = ENCODERS[f"{JPEG}.80"].encode(8)
    entries = film((24, 32), b"", 8, 8, x7FE00010=("OB*", items(frame)))
    data = written(entries, f"{JPEG}.80", start=b"", meta=b"")
    with pytest.raises(ImageError, match="its pixels are in items, although its transfer syntax is uncompressed"):
        decode_grey(data, "a.dcm")
    np.testing.assert_array_equal(decode_grey(written(entries, f"{JPEG}.80", start=b""), "b.dcm"), blocks(8))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x08",
        b"DICM",
        b"DICM and more text, which is not DICOM",
        bytes(200),
        b"%PDF-1.7\n" + bytes(200),
        b"II*\0" + bytes(200),
        b"\x08\0\x05\0ZZ\x0a\0ISO_IR 100",  # no VR of such an element, and 667 MB long
        b"\x08\0\x05\0\x0b\0\0\0ISO_IR 100 ",  # an odd length
        b"\x10\0\x10\0PN\x06\0A^B^C ",
        b"\x89PNG\r\n",
        "patient,age\n1,2\n".encode("utf-16"),
    ],
)
def test_other_files_are_not_taken_for_images(data: bytes, tmp_path: Path) -> None:
    assert image_kind(data) == ""
    with pytest.raises(ImageError, match=r"neither PNG, JPEG nor DICOM|it is empty"):
        decode_grey(data, "a")
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(ImageError, match=r"neither PNG, JPEG nor DICOM|it is empty"):
        image_size(tmp_path / "a")
    assert list(dicom_files(tmp_path)) == [] and read_header(tmp_path / "a") is None


def test_kinds_by_the_first_bytes() -> None:
    grey = np.eye(9, dtype=np.uint8)
    for kind in ("png", "jpeg"):
        assert image_kind(encode(grey, kind.upper())[:KIND_BYTES]) == kind
    assert image_kind(bytes(128) + b"DICM") == "dicom" and dicom_start(bytes(128) + b"DICM") == 132
    # A preamble may be the beginning of a TIFF file (PS3.10 7.1).
    assert image_kind(b"II*\0" + bytes(124) + b"DICM") == "dicom"


def test_the_server_tells_the_same_kinds() -> None:
    from xbench_fast.engines.geometry import Geometry
    from xbench_fast.runtime.serving.protocol.requests import Request

    for data in WITHOUT.values():
        with pytest.raises(BadRequest, match="send it with the header 'Content-Type: application/dicom'"):
            decode_infer("kad", data, None)
        request = object.__new__(Request)
        object.__setattr__(request, "images", [data])
        assert prepare_quick(request, Geometry("squash", 224, 224, "bicubic")) is None


FIRST_BYTES = (b"DICM", b"\x89PNG", b"\xff\xd8")
READERS = {"pydicom", "pylibjpeg", "libjpeg", "openjpeg"}
WORTH_PARSING = re.compile(r"DICM|x89PNG|xff.xd8|pydicom|pylibjpeg|libjpeg|openjpeg", re.IGNORECASE)
ELSEWHERE = {
    "runtime/data/images/kinds.py",
    # Of frames inside a DICOM file, and of what people take for a checkpoint: `export` imports no reader of images.
    "runtime/data/images/dicom/pixel_frames.py",
    "runtime/data/images/dicom/jpeg_header.py",
    "export/checkpoints/given_paths.py",
}


def test_nobody_else_compares_first_bytes_or_reads_with_pydicom(root: Path) -> None:
    """A new reader asks `image_kind`, and reads DICOM through `open_data_set`, which lets nothing of pydicom out."""
    comparing, importing = set(), set()
    for room in ("api", "demo", "engines", "export", "metrics_gpu", "runtime"):
        for path in (root / room).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if WORTH_PARSING.search(text) else ():
                name = str(path.relative_to(root))
                if isinstance(node, ast.Constant) and isinstance(node.value, bytes):
                    comparing |= {name} if node.value.startswith(FIRST_BYTES) else set()
                elif isinstance(node, ast.Constant) and node.value == "DICM":
                    comparing.add(name)
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
                importing |= {name} if READERS & {one.partition(".")[0] for one in names} else set()
    assert comparing == ELSEWHERE
    # `elements` asks for tags and representations of keywords, `samples` writes files, and so does reporting/dicom.
    assert {name for name in importing if not name.startswith("runtime/reporting/dicom/")} == {
        *(f"runtime/data/images/dicom/{name}.py" for name in ("elements", "open_dicom")),
        "runtime/data/images/samples.py",
    }
