"""Joins Parquet files of one schema without decoding them: their bytes one after another, and one footer.

pyarrow can only decode the rows and encode them again. The whole loop around an engine then took 1.29 times the
processor time and 1.41 times as long (benchmarks/host_loop.py, 8,000 images, 2 cores). A thread of its own cannot hide
this, because the loop already fills both cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol

_MAGIC: Final = b"PAR1"
_END: Final = 8  # bytes of the footer's length and of the magic number behind it

# Types of Thrift's compact protocol, in which a footer is written.
_TRUE, _FALSE, _BYTE, _LONG, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 6, 7, 8, 9, 10, 12
_WIDEST: Final = 63  # bits of a number before its last byte

# Fields of parquet.thrift that change, or lead to one that does.
_ROWS, _GROUPS = 3, 4  # of FileMetaData
_COLUMNS, _GROUP_OFFSET, _ORDINAL = 1, 5, 7  # of RowGroup
_META, _COLUMN_OFFSETS = 3, (2, 4, 6)  # of ColumnChunk
_PAGE_OFFSETS: Final = (9, 10, 11, 14)  # of ColumnMetaData

Struct = dict[int, tuple[int, Any]]
"""Number of a field -> its type and value: a number as it is stored, bytes, a list's type and elements, a struct."""


class Writable(Protocol):
    """A stream of bytes that are written in order."""

    def write(self, data: bytes | memoryview, /) -> int: ...


class ParsedFile(NamedTuple):
    """A Parquet file: its bytes, the place of its footer, and the footer."""

    content: bytes
    start: int
    footer: Struct

    @staticmethod
    def of(content: bytes) -> ParsedFile:
        """Reads the footer of a file. Raises ValueError for one that is none."""
        start = len(content) - _END - int.from_bytes(content[-_END:-4], "little")
        if content[:4] != _MAGIC or content[-4:] != _MAGIC or start < len(_MAGIC):
            raise ValueError("it is no Parquet file")
        with _footer_errors():
            return ParsedFile(content, start, _read_footer(content[start:-_END]))


@contextmanager
def _footer_errors() -> Iterator[None]:
    """Raises ValueError where a field of a footer has another type than it must have."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, RecursionError):
        raise ValueError("its footer is cut off, or none of row groups") from None


class JoinedFiles:
    """Writes into `stream` a Parquet file with the row groups of others, in order, and the metadata of the first."""

    def __init__(self, stream: Writable) -> None:
        self._stream = stream
        self._end = stream.write(_MAGIC)
        self._footer: Struct = {}

    def add(self, file: ParsedFile) -> None:
        """Adds a whole file. Raises ValueError for one with another schema than the first."""
        content, start, footer = file
        first = self._footer
        with _footer_errors():
            _move(footer, self._end - len(_MAGIC), len(first[_GROUPS][1][1]) if first else 0)
            if first and any(footer[field] != first[field] for field in first if field < _ROWS):
                raise ValueError("it has other columns than the first part")
            if first:
                first[_ROWS] = _LONG, _shifted(first[_ROWS][1], footer[_ROWS][1] >> 1)
                first[_GROUPS][1][1].extend(footer[_GROUPS][1][1])
        self._footer = first or footer
        self._end += self._stream.write(memoryview(content)[len(_MAGIC) : start])

    def finish(self) -> None:
        """Writes the footer; at least one file was added."""
        footer = bytearray()
        _write(footer, _STRUCT, self._footer)
        self._stream.write(bytes(footer) + len(footer).to_bytes(4, "little") + _MAGIC)


def _move(footer: Struct, shift: int, first: int) -> None:
    """Moves the row groups of a footer by `shift` bytes, and numbers them from `first` on."""
    groups = footer[_GROUPS][1][1]
    if not groups or footer[_ROWS][0] != _LONG:
        raise LookupError
    for number, group in enumerate(groups, first):
        _move_fields(group, (_GROUP_OFFSET,), shift)
        if _ORDINAL in group:
            group[_ORDINAL] = group[_ORDINAL][0], number << 1
        for column in group[_COLUMNS][1][1]:
            _move_fields(column, _COLUMN_OFFSETS, shift)
            _move_fields(column[_META][1], _PAGE_OFFSETS, shift)


def _move_fields(struct: Struct, fields: tuple[int, ...], shift: int) -> None:
    for field in fields:
        field_type, offset = struct.get(field, (0, 0))
        if offset:  # 0: the writer states no place
            struct[field] = field_type, _shifted(offset, shift)


def _shifted(stored: int, shift: int) -> int:
    """A number larger by `shift`; a number that is not negative is stored doubled."""
    return stored + 2 * shift


def _read_footer(data: bytes) -> Struct:
    footer, end = _read(data, 0, _STRUCT)
    if end != len(data):
        raise LookupError
    return footer  # type: ignore[no-any-return]


def _read(data: bytes, at: int, field_type: int) -> tuple[Any, int]:
    """The value of this type that begins at `at`, and the place behind it. Raises LookupError where the data end."""
    if field_type == _STRUCT:
        return _read_struct(data, at)
    if _BYTE < field_type <= _LONG:
        return _read_number(data, at)
    if field_type in (_LIST, _SET):
        head, at = data[at], at + 1
        count = head >> 4
        if count == 15:
            count, at = _read_number(data, at)
        elements = []
        for _ in range(count):
            element, at = _read(data, at, max(head & 15, _BYTE))  # a truth value of a list is a byte
            elements.append(element)
        return (head & 15, elements), at
    if field_type == _BINARY:
        size, at = _read_number(data, at)
    elif field_type in (_BYTE, _DOUBLE):
        size = 1 if field_type == _BYTE else 8
    else:
        raise LookupError
    if at + size > len(data):
        raise LookupError
    return data[at : at + size], at + size


def _read_struct(data: bytes, at: int) -> tuple[Struct, int]:
    struct: Struct = {}
    field = 0
    while (head := data[at]) != 0:
        at += 1
        if head > 15:
            field += head >> 4
        else:
            number, at = _read_number(data, at)
            field = (number >> 1) ^ -(number & 1)
        field_type, value = head & 15, None
        if field_type not in (_TRUE, _FALSE):  # whose type is the value
            value, at = _read(data, at, field_type)
        struct[field] = field_type, value
    return struct, at + 1


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    number = bits = 0
    while (byte := data[at]) > 127:
        number |= (byte & 127) << bits
        at, bits = at + 1, bits + 7
        if bits > _WIDEST:
            raise LookupError
    return number | byte << bits, at + 1


def _write(out: bytearray, field_type: int, value: Any) -> None:
    """Appends a value as `_read` gives it."""
    if field_type == _STRUCT:
        before = 0
        for field, (inner, content) in value.items():
            if 0 < field - before < 16:
                out.append(field - before << 4 | inner)
            else:
                out.append(inner)
                _write_number(out, field << 1 ^ field >> 63)
            if content is not None:
                _write(out, inner, content)
            before = field
        out.append(0)
    elif field_type in (_LIST, _SET):
        inner, elements = value
        if len(elements) < 15:
            out.append(len(elements) << 4 | inner)
        else:
            out.append(0xF0 | inner)
            _write_number(out, len(elements))
        for element in elements:
            _write(out, max(inner, _BYTE), element)
    elif _BYTE < field_type <= _LONG:
        _write_number(out, value)
    else:
        if field_type == _BINARY:
            _write_number(out, len(value))
        out += value


def _write_number(out: bytearray, number: int) -> None:
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
