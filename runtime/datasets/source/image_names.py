"""Names of images as annotation tools, models and tables write them, in the one form in which they are compared."""

from __future__ import annotations

import unicodedata
from pathlib import Path

from ..files import fail

__all__ = ["inside", "portable_name"]

_MAX_NAME = 240  # bytes of one part of a path; file systems stop at 255


def portable_name(name: str) -> str:
    """A file name in the form in which two names are compared: composed letters, and "/" between folders.

    Tools on Windows write "\\" between folders, and macOS stores "é" as two characters (NFD) where others have one
    (NFC). A leading "./" says nothing.
    """
    if name.isascii() and "\\" not in name and not name.startswith("./"):
        return name
    name = unicodedata.normalize("NFC", name).replace("\\", "/")
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name


def inside(folder: Path, name: str, file: Path, row: int | None) -> Path:
    """`folder` / the `portable_name`. Raises DataError for a name that points outside the folder or is no file name."""
    portable = portable_name(name)
    parts = portable.split("/")
    # A drive of Windows, as in C:/images/a.png, is a folder elsewhere although it looks like one below `folder`.
    drive = len(parts) > 1 and len(parts[0]) == 2 and parts[0][1] == ":"
    bad = "\0" in portable or parts[0] == "" or drive or parts[-1] in ("", ".") or ".." in parts
    if bad or not portable.isprintable():
        raise fail(file, row, f"the image name {name!r} leads out of the folder {folder} or is no file name")
    encoded = portable.encode()  # possible for all printable text; a file system counts bytes
    if max(map(len, encoded.split(b"/"))) > _MAX_NAME or len(encoded) > 4 * _MAX_NAME:
        raise fail(file, row, f"the image name {portable[:40]!r}... is longer than {_MAX_NAME} bytes")
    return folder / portable
