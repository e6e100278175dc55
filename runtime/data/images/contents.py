"""What was read of image files: a hash of the content, and the state of the file that it belongs to.

The state (size, times, number of the file) is the quick question before the hash: while it is unchanged, the file is
not read again. Who replaces a file by another one changes at least one of the four, because the system alone sets the
time of the last change of the entry; only a file system that does not keep them hides a change from it.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ImageAccessError, ImageError
from ...host.machine_record import usable_cores
from .decode import read_bytes
from .size import image_size

HASH_BYTES = 16  # of a SHA-256: 128 bits tell files apart, and an entry is half as large
ABSENT = bytes(HASH_BYTES)
"""Stands for the hash of a file that does not exist or cannot be accessed."""

Size = tuple[int, int]


class FileState(NamedTuple):
    """Size in bytes, times of the last change of the content and of the entry (nanoseconds), number of the file."""

    bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int


Known = tuple[int, int, int, int, bytes | None, Size | None]
"""What was read of a file: the four fields of its state, the hash of its content, and height and width from the header.

A plain tuple of plain values, because the garbage collector need not look at the many thousands of them again.
"""


def file_state(path: Path) -> FileState:
    """The current state of an image file. Raises FileNotFoundError when it does not exist, ImageAccessError."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:
        raise FileNotFoundError(str(path)) from error
    except OSError as error:
        raise ImageAccessError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not stat.S_ISREG(status.st_mode):
        raise FileNotFoundError(str(path))
    return FileState(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def content_hash(data: bytes) -> bytes:
    """The first 16 bytes of the SHA-256 of a file's content."""
    return hashlib.sha256(data).digest()[:HASH_BYTES]


def hashes_now(files: Mapping[str, Path]) -> dict[str, bytes]:
    """Name -> hash of its file as it is, `ABSENT` if it cannot be read."""

    def read(path: Path) -> bytes:
        try:
            return content_hash(read_bytes(path))
        except ImageError:
            return ABSENT

    with ThreadPoolExecutor(usable_cores()) as pool:
        return dict(zip(files, pool.map(read, files.values()), strict=True))


class Contents:
    """The contents of the image files of a dataset that were read. Thread-safe.

    verify: files are read again to answer what they hold now, even if their state did not change. `known`: what was
    read of each file; `news`: whether it changed since this was last set to False.
    """

    def __init__(self, *, verify: bool = False) -> None:
        self.verify = verify
        self.known: dict[Path, Known] = {}
        self.news = False
        self._sure: dict[Path, FileState] = {}

    def read(self, path: Path) -> bytes:
        """As `read_bytes`; notes what was read. Raises as `file_state` and `read_bytes`."""
        try:
            state = file_state(path)  # before reading: a change meanwhile is seen the next time
            data = read_bytes(path)
        except (OSError, ImageError):
            self.known.pop(path, None)
            raise
        self.note(path, (*state, content_hash(data), None))
        self._sure[path] = state
        return data

    def read_size(self, path: Path) -> Size:
        """As `image_size`; notes what was read. Raises FileNotFoundError and ImageError."""
        state = file_state(path)
        size = image_size(path)
        self.note(path, (*state, None, size))
        self._sure[path] = state
        return size

    def note(self, path: Path, new: Known) -> None:
        """Enters what is known of a file; an entry of the same state keeps what it has besides."""
        old = self.known.get(path)
        if old is not None and old[:4] == new[:4]:
            new = (*new[:4], new[4] or old[4], new[5] or old[5])
        if new != old:
            self.known[path], self.news = new, True

    def note_all(self, paths: Sequence[Path], states: NDArray[np.int64], contents: NDArray[np.uint8]) -> None:
        """As `note`, of many files: their states [n, 4] as `file_states` has them, and hashes [n, 16]."""
        data = contents.tobytes()
        hashes = [data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES)]
        columns = (*states[:, :3].T.tolist(), states[:, 3].astype(np.uint64).tolist(), hashes)
        new: zip[Known] = zip(*columns, repeat(None))
        if self.known.keys().isdisjoint(paths):
            self.known.update(zip(paths, new, strict=False))
            self.news |= bool(paths)
        else:
            for path, entry in zip(paths, new, strict=False):
                self.note(path, entry)

    def hash_of(self, path: Path) -> bytes:
        """The hash of the content that was read last; ABSENT when none could be read."""
        entry = self.known.get(path)
        return ABSENT if entry is None else entry[4] or ABSENT

    def size_hash(self, path: Path) -> bytes:
        """A hash of the size that was read last; ABSENT when none could be read."""
        entry = self.known.get(path)
        return ABSENT if entry is None or entry[5] is None else _hash_of_size(entry[5])

    def is_known(self, path: Path, *, size: bool = False) -> bool:
        """Whether `hash_now`, or `size_hash_now`, answers without reading the file."""
        entry = self._unchanged(path)
        return entry is not None and entry[5 if size else 4] is not None

    def hash_now(self, path: Path) -> bytes:
        """The hash of the content of a file now, ABSENT if there is none; reads it unless its state is known."""
        entry = self._unchanged(path)
        if entry is not None and entry[4] is not None:
            return entry[4]
        return self._asked(path, lambda: content_hash(self.read(path)))

    def size_hash_now(self, path: Path) -> bytes:
        """As `hash_now`, of the height and width in the header."""
        entry = self._unchanged(path)
        if entry is not None and entry[5] is not None:
            return _hash_of_size(entry[5])
        return self._asked(path, lambda: _hash_of_size(self.read_size(path)))

    def _unchanged(self, path: Path) -> Known | None:
        """What is known of a file whose state did not change; None if it must be read."""
        try:
            state = file_state(path)
        except (FileNotFoundError, ImageError):
            return None
        entry = self.known.get(path)
        if entry is None or entry[:4] != state or (self.verify and self._sure.get(path) != state):
            return None
        return entry

    @staticmethod
    def _asked(path: Path, ask: Callable[[], bytes]) -> bytes:
        try:
            return ask()
        except (FileNotFoundError, ImageError):
            return ABSENT


def _hash_of_size(size: Size) -> bytes:
    return content_hash(f"{size[0]} x {size[1]}".encode())
