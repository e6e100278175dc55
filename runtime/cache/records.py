"""The record of a case in a store: its state, native size, checksum, and the state and hash of its image file."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..images.contents import HASH_BYTES, FileState

__all__ = ["EMPTY", "READY", "RECORD", "UNREADABLE", "CaseRecord", "checked", "is_whole"]

RECORD = np.dtype(
    [
        *((name, "<u4") for name in ("state", "height", "width", "check")),
        *((name, "<i8") for name in ("bytes", "mtime_ns", "ctime_ns")),
        ("inode", "<u8"),
        ("content", f"V{HASH_BYTES}"),
    ]
)
EMPTY, READY, UNREADABLE = 0, 1, 2
"""Values of a record's `state`."""
_FIELDS = struct.Struct(f"<4I3qQ{HASH_BYTES}s")  # as RECORD


class CaseRecord(NamedTuple):
    """A record of `RECORD`; `file`: the state of the image file, `content`: its hash."""

    state: int
    height: int
    width: int
    file: FileState
    content: bytes

    @staticmethod
    def of(written: bytes) -> CaseRecord:
        """The record that was written."""
        state, height, width, _, *file, content = _FIELDS.unpack(written)
        return CaseRecord(state, height, width, FileState(*file), content)


_CHECK = slice(RECORD.fields["check"][1], RECORD.fields["check"][1] + 4)  # type: ignore[index]


def _checksum(record: bytes, content: NDArray[np.uint8] | str | None) -> bytes:
    if content is None or isinstance(content, str):
        data: bytes | memoryview = (content or "").encode(errors="surrogatepass")
    else:
        data = np.ascontiguousarray(content).data
    facts = record[: _CHECK.start] + record[_CHECK.stop :]
    return zlib.crc32(facts, zlib.crc32(data)).to_bytes(4, "little")


def checked(record: bytes, content: NDArray[np.uint8] | str | None) -> bytes:
    """A record with the checksum of it and its content: pixels, or the text of a reason."""
    return record[: _CHECK.start] + _checksum(record, content) + record[_CHECK.stop :]


def is_whole(record: bytes, content: NDArray[np.uint8] | str | None) -> bool:
    """Whether a record and its content are those that were written, bit for bit."""
    return record[_CHECK] == _checksum(record, content)
