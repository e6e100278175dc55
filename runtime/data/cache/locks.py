"""Locks of a store of prepared images: which process may write to it, and when it may be deleted.

Every process that has a store open holds `use` shared; deleting needs it exclusively, so a store in use is never
deleted. One of them holds `lock` exclusively and may write. The operating system releases both locks when the process
ends, also after a crash.

The package filelock cannot replace them: its lock of a file is exclusive alone, and its shared one is a database of
SQLite, which an older installation with the same cache would not see.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ...host.paths import has_folder

GRAVE = ".removed-"
"""Prefix of a store's name while it is being deleted."""

STORE_FILES = frozenset(
    {"index.json", "index.json.new", "lock", "pixels.bin", "reasons.jsonl", "records.bin", "use"},
)

FOREIGN = (errno.EACCES, errno.EPERM, errno.EROFS)
"""Errors of another user's store, and of a read-only disk."""


class Hold:
    """A hold on a store's folder; `writes`: this process, and no other, may write to it. `refused`: why no process may
    write here, empty where one may."""

    def __init__(self, use: int, lock: int | None, refused: str = "") -> None:
        self.refused = refused
        self._use = use
        self._lock = lock

    @property
    def writes(self) -> bool:
        return self._lock is not None

    @staticmethod
    def take(folder: Path, wait: Callable[[], None] | None = None) -> Hold:
        """Creates the folder if it is missing, and takes a hold on it.

        `wait`: called when another process writes; this one then waits until it can write. Without it the hold only
        reads, as it does on a read-only disk. Raises OSError when the folder cannot be created or its lock files cannot
        be opened.
        """
        while True:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except FileExistsError:
                if os.path.lexists(folder) and not has_folder(folder):
                    raise  # another file has this name
                continue  # the folder existed, and was deleted before `mkdir` checked that it is a folder
            try:
                use = _open(folder / "use", os.O_CREAT)
            except FileNotFoundError:
                continue  # deleted in the meantime
            except OSError as error:
                if wait is not None or error.errno not in FOREIGN:
                    raise
                return _reading(folder, error)
            try:
                # A process holds it exclusively only for the time of a rename.
                fcntl.flock(use, fcntl.LOCK_SH)
                if _same_file(use, folder / "use"):
                    with contextlib.suppress(OSError):
                        os.utime(use)  # the cache deletes the least recently opened stores first
                    return Hold(use, _writer(folder / "lock", wait))
            except BaseException:
                os.close(use)
                raise
            os.close(use)

    def release(self) -> None:
        """Releases the hold."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        os.close(self._use)


def in_use(folder: Path) -> bool:
    """Whether a process has the store open now; True also for another user's store, where this is unknown.

    Writes nothing.
    """
    try:
        use = _alone(folder)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    if use is None:
        return True
    os.close(use)
    return False


def remove_store(folder: Path) -> bool:
    """Deletes a store; False: it is `in_use` and is kept. Raises OSError when it cannot be deleted.

    The folder is renamed first: a process that is killed here leaves a name that no process opens.
    """
    try:
        # Without this file, a process that opens the store now could not be detected.
        os.close(_open(folder / "use", os.O_CREAT))
        use = _alone(folder)
    except FileNotFoundError:
        return True  # another process has deleted it
    except OSError as error:
        if error.errno in FOREIGN:
            return False
        raise
    if use is None:
        return False
    try:
        grave = folder.with_name(f"{GRAVE}{os.getpid()}-{folder.name}")
        folder.rename(grave)
    finally:
        os.close(use)
    shutil.rmtree(grave)
    return True


def _alone(folder: Path) -> int | None:
    """The file `use`, held exclusively; None: another process holds it, or the store was deleted.

    Raises FileNotFoundError where the file does not exist, and OSError where it cannot be opened or held.
    """
    use = _open(folder / "use")
    try:
        fcntl.flock(use, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _same_file(use, folder / "use"):
            return use
    except BlockingIOError:
        pass
    except BaseException:
        os.close(use)
        raise
    os.close(use)
    return None


def _open(path: Path, how: int = 0) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | how, 0o644)


def _reading(folder: Path, error: OSError) -> Hold:
    """A hold on a store that cannot be written. Raises `error` where it cannot be read either."""
    try:
        use = os.open(folder / "use", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        raise error from None
    try:
        fcntl.flock(use, fcntl.LOCK_SH)
    except BaseException:
        os.close(use)
        raise
    return Hold(use, None, error.strerror or str(error))


def _writer(path: Path, wait: Callable[[], None] | None) -> int | None:
    lock = _open(path, os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if wait is None:
            os.close(lock)
            return None
        try:
            wait()
            fcntl.flock(lock, fcntl.LOCK_EX)
        except BaseException:
            os.close(lock)
            raise
    except OSError:
        os.close(lock)
        raise
    return lock


def _same_file(descriptor: int, path: Path) -> bool:
    """Whether `path` still names the open file; False: the store was deleted after it was opened."""
    try:
        named = path.stat()
    except OSError:
        return False
    opened = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)
