"""The files below a folder of a user, without those that a program put there for itself."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_OF_SYSTEMS: Final = frozenset(
    {
        "__macosx",
        "@eadir",
        "#recycle",
        "#snapshot",
        "@recycle",
        "$recycle.bin",
        "system volume information",
        "lost+found",
    }
)
"""Folders of macOS archives, stations of Synology and QNAP, Windows and Linux, in lower case: none is a user's."""

_FILES_OF_SYSTEMS: Final = frozenset({"thumbs.db", "desktop.ini"})


def is_hidden(name: str) -> bool:
    """Whether a file or folder of this name belongs to a program, such as .ipynb_checkpoints or ._image.png."""
    return name.startswith(".") or name.lower() in _OF_SYSTEMS or name.lower() in _FILES_OF_SYSTEMS


def entries(folder: Path) -> list[Path]:
    """The files and folders directly in a folder, by name; hidden ones are left out. Empty if it is no folder.

    Raises OSError for a folder that may not be listed.
    """
    try:
        return sorted(path for path in folder.iterdir() if not is_hidden(path.name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def tree(folder: Path) -> Iterator[Path]:
    """All files below a folder in order of their paths, files behind links to folders last; hidden ones are left out.

    Each folder is entered once, so circular links, or links to a folder of the same tree, do no harm. `folder` itself
    may be hidden: it was named by the user.
    """
    seen: set[tuple[int, int]] = set()
    starts = deque([folder])
    while starts:
        for name, inner, names in os.walk(starts.popleft()):
            parent = Path(name)
            try:
                status = parent.stat()
            except OSError:  # deleted during the listing
                continue
            if (status.st_dev, status.st_ino) in seen:
                inner.clear()
                continue
            seen.add((status.st_dev, status.st_ino))
            inner[:] = sorted(child for child in inner if not is_hidden(child))
            starts += [path for path in map(parent.joinpath, inner) if path.is_symlink()]
            yield from (parent / child for child in sorted(names) if not is_hidden(child))
