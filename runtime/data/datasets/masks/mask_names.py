"""Names of mask files: which are of an image, and which are further masks of one (docs/formats.md §9.8)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from .....engines.errors import DataError
from ..file_rows import Note
from ..source.image_names import portable_name
from ..source.listing import is_hidden

_NUMBERED = re.compile(r"(.+)[_-][0-9]{1,3}")


def first_name(name: str) -> str | None:
    """`a_mask` for `a_mask_1` or `a_mask-02`, as tools number further masks of one image; None: another form."""
    match = _NUMBERED.fullmatch(name)
    return match[1] if match else None


def seems_further(name: str, masks: Collection[str]) -> bool:
    """Whether a name is one of `masks` (in lower case) with more behind: `a_mask (1)`, `a_mask_b`, `a_mask1`.

    What follows begins with no letter, so that `a_masked` is another name, and holds no folder.
    """
    name = name.lower()
    start = name.rfind("/") + 1
    ends = (end for end in range(start + 1, len(name)) if not name[end].isalpha())
    return any(name[:end] in masks for end in ends)


def listed_masks(folder: Path, notes: list[Note]) -> dict[str, Path]:
    """Stem -> PNG file of a folder, in the order of the names; other files are counted in a note. Raises DataError.

    Of two that differ in .png and .PNG the first is read.
    """
    try:
        names = [path for path in folder.iterdir() if not is_hidden(path.name) and path.is_file()]
        names.sort(key=lambda path: (path.stem, path.suffix != ".png", path.suffix))
    except OSError as error:
        raise DataError(f"The folder {folder} of the masks cannot be listed: {error.strerror}.") from error
    masks: dict[str, Path] = {}
    others = []
    for path in names:
        if path.suffix.lower() != ".png" or masks.setdefault(portable_name(path.stem), path) != path:
            others.append(path)
    note_others(others, "another form than <image>.png", notes)
    return masks


def note_others(paths: Sequence[Path], form: str, notes: list[Note]) -> None:
    """Appends a note that counts the files of a folder of masks that are not used, if there are any."""
    if paths:
        text = f"files of {form}, which are not used: {len(paths)}"
        notes.append(Note("other_file", str(paths[0]), paths[0], None, text))
