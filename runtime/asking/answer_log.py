"""The append-only log of answers: survives a kill at any moment, and is indexed without its texts (docs/ask.md §5)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...engines.errors import RunError
from ..host.record_file import RecordFile, decoded, read_lines

LOG_FILE: Final = "log.jsonl"
VERSION: Final = 1
KEPT: Final = ("answer", "truncated", "refused", "empty")
"""Kinds of records that are answers; a pair with another kind is asked again."""

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
            return decoded(stream.readline())

    def records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """(offset, record) of every whole line; a damaged one is left out."""
        for offset, _, record in read_lines(self.path):
            if record is not None:
                yield offset, record

    def _read(self) -> int:
        """Reads the index; the bytes of the log without a torn last line."""
        end = 0
        for offset, line, record in read_lines(self.path):
            if not line.endswith(b"\n"):
                self._tear(line, offset)
                return offset
            if record is None:
                self.damaged += 1
            elif not offset and _HEAD in record:
                self._check(record)
            else:
                self._note(record, offset)
            end = offset + len(line)
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
        with suppress(TypeError, ValueError, KeyError, OverflowError):
            if isinstance(key, str) and record.get("kind") in KEPT and isinstance(record["text"], str):
                record["text"].encode()  # half a surrogate pair is no text of a file
                digest = bytes.fromhex(key)
                self.repeated += digest in self.keys
                self.keys.setdefault(digest, offset)
                if isinstance(name := record.get("model"), str) and name not in self.models:
                    self.models.append(name)
            elif isinstance(image, str):
                bytes.fromhex(record["pixels"])
                size, original = ((int(w), int(h)) for w, h in (record["size"], record["original"]))
                known = ImageRecord(int(record["bytes"]), int(record["mtime_ns"]), record["pixels"], size, original)
                self.images[image, str(record["preparation"])] = known


class AnswerLog(KeptAnswers):
    """The log in `folder`, for the one process that writes it: a torn last line is moved to the file log.torn.

    Raises RunError.
    """

    def __init__(self, folder: Path, dialect: str) -> None:
        self._lock = threading.Lock()
        self._file = RecordFile(folder / LOG_FILE)
        super().__init__(folder, dialect)
        if not self._size:
            self.append({_HEAD: VERSION, "dialect": dialect})

    def append(self, record: Mapping[str, Any]) -> None:
        """Writes a record in one call. Raises RunError, e.g. for a full disk; what was written before stays."""
        with self._lock:
            length = self._file.append(record)
            self._note(record, self._size)
            self._size += length

    def sync(self) -> None:
        """Makes sure that the disk has what was written, if a second has passed."""
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def _tear(self, line: bytes, end: int) -> None:
        super()._tear(line, end)
        self._file.cut(line, end)
