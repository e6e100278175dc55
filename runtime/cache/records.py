"""The record of a case in a store: its state, native size, checksum, and the state and hash of its image file."""

from __future__ import annotations

import hashlib
import struct
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


def checked(record: bytes, content: NDArray[np.uint8] | str | None) -> bytes:
    """A record with the checksum of it and its content: pixels, or the text of a reason."""
    from .checksums import checksum  # compiles

    if isinstance(content, str):
        data = hashlib.sha256(content.encode(errors="surrogatepass")).digest()
    else:
        data = b"" if content is None else content.tobytes()
    words = np.frombuffer(data.ljust(-(-len(data) // 8) * 8, b"\0"), np.uint32)
    check = int(checksum(np.frombuffer(record, np.uint32), words)).to_bytes(4, "little")
    return record[: _CHECK.start] + check + record[_CHECK.stop :]


def is_whole(record: bytes, content: NDArray[np.uint8] | str | None) -> bool:
    """Whether a record and its content are those that were written."""
    return record == checked(record, content)
