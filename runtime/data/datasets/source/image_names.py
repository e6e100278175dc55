"""Names of images as annotation tools, models and tables write them, in the one form in which they are compared."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from ..file_rows import fail

IMAGES: Final = (".dcm", ".dicom", ".png", ".jpg", ".jpeg")
"""What the names of images end with; of two images of one name the first is used."""

_MAX_NAME = 240  # bytes of one part of a path; file systems stop at 255
_SPECIAL: Final = re.compile(r"[./\\]")
"""What a name has that is not its own stem."""

_DEPTH: Final = 4  # parts of a path that a table can name an image by, such as valid/patient1/study1/view1.jpg


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


def without_extension(name: str) -> str:
    """A name without what names of images end with."""
    stem, dot, extension = name.rpartition(".")
    return stem if (dot + extension).lower() in IMAGES and stem else name


def stem_of(name: str) -> str:
    """The name of an image alone, without its folders and its extension: images\\a.png and ./a.dcm are "a"."""
    return without_extension(portable_name(name).rpartition("/")[2])


class ImageIds:
    """The ids of images in one annotation file, which may write a name with folders, an extension, or backslashes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._ids: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def of(self, name: str, row: int | None, column: str = "the name of the image") -> str:
        """The `stem_of` a name. Raises DataError for a name without one, and for two that differ in folders alone.

        column: what holds the name, for the message.
        """
        if name and name.isascii() and not _SPECIAL.search(name):
            return name
        known_id = self._ids.get(name)
        if known_id is not None:
            return known_id
        folder, _, last = portable_name(name).rpartition("/")
        stem = without_extension(last)
        if ".." in (last, *folder.split("/")):
            raise fail(
                self._file, row, f"{column} {name!r} leads out of the folder of the images or is not a file name"
            )
        if not stem or stem.lower() in IMAGES:
            raise fail(self._file, row, f"{column} is empty" if not name else f"{column} {name!r} is not a file name")
        if folder and self._folders.setdefault(stem, folder) != folder:
            text = f"{column} {name!r} lies in another folder than '{self._folders[stem]}/{stem}' before"
            raise fail(self._file, row, f"{text}, and images of one name are one image here; rename one of them")
        self._ids[name] = stem
        return stem


class TableNames:
    """The names of images in a table that a user adds to a dataset, looked up for the cases of the dataset."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names: dict[str, str] = {}
        stems: dict[str, set[str]] = {}
        for name in names:
            self._names.setdefault(portable_name(name), name)
            stems.setdefault(stem_of(name), set()).add(name)
        # A stem that two folders have names no image.
        self._stems = {stem: next(iter(keys)) for stem, keys in stems.items() if len(keys) == 1}

    def of(self, case_id: str, image: Path | None) -> str | None:
        """The table's name of a case: the end of its image's path, its id, or the stem of its image.

        The path is compared by its last four parts, the longest end first, with and without extension.
        """
        key = next((self._names[name] for name in _names_of(case_id, image) if name in self._names), None)
        return key if key is not None or image is None else self._stems.get(stem_of(image.name))


def _names_of(case_id: str, image: Path | None) -> Iterator[str]:
    parts = () if image is None else image.parts[-_DEPTH:]
    for start in range(len(parts)):
        name = portable_name("/".join(parts[start:]))
        yield name
        yield without_extension(name)
    yield portable_name(case_id)


def inside(folder: Path, name: str, file: Path, row: int | None) -> Path:
    """`folder` / the `portable_name`. Raises DataError for a name outside the folder or that is not a file name."""
    portable = portable_name(name)
    parts = portable.split("/")
    # A drive of Windows, as in C:/images/a.png, is a folder elsewhere although it looks like one below `folder`.
    drive = len(parts) > 1 and len(parts[0]) == 2 and parts[0][1] == ":"
    bad = "\0" in portable or parts[0] == "" or drive or parts[-1] in ("", ".") or ".." in parts
    if bad or not portable.isprintable():
        raise fail(file, row, f"the image name {name!r} leads out of the folder {folder} or is not a file name")
    encoded = portable.encode()  # possible for all printable text; a file system counts bytes
    if max(map(len, encoded.split(b"/"))) > _MAX_NAME or len(encoded) > 4 * _MAX_NAME:
        raise fail(file, row, f"the image name {portable[:40]!r}... is longer than {_MAX_NAME} bytes")
    return folder / portable
