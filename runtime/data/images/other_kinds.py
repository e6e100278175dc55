"""Names the kind of a file that is not a PNG, JPEG or DICOM, by its first bytes."""

from __future__ import annotations

from typing import Final

_STARTS: Final = (
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
    (b"II+\x00", "TIFF"),
    (b"MM\x00+", "TIFF"),
    (b"II\xbc", "JPEG XR"),
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\x00\x00\x00\x0cJXL ", "JPEG XL"),
    (b"\x00\x00\x00\x0cjP  ", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"v/1\x01", "OpenEXR"),
    (b"8BPS", "a Photoshop file"),
    (b"NRRD", "NRRD"),
    (b"ObjectType", "MetaImage"),
    (b"NDims", "MetaImage"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x89HDF", "HDF5"),
    (b"%PDF", "PDF"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"version https://git-lfs", "a pointer of Git LFS: the file was not fetched"),
)
_BRANDS: Final = {b"avif": "AVIF", b"avis": "AVIF", b"heic": "HEIC", b"heix": "HEIC", b"mif1": "HEIC", b"msf1": "HEIC"}
_PAGES: Final = (b"<!doctype html", b"<html")


def refusal(data: bytes) -> str:
    """Why a file that begins with `data` is not read, as the end of a message: its kind, and what to do."""
    if not data:
        return "it is empty"
    neither = "neither PNG, JPEG nor DICOM"
    file_type = _file_type(data)
    return f"it is {file_type}, {neither}; save it as one of them" if file_type else f"it is {neither}"


def _file_type(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WebP"
    if data[4:8] == b"ftyp":
        return _BRANDS.get(data[8:12])
    if data[344:348] in (b"n+1\x00", b"ni1\x00"):
        return "NIfTI"
    if data[:1] == b"P" and data[1:2] in b"1234567" and data[2:3].isspace():
        return "NetPBM"
    if data[:64].lstrip().lower().startswith(_PAGES):
        return "a web page"
    return next((name for start, name in _STARTS if data.startswith(start)), None)
