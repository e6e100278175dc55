"""Which films are done: a file that survives a kill and names no patient (docs/pacs.md §4)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ....engines.errors import RunError
from ...host.record_file import RecordFile, read_lines
from ...results.folder_lock import lock_folder

LOG_FILE: Final = "transfer.jsonl"
_HEAD: Final = "xbench_pacs"
_VERSION: Final = 1


class TransferLog:
    """The films whose objects an archive has; for one process at a time.

    identity: of the archive, the model and the options. A film's key is the hash of it and of the film's UID, so that
    other options ask the film again. damaged: lines that were skipped. Raises RunError.
    """

    def __init__(self, folder: Path, identity: str) -> None:
        self._identity = identity
        self._done: set[bytes] = set()
        self.damaged = 0
        path = folder / LOG_FILE
        self._file = RecordFile(path)
        try:
            self._read(path)
        except OSError as error:
            raise RunError(f"{path} cannot be read: {error.strerror or error}.") from error

    def has(self, uid: str) -> bool:
        """Whether the objects of the film with this UID are in the archive."""
        return self._key(uid) in self._done

    def add(self, uid: str, label: str, stored: int, kept: int) -> None:
        """Notes that a film is done. Raises RunError, e.g. for a full disk."""
        key = self._key(uid)
        self._file.append({"key": key.hex(), "film": label, "stored": stored, "kept": kept})
        self._done.add(key)

    def close(self) -> None:
        self._file.close()

    def _key(self, uid: str) -> bytes:
        return hashlib.sha256(f"{self._identity}\0{uid}".encode()).digest()

    def _read(self, path: Path) -> None:
        empty = True
        for offset, line, record in read_lines(path):
            if not line.endswith(b"\n"):
                self._file.cut(line, offset)
            elif record is None:
                self.damaged += 1
            elif not offset and record.get(_HEAD) != _VERSION:
                raise RunError(f"{path} is no log of this version; use another --out.")
            else:
                with suppress(TypeError, ValueError):  # a record of another form says nothing
                    self._done.add(bytes.fromhex(record.get("key", "")))
            empty = empty and not line.endswith(b"\n")
        if empty:
            self._file.append({_HEAD: _VERSION})


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder. Raises RunError if another process has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = lock_folder(folder)
    except OSError as error:
        raise RunError(f"{folder} cannot be made: {error.strerror or error}; use another --out.") from error
    if lock is None:
        raise RunError(f"Another pacs is writing into {folder} now; wait for it, or use another --out.")
    with lock:
        yield
