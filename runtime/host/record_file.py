"""Append-only files of records that survive a kill at any moment (docs/ask.md §5, docs/pacs.md §4).

A line is the CRC-32 of a JSON object in 8 hex digits, a space, and the object.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ...engines.errors import RunError

_SYNC_SECONDS: Final = 1.0


class RecordFile:
    """A file of records, for the one process that writes it; its folder is made. Raises RunError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._synced = time.monotonic()
        self._full = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise self._unusable(error) from error

    def append(self, record: Mapping[str, Any]) -> int:
        """Writes a record in one call; the length of its line. Raises RunError, e.g. for a full disk; what was written
        before stays."""
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
        line = b"%08x %s\n" % (zlib.crc32(text), text)
        with self._lock:
            try:
                # A line behind half a line would be damaged with it, so nothing follows a write that failed.
                if self._full or os.write(self._file, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if time.monotonic() - self._synced >= _SYNC_SECONDS:
                    self._sync()
            except OSError as error:
                self._full = True
                raise self._unusable(error) from error
        return len(line)

    def sync(self) -> None:
        """Makes sure that the disk has what was written, if a second has passed."""
        with self._lock:
            if time.monotonic() - self._synced >= _SYNC_SECONDS:
                self._sync()

    def close(self) -> None:
        with self._lock, suppress(OSError):
            self._sync()
            os.close(self._file)
            self._file = -1  # what is still under way must not write into another file of this number

    def cut(self, line: bytes, end: int) -> None:
        """Moves a last line without its end, which begins at `end`, to the file with the ending .torn. Raises
        RunError."""
        try:
            with self._path.with_suffix(".torn").open("ab") as torn:
                torn.write(line)
            os.ftruncate(self._file, end)
        except OSError as error:
            raise self._unusable(error) from error

    def _sync(self) -> None:
        os.fsync(self._file)
        self._synced = time.monotonic()

    def _unusable(self, error: OSError) -> RunError:
        reason = error.strerror or str(error)
        return RunError(
            f"{self._path} cannot be written: {reason}; make room or use another --out. What was kept before stays."
        )


def read_lines(path: Path) -> Iterator[tuple[int, bytes, dict[str, Any] | None]]:
    """The offset, the line and the record of each line; the record of a damaged one is None. Raises OSError."""
    with path.open("rb") as stream:
        offset = 0
        for line in stream:
            yield offset, line, decoded(line)
            offset += len(line)


def decoded(line: bytes) -> dict[str, Any] | None:
    """The object of a whole line; None for a damaged one."""
    crc, space, text = line.rstrip(b"\n")[:8], line[8:9], line.rstrip(b"\n")[9:]
    try:
        if space != b" " or int(crc, 16) != zlib.crc32(text):
            return None
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
