"""Joins Parquet files of one schema without decoding them: their bytes one after another, and one footer."""

from __future__ import annotations

from typing import IO, Final

from .footers import moved

_MAGIC: Final = b"PAR1"
_END: Final = 8  # length of the footer, and the magic number
_STRUCT, _ROWS, _GROUPS = (
    0x0C,
    0x16,
    0x19,
)  # heads of fields: struct, rows (behind the schema), row groups (behind them)
_MANY: Final = 0xF0  # a list of 15 elements or more has their number behind this


class JoinedFiles:
    """Writes into `stream` a Parquet file with the row groups of others, in order, and the metadata of the first."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._end, self._rows, self._count = len(_MAGIC), 0, 0
        self._groups: list[bytes] = []
        self._schema = self._rest = b""
        stream.write(_MAGIC)

    def add(self, content: bytes) -> None:
        """Adds a whole file. Raises ValueError for one that is none, or has another schema than the first."""
        start = len(content) - _END - int.from_bytes(content[-_END:-4], "little")
        if content[:4] != _MAGIC or content[-4:] != _MAGIC or start < len(_MAGIC):
            raise ValueError("it is no Parquet file")
        footer = moved(content[start:-_END], self._end - len(_MAGIC), self._count)
        if not self._groups:
            self._schema, self._rest = footer.schema, footer.rest
        elif footer.schema != self._schema:
            raise ValueError("it has other columns than the first part")
        self._groups.append(footer.groups)
        self._rows += footer.rows
        self._count += footer.number
        self._end += self._stream.write(memoryview(content)[len(_MAGIC) : start])

    def finish(self) -> None:
        """Writes the footer; at least one file was added."""
        few = self._count < 15
        head = bytes([self._count << 4 | _STRUCT]) if few else bytes([_MANY | _STRUCT]) + _varint(self._count)
        rows = bytes([_ROWS]) + _varint(2 * self._rows)
        footer = b"".join([self._schema, rows, bytes([_GROUPS]), head, *self._groups, self._rest])
        self._stream.write(footer + len(footer).to_bytes(4, "little") + _MAGIC)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
