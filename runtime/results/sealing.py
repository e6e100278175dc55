"""The checksum of a result file, kept in the file's own footer: it covers every bit of the file.

A file is written with 64 zeros in place of its checksum. The checksum is the SHA-256 of that file, and then replaces
the zeros. It stays with the file when run.json is lost, and when a shard is copied.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import IO, Final

from ...engines.errors import RunError

__all__ = ["BLANK", "checksum_fault", "seal"]

_FIELD: Final = b"xbench_checksum"
_PREFIX: Final = b"sha256:"
_ZEROS: Final = b"0" * 64
BLANK: Final = {_FIELD: _PREFIX + _ZEROS}
"""Metadata with which a file is written before `seal`."""
_TAIL: Final = 1 << 16  # the metadata are at the very end of a footer, and take about 3 kB
_BLOCK: Final = 1 << 20


def seal(path: Path) -> None:
    """Writes the checksum into a file that was written with `BLANK`. Raises OSError, RunError."""
    with path.open("rb+") as stream:
        place, _ = _find(stream)
        if place is None:
            raise RunError(f"{path} was written without room for its checksum; report this as a bug.")
        checksum = _digest(stream, place)
        stream.seek(place)
        stream.write(checksum)


def checksum_fault(path: Path) -> str:
    """Why a result file is damaged, in words; empty if it is whole, or has no checksum (older versions).

    Reads the whole file. Raises OSError.
    """
    with path.open("rb") as stream:
        place, promised = _find(stream)
        if not promised:
            return ""
        if place is None:
            return "its checksum cannot be read"
        stream.seek(place)
        stored = stream.read(len(_ZEROS))
        return "" if stored == _digest(stream, place) else "its checksum does not match"


def _find(stream: IO[bytes]) -> tuple[int | None, bool]:
    """The place of the checksum's digits, and whether the footer says that there is a checksum."""
    start = max(0, stream.seek(0, 2) - _TAIL)
    stream.seek(start)
    footer = stream.read()
    found = [match.end() for match in re.finditer(_PREFIX + rb"(?=[0-9a-f]{64})", footer)]
    return (start + found[-1] if found else None), bool(found) or _FIELD in footer


def _digest(stream: IO[bytes], place: int) -> bytes:
    """The checksum of the file, as text, with zeros instead of the digits at `place`."""
    sha = hashlib.sha256()
    stream.seek(0)
    left = place
    while left > 0 and (block := stream.read(min(left, _BLOCK))):
        sha.update(block)
        left -= len(block)
    sha.update(_ZEROS)
    stream.seek(place + len(_ZEROS))
    while block := stream.read(_BLOCK):
        sha.update(block)
    return sha.hexdigest().encode()
