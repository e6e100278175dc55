"""Joins Parquet files of one schema without decoding them: their bytes one after another, and one footer.

A footer is a struct of Thrift's compact protocol. Only the places of row groups and columns, the numbers of the groups
and of the rows change; the other bytes are copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Final

__all__ = ["JoinedFiles"]

_MAGIC: Final = b"PAR1"
_END: Final = 8  # length of the footer, and the magic number
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12  # types of Thrift
_INTEGERS = 4, 5, 6
_LONG: Final = 0xF0  # a list of 15 elements or more has their number behind this
_ROWS, _GROUPS = 3, 4  # fields of a footer; the version and the schema are before them
_COLUMNS, _GROUP_PLACE, _ORDINAL = 1, 5, 7  # of a row group
_COLUMN_PLACES, _META = (2, 4, 6), 3  # of a column
_META_PLACES: Final = (9, 10, 11, 14)


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
        try:
            footer = _Footer(content[start:-_END], self._end - len(_MAGIC), self._count)
        except IndexError:
            raise ValueError("its footer is cut off") from None
        if not self._groups:
            self._schema, self._rest = footer.schema, footer.rest
        elif footer.schema != self._schema:
            raise ValueError("it has other columns than the first part")
        self._groups.append(footer.groups)
        self._rows += footer.rows
        self._count += footer.count
        self._end += self._stream.write(memoryview(content)[len(_MAGIC) : start])

    def finish(self) -> None:
        """Writes the footer; at least one file was added."""
        count = _LONG | _STRUCT, *_varint(self._count)
        head = bytes([self._count << 4 | _STRUCT]) if self._count < 15 else bytes(count)
        rows = bytes([0x10 | _INTEGERS[-1]]) + _varint(2 * self._rows)
        footer = b"".join([self._schema, rows, bytes([0x10 | _LIST]), head, *self._groups, self._rest])
        self._stream.write(footer + len(footer).to_bytes(4, "little") + _MAGIC)


class _Footer:
    """The parts of a footer: `schema`: the bytes before the number of `rows`; `groups`: the `count` row groups, moved
    by `shift` bytes and numbered from `first` on; `rest`: the bytes after them. Raises IndexError, ValueError."""

    def __init__(self, data: bytes, shift: int, first: int) -> None:
        self._data, self._at, self._shift = data, 0, shift
        self.rows = self.count = 0
        self.groups = self.schema = b""
        begin_of_rest = 0
        for field, kind, begin in self._fields():
            if field == _ROWS:
                self.schema = data[:begin]
                self.rows = self._varint() >> 1
            elif field == _GROUPS and kind == _LIST:
                self.count = self._length()
                self.groups = b"".join(self._group(first + number) for number in range(self.count))
                begin_of_rest = self._at
            else:
                self._skip(kind)
        if not self.count or self._at != len(data):
            raise ValueError("its footer is none of row groups")
        self.rest = data[begin_of_rest:]

    def _group(self, ordinal: int) -> bytes:
        """A row group with other places and another number."""
        self._out: list[bytes] = []
        self._kept = self._at
        for field, kind, _ in self._fields():
            if field == _COLUMNS and kind == _LIST:
                for _ in range(self._length()):
                    self._column()
            elif field == _GROUP_PLACE:
                self._move()
            elif field == _ORDINAL:
                self._replace(2 * ordinal)
            else:
                self._skip(kind)
        self._out.append(self._data[self._kept : self._at])
        return b"".join(self._out)

    def _column(self) -> None:
        for field, kind, _ in self._fields():
            if field == _META and kind == _STRUCT:
                for inner, inner_kind, _ in self._fields():
                    if inner in _META_PLACES:
                        self._move()
                    else:
                        self._skip(inner_kind)
            elif field in _COLUMN_PLACES:
                self._move()
            else:
                self._skip(kind)

    def _move(self) -> None:
        """Moves a place; 0 says that a file has none."""
        begin = self._at
        found = self._varint()
        if found:
            self._at = begin
            self._replace(found + 2 * self._shift)

    def _replace(self, value: int) -> None:
        self._out.append(self._data[self._kept : self._at])
        self._varint()
        self._out.append(_varint(value))
        self._kept = self._at

    def _fields(self) -> Iterator[tuple[int, int, int]]:
        """Number, type and first byte of each field of a struct; the reader is then at the field's value."""
        data, field = self._data, 0
        while True:
            begin, head = self._at, data[self._at]
            self._at += 1
            if not head:
                return
            if head >> 4:
                field += head >> 4
            else:
                number = self._varint()
                field = (number >> 1) ^ -(number & 1)
            yield field, head & 15, begin

    def _varint(self) -> int:
        data, at = self._data, self._at
        byte = data[at]
        at += 1
        found, bits = byte & 127, 7
        while byte & 128:
            byte = data[at]
            at += 1
            found |= (byte & 127) << bits
            bits += 7
        self._at = at
        return found

    def _length(self) -> int:
        """The number of elements of a list."""
        head = self._data[self._at]
        self._at += 1
        return head >> 4 if head < _LONG else self._varint()

    def _skip(self, kind: int) -> None:
        if kind in _INTEGERS:
            data, at = self._data, self._at
            while data[at] & 128:
                at += 1
            self._at = at + 1
        elif kind == _BINARY:
            size = self._varint()
            self._at += size
        elif kind == _STRUCT:
            for _, inner, _ in self._fields():
                self._skip(inner)
        elif kind in (_LIST, _SET):
            inner = self._data[self._at] & 15
            for _ in range(self._length()):
                self._skip(_BYTE if inner in (_TRUE, _FALSE) else inner)
        elif kind == _DOUBLE:
            self._at += 8
        elif kind == _BYTE:
            self._at += 1
        elif kind not in (_TRUE, _FALSE):
            raise ValueError(f"its footer holds a value of type {kind}")


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
