"""A folder that may not be entered, also where the tests run as root."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def locked(folder: Path, mode: int = 0) -> Iterator[None]:
    """Within it `folder` has only the rights of `mode`, and this process none of root's."""
    before = folder.stat().st_mode & 0o7777
    folder.chmod(mode)
    as_root = os.geteuid() == 0
    if as_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if as_root:
            os.seteuid(0)
        folder.chmod(before)


@contextmanager
def open_folder() -> Iterator[Path]:
    """A temporary folder that every user may enter; those of pytest are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
