"""The append-only log of answers: survives a kill at any moment, and is indexed without its texts (docs/ask.md §5)."""

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
from typing import Any, Final, NamedTuple

from ...engines.errors import RunError

LOG_FILE: Final = "log.jsonl"
TORN_FILE: Final = "log.torn"
VERSION: Final = 1
KEPT: Final = ("answer", "truncated", "refused", "empty")
"""Kinds of records that are answers; a pair with another kind is asked again."""

_SYNC_SECONDS: Final = 1.0
_HEAD: Final = "xbench_ask"


class ImageRecord(NamedTuple):
    """What the log knows of a prepared image: of which file state, the hash of its pixels, and its sizes."""

    bytes: int
    mtime_ns: int
    pixels: str
    size: tuple[int, int]
    original: tuple[int, int]


class KeptAnswers:
    """The log in `folder`, which is read alone, also while another process writes it.

    A line is the CRC-32 of a JSON object in 8 hex digits, a space, and the object. keys: answered key -> offset of its
    line; images: (id, preparation) -> what is known. damaged: lines with another CRC or no object, which are skipped;
    repeated: answers whose key had one before, of which the first counts; torn: bytes of a last line without its end.
    models: what the answering models called themselves, in the order of their first answers.
    Raises RunError.
    """

    def __init__(self, folder: Path, dialect: str) -> None:
        self.path = folder / LOG_FILE
        self.keys: dict[bytes, int] = {}
        self.images: dict[tuple[str, str], ImageRecord] = {}
        self.damaged = self.repeated = self.torn = 0
        self.dialect = dialect
        self.models: list[str] = []
        try:
            self._size = self._read()
        except OSError as error:
            raise RunError(f"{self.path} cannot be read: {error.strerror or error}.") from error

    def has(self, key: str) -> bool:
        """Whether there is an answer with this key."""
        return bytes.fromhex(key) in self.keys

    def answer(self, key: str) -> dict[str, Any] | None:
        """The record of an answer; None without one."""
        offset = self.keys.get(bytes.fromhex(key))
        if offset is None:
            return None
        with self.path.open("rb") as stream:
            stream.seek(offset)
            return _record(stream.readline())

    def records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(offset, record) of every whole line; a damaged one is left out."""
        with self.path.open("rb") as stream:
            offset = 0
            for line in stream:
                if (record := _record(line)) is not None:
                    yield offset, record
                offset += len(line)

    def _read(self) -> int:
        """Reads the index; the bytes of the log without a torn last line."""
        end = 0
        with self.path.open("rb") as stream:
            for line in stream:
                if not line.endswith(b"\n"):
                    self._tear(line, end)
                    break
                record = _record(line)
                if record is None:
                    self.damaged += 1
                elif not end and _HEAD in record:
                    self._check(record)
                else:
                    self._note(record, end)
                end += len(line)
        return end

    def _tear(self, line: bytes, end: int) -> None:
        """A last line without its end, which begins at `end`."""
        self.torn = len(line)

    def _check(self, record: Mapping[str, Any]) -> None:
        if record[_HEAD] != VERSION:
            raise RunError(f"{self.path} has version {record[_HEAD]}, and {VERSION} is read here; use another --out.")
        if record.get("dialect") != self.dialect:
            other = record.get("dialect")
            raise RunError(f"{self.path} has answers in the dialect {other}, not {self.dialect}; use another --out.")

    def _note(self, record: Mapping[str, Any], offset: int) -> None:
        """Enters a record; a record of another form says nothing."""
        key, image = record.get("key"), record.get("image")
        with suppress(TypeError, ValueError, KeyError):
            if isinstance(key, str) and record.get("kind") in KEPT and isinstance(record["text"], str):
                digest = bytes.fromhex(key)
                self.repeated += digest in self.keys
                self.keys.setdefault(digest, offset)
                if isinstance(name := record.get("model"), str) and name not in self.models:
                    self.models.append(name)
            elif isinstance(image, str):
                size, original = ((int(w), int(h)) for w, h in (record["size"], record["original"]))
                known = ImageRecord(int(record["bytes"]), int(record["mtime_ns"]), record["pixels"], size, original)
                self.images[image, str(record["preparation"])] = known


class AnswerLog(KeptAnswers):
    """The log in `folder`, for the one process that writes it: a torn last line is moved to `TORN_FILE`.

    Raises RunError.
    """

    def __init__(self, folder: Path, dialect: str) -> None:
        self._lock = threading.Lock()
        self._synced = time.monotonic()
        self._full = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(folder / LOG_FILE, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise _unusable(folder / LOG_FILE, error) from error
        super().__init__(folder, dialect)
        if not self._size:
            self.append({_HEAD: VERSION, "dialect": dialect})

    def append(self, record: Mapping[str, Any]) -> None:
        """Writes a record in one call. Raises RunError, e.g. for a full disk; what was written before stays."""
        text = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
        line = b"%08x %s\n" % (zlib.crc32(text), text)
        with self._lock:
            try:
                # A line behind half a line would be damaged with it, so nothing follows a write that failed.
                if self._full or os.write(self._file, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                self._note(record, self._size)
                self._size += len(line)
                if time.monotonic() - self._synced >= _SYNC_SECONDS:
                    self._sync()
            except OSError as error:
                self._full = True
                raise _unusable(self.path, error) from error

    def sync(self) -> None:
        """Makes sure that the disk has what was written, if a second has passed."""
        with self._lock:
            if time.monotonic() - self._synced >= _SYNC_SECONDS:
                self._sync()

    def close(self) -> None:
        with self._lock, suppress(OSError):
            self._sync()
            os.close(self._file)
            self._file = -1  # a request that Ctrl-C left under way must not write into another file of this number

    def _sync(self) -> None:
        os.fsync(self._file)
        self._synced = time.monotonic()

    def _tear(self, line: bytes, end: int) -> None:
        super()._tear(line, end)
        try:
            with self.path.with_name(TORN_FILE).open("ab") as torn:
                torn.write(line)
            os.ftruncate(self._file, end)
        except OSError as error:
            raise _unusable(self.path, error) from error


def _record(line: bytes) -> dict[str, Any] | None:
    """The object of a whole line; None for a damaged one."""
    crc, space, text = line.rstrip(b"\n")[:8], line[8:9], line.rstrip(b"\n")[9:]
    try:
        if space != b" " or int(crc, 16) != zlib.crc32(text):
            return None
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _unusable(path: Path, error: OSError) -> RunError:
    reason = error.strerror or str(error)
    return RunError(f"{path} cannot be written: {reason}; make room or use another --out. Answers kept before stay.")
