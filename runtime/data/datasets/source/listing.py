"""The files and folders of a dataset, without those that a program put there for itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .....engines.user_files import entries, is_hidden, tree
from ....host.paths import has_file, has_folder

__all__ = ["entries", "files_in", "folders_in", "is_hidden", "tree"]


def files_in(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """The files directly in a folder that end with one of `suffixes` (lower case), in order of their names.

    A folder that does not exist has none. Raises OSError for one that may not be listed.
    """
    return [path for path in entries(folder) if path.name.lower().endswith(tuple(suffixes)) and has_file(path)]


def folders_in(folder: Path, start: str = "") -> list[Path]:
    """The folders directly in a folder whose names begin with `start`, in order of their names.

    A folder that does not exist has none. Raises OSError for one that may not be listed.
    """
    return [path for path in entries(folder) if path.name.startswith(start) and has_folder(path)]
