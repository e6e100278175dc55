"""Which other files an ONNX graph reads: the locations of external data in its tensors.

Read from the wire format of Protocol Buffers, field by field and without the package onnx, which engines do not need:
a file of any size is checked before an engine opens it. Field numbers are from onnx.proto.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

# Message -> its fields that can hold a tensor, and of what message they are.
_FIELDS: Final[Mapping[str, Mapping[int, str]]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
}
_EXTERNAL_DATA, _DATA_LOCATION, _EXTERNAL = 13, 14, 1  # of a tensor; value of data_location
_VARINT, _CONTENT, _GROUP, _END_OF_GROUP = 0, 2, 3, 4  # kinds of fields on the wire
_WIDTHS: Final[Mapping[int, int]] = {1: 8, 5: 4}  # bytes of the other kinds
_KEY, _VALUE = 1, 2  # of an entry of external data
_WORD: Final = 0xFFFFFFFF  # parsers keep so many bits of a tag and of the value of an enumeration
_DEEPEST: Final = 200  # messages in messages; parsers of Protocol Buffers refuse more than 100


class DamagedMessage(ValueError):
    """Bytes that are no message; no engine reads this file either."""


def external_locations(graph: Path) -> list[str]:
    """The locations, each once, as they stand in the file; an empty text for external data without one.

    Empty for a file that is no ONNX graph. Raises OSError.
    """
    if not graph.stat().st_size:
        return []
    locations: dict[str, None] = {}
    with graph.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            for location in _locations(data, 0, len(data), "model", 0):
                locations.setdefault(location)
        except DamagedMessage:
            pass
    return list(locations)


def _locations(data: mmap.mmap, start: int, end: int, message: str, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        raise DamagedMessage
    if message == "tensor":
        yield from _of_tensor(data, start, end)
        return
    inner = _FIELDS[message]
    for field, first, last, _ in wire_fields(data, start, end):
        if field in inner and first < last:
            yield from _locations(data, first, last, inner[field], depth + 1)


def _of_tensor(data: mmap.mmap, start: int, end: int) -> Iterator[str]:
    entries, external = [], False
    for field, first, last, value in wire_fields(data, start, end):
        if field == _EXTERNAL_DATA and first < last:
            entries.append((first, last))
        elif field == _DATA_LOCATION:
            external = value & _WORD == _EXTERNAL  # the last one counts
    if not external:
        return
    named = False
    for first, last in entries:
        texts = {_KEY: b"", _VALUE: b""}
        for field, begin, stop, _ in wire_fields(data, first, last):
            if field in texts:
                texts[field] = data[begin:stop]
        if texts[_KEY] == b"location":
            named = True
            yield texts[_VALUE].decode("utf-8", "surrogateescape")
    if not named:
        yield ""


def wire_fields(data: mmap.mmap | bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, place and end of the content, and value, of each field of a message: a value has no content, a content
    no value. Raises DamagedMessage."""
    at, groups = start, 0  # the fields of a group are of another message
    while at < end:
        tag, at = _number(data, at, end)
        wire_type, field, first, value = tag & 7, (tag & _WORD) >> 3, 0, 0
        if wire_type == _VARINT:
            value, at = _number(data, at, end)
        elif wire_type == _CONTENT:
            size, first = _number(data, at, end)
            at = first + size
        elif wire_type in (_GROUP, _END_OF_GROUP):
            groups += 1 if wire_type == _GROUP else -1
        elif wire_type in _WIDTHS:
            at += _WIDTHS[wire_type]
        else:
            raise DamagedMessage
        if at > end or groups < 0:
            raise DamagedMessage
        if not groups and wire_type in (_VARINT, _CONTENT):
            yield field, first, at if wire_type == _CONTENT else 0, value


def _number(data: mmap.mmap | bytes, at: int, end: int) -> tuple[int, int]:
    """A varint and the place after it."""
    value = 0
    for position in range(at, min(at + 10, end)):
        byte = data[position]
        value |= (byte & 127) << (7 * (position - at))
        if byte < 128:
            return value, position + 1
    raise DamagedMessage
