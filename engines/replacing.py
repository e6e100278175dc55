"""Replaces a directory by a new one: whole or not at all, and by one writer at a time."""

from __future__ import annotations

import errno
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})


@contextmanager
def turn(path: Path) -> Iterator[None]:
    """A lock held while `path` is read and replaced: a second writer waits. The lock is not reentrant.

    The lock is a hidden file next to `path`, which its last holder removes; a file left by a killed process does not
    block other writers. On a file system without locks it does nothing. Raises OSError.
    """
    lock = path.parent / f".{path.name}.lock"
    held = _locked(lock)
    try:
        yield
    finally:
        # Removed before the lock is released, so that a waiting writer finds no file and creates a new one.
        lock.unlink(missing_ok=True)
        held.close()


def _locked(lock: Path) -> IO[bytes]:
    import fcntl

    while True:
        held = lock.open("wb")
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return held
            held.close()
            raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(held.fileno()), lock.stat()):
                return held
        held.close()  # its holder has removed it: the locked file is no longer the one that other writers open


@contextmanager
def sibling(path: Path) -> Iterator[Path]:
    """A temporary directory on the same file system, removed unless it was renamed away.

    What killed processes left next to `path` is removed first; a directory that one of them was about to replace is put
    back. Raises OSError.
    """
    _clear(path)
    with _hidden(path, ".part") as draft:
        draft.chmod(0o755)
        try:
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _hidden(path: Path, suffix: str) -> Iterator[Path]:
    """A new directory next to `path`, locked as long as this process uses it."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=f".{path.name}-", suffix=suffix, dir=path.parent))
        # Another process may find it before it is locked, and remove it.
        try:
            held = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        try:
            _try_lock(held)
            if made.exists():
                break
        except BlockingIOError:
            pass
        os.close(held)
    try:
        yield made
    finally:
        os.close(held)


def _try_lock(descriptor: int) -> bool:
    """Locks without waiting; False on a file system without locks. Raises BlockingIOError where another holds it."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return False
    return True


def _clear(path: Path) -> None:
    """Removes the hidden directories of `path` that no process holds."""
    for left in sorted(path.parent.glob(f".{glob.escape(path.name)}-????????.*")):
        if left.suffix not in (".part", ".old") or not left.is_dir() or left.is_symlink():
            continue
        with suppress(OSError):  # another process holds it, or has removed it
            held = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if _try_lock(held):
                    if (left / path.name).exists() and not path.exists():
                        (left / path.name).rename(path)
                    shutil.rmtree(left, ignore_errors=True)
            finally:
                os.close(held)


def put(draft: Path, path: Path, keep: str | None = None) -> None:
    """Renames `draft` to `path`. The old directory is then removed, but its folder `keep` moves to the new one. If the
    renaming fails, the old directory is restored. Raises OSError, with the old directory's path if that fails too."""
    if not path.exists():
        draft.rename(path)
        return
    with _hidden(path, ".old") as aside:
        old = aside / path.name
        try:
            path.rename(old)
            draft.rename(path)
        except BaseException:
            if old.exists() and not path.exists():
                _put_back(old, path)
            shutil.rmtree(aside, ignore_errors=True)
            raise
        if keep is not None:
            # Not an error: another process may have made a folder of that name in the meantime.
            with suppress(OSError):
                (old / keep).rename(path / keep)
        shutil.rmtree(aside, ignore_errors=True)


def _put_back(old: Path, path: Path) -> None:
    try:
        old.rename(path)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror}; the previous content is in {old}, move it back") from error
