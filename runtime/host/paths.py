"""Checks whether a file or folder exists and can be reached, without exceptions."""

from __future__ import annotations

import stat
from pathlib import Path

__all__ = ["has_file", "has_folder"]


def has_file(path: Path) -> bool:
    """Whether `path` is a file that can be reached. `Path.is_file` fails if a parent folder cannot be entered."""
    return stat.S_ISREG(_mode(path))


def has_folder(path: Path) -> bool:
    """Whether `path` is a folder that can be reached. `Path.is_dir` fails if a parent folder cannot be entered."""
    return stat.S_ISDIR(_mode(path))


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except (OSError, ValueError):  # ValueError for a name that is invalid in every file system
        return 0
