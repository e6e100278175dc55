"""Moves the row groups of a Parquet file's footer; compiled, because a merge moves every column of every part.

A footer is a struct of Thrift's compact protocol. Only the places of row groups and columns and the numbers of the
groups change; the other bytes are copied.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...metrics_gpu.compiled import compiled

_TRUE, _FALSE, _BYTE, _LONG, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 6, 7, 8, 9, 10, 12  # types of Thrift
_FOOTER, _GROUP, _COLUMN, _META, _OTHER = range(5)  # structs; in the first four something moves
_MOST: Final = 16  # fields of a struct
_INSIDE: Final = 4, 1, 3  # by struct: the field with the next one: groups, columns, metadata
_ROWS: Final = _MOST * _FOOTER + 3  # the version and the schema are before it
_ORDINAL: Final = _MOST * _GROUP + 7
_PLACES: Final = np.zeros(5 * _MOST, np.bool_)
_PLACES[[_MOST * _GROUP + 5, *(_MOST * _COLUMN + at for at in (2, 4, 6))]] = True
_PLACES[[_MOST * _META + at for at in (9, 10, 11, 14)]] = True
_CUT: Final = -1  # instead of a place: the data end, or hold what no footer does
_WIDEST: Final = 10  # bytes of a number
_LEVELS: Final = 32  # of structs and lists

# What a walk knows and notes: by how much places move; the first byte that is not copied, the bytes of the copy, the
# number of the group; of the footer the end of its schema, its rows, the number of its groups, and where they end.
_SHIFT, _KEPT, _COPIED, _NUMBER, _SCHEMA, _TOTAL, _COUNT, _END = range(8)


def _number(data: Any, at: Any) -> Any:
    """A number, and the place behind it."""
    found, bits = np.int64(0), 0
    while 0 <= at < len(data) and bits < 7 * _WIDEST:
        byte = np.int64(data[at])
        at += 1
        found |= (byte & 127) << bits
        if byte < 128:
            return found, at
        bits += 7
    return np.int64(0), _CUT


_number_c = compiled(_number)


def _field(data: Any, at: Any, last: Any) -> Any:
    """Number and type of the field behind the field `last`, and the place of its value; type 0 ends a struct."""
    if not 0 <= at < len(data):
        return 0, 0, _CUT
    head = np.int64(data[at])
    at += 1
    if head > 15 or not head:
        return last + (head >> 4), head & 15, at
    found, at = _number_c(data, at)
    return (found >> 1) ^ -(found & 1), head, at


_field_c = compiled(_field)


def _elements(data: Any, at: Any) -> Any:
    """Number and type of the elements of a list, and the place of the first one."""
    if not 0 <= at < len(data):
        return 0, 0, _CUT
    head = np.int64(data[at])
    if head < 0xF0:
        return head >> 4, head & 15, at + 1
    count, at = _number_c(data, at + 1)
    return count, head & 15, at


_elements_c = compiled(_elements)


def _copy(data: Any, stop: Any, out: Any, noted: Any) -> None:
    for at in range(noted[_KEPT], stop):
        out[noted[_COPIED]] = data[at]
        noted[_COPIED] += 1
    noted[_KEPT] = stop


_copy_c = compiled(_copy)


def _replace(data: Any, at: Any, value: Any, out: Any, noted: Any) -> Any:
    """Copies what is before a number, and another one in its place; returns the place behind it."""
    _copy_c(data, at, out, noted)
    at = _number_c(data, at)[1]
    while value > 127:
        out[noted[_COPIED]] = value & 127 | 128
        noted[_COPIED] += 1
        value >>= 7
    out[noted[_COPIED]] = value
    noted[_COPIED] += 1
    noted[_KEPT] = at
    return at


_replace_c = compiled(_replace)


def _behind(data: Any, at: Any, kind: Any) -> Any:
    """The place behind a value that is no struct and no list."""
    if _TRUE <= kind <= _FALSE:
        return at
    if kind == _BYTE:
        return at + 1
    if _BYTE < kind <= _LONG:
        return _number_c(data, at)[1]
    if kind == _DOUBLE:
        return at + 8
    if kind == _BINARY:
        size, at = _number_c(data, at)
        return at + size if 0 <= size <= len(data) else _CUT
    return _CUT


_behind_c = compiled(_behind)


def _value(data: Any, at: Any, field: Any, kind: Any, out: Any, noted: Any) -> Any:
    """Copies the value of a field, or another one in its place; returns the place behind it."""
    found, behind = _number_c(data, at)
    if field == _ROWS:
        noted[_TOTAL] = found >> 1
        return behind
    if field == _ORDINAL:
        return _replace_c(data, at, 2 * noted[_NUMBER], out, noted)
    if _PLACES[field]:
        return _replace_c(data, at, found + 2 * noted[_SHIFT], out, noted) if found and behind >= 0 else behind
    return _behind_c(data, at, kind)


_value_c = compiled(_value)


def _walk(data: Any, out: Any, noted: Any) -> Any:
    """Copies the groups of a footer with their places moved; returns the place behind the footer."""
    # Open structs and lists, the footer first: what the struct is or the elements are, the last field of a struct, the
    # type of the elements of a list, and how many are left (-1: a struct).
    roles, fields, kinds, left = np.zeros((4, _LEVELS), np.int64)
    left[0], at, deep = -1, 0, 0
    while deep >= 0 and 0 <= at <= len(data):
        role, begin = roles[deep], at
        if left[deep] < 0:
            fields[deep], kind, at = _field_c(data, at, fields[deep])
            if not kind:
                deep -= 1
                noted[_NUMBER] += role == _GROUP
                continue
            if _MOST * role + fields[deep] == _ROWS:
                noted[_SCHEMA] = begin
            inner = role + 1 if role < _META and fields[deep] == _INSIDE[role] else _OTHER
        elif left[deep]:
            left[deep] -= 1
            kind, inner = kinds[deep], role
        else:
            deep -= 1
            if role == _GROUP:
                _copy_c(data, at, out, noted)
                noted[_END] = at
            continue
        if kind in (_STRUCT, _LIST, _SET):
            deep += 1
            if deep == _LEVELS:
                return _CUT
            roles[deep], fields[deep], left[deep] = inner, 0, -1
            if kind != _STRUCT:
                left[deep], kinds[deep], at = _elements_c(data, at)
                kinds[deep] = max(kinds[deep], _BYTE)  # a truth value is a byte here
                if inner == _GROUP:
                    noted[_COUNT], noted[_KEPT] = left[deep], at
        elif left[deep] < 0:
            field = fields[deep] if 0 <= fields[deep] < _MOST else 0
            at = _value_c(data, at, _MOST * role + field, kind, out, noted)
        else:
            at = _behind_c(data, at, kind)
    return at


_walk_c = compiled(_walk)


class Moved(NamedTuple):
    """Parts of a footer: the bytes before its `rows`, its `number` of row groups, and the bytes after them."""

    schema: bytes
    rows: int
    number: int
    groups: bytes
    rest: bytes


def moved(footer: bytes, shift: int, first: int) -> Moved:
    """The footer of a file whose row groups move by `shift` bytes and have numbers from `first` on; ValueError."""
    data, noted = np.frombuffer(footer, np.uint8), np.zeros(8, np.int64)
    out: NDArray[np.uint8] = np.empty(_WIDEST * len(data), np.uint8)
    noted[_SHIFT], noted[_NUMBER] = shift, first
    end = _walk_c(data, out, noted)
    if end != len(data) or noted[_COUNT] < 1 or noted[_END] < 1:
        raise ValueError("its footer is cut off, or none of row groups")
    groups = out[: noted[_COPIED]].tobytes()
    return Moved(footer[: noted[_SCHEMA]], noted[_TOTAL].item(), noted[_COUNT].item(), groups, footer[noted[_END] :])
