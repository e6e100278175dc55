"""A folder that may not be entered or written, also where the tests run as root."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

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


def refuse_writes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every file and folder below `folder` be read only, as on a disk mounted so; for root as well."""
    real_open, real_mkdir, real_time = os.open, os.mkdir, os.utime

    def refuse(path: object, writes: bool) -> None:
        if writes and isinstance(path, str | os.PathLike) and Path(path).is_relative_to(folder):
            raise OSError(errno.EROFS, "Read-only file system", os.fspath(path))

    def opened(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        refuse(path, bool(flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT)))
        return real_open(path, flags, *rest, **more)

    def made(path: Any, *rest: Any, **more: Any) -> None:
        refuse(path, not os.path.lexists(path))
        real_mkdir(path, *rest, **more)

    def touched(path: Any, *rest: Any, **more: Any) -> None:
        refuse(path, True)
        real_time(path, *rest, **more)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "mkdir", made)
    monkeypatch.setattr(os, "utime", touched)
