"""Writes the two parts of an image graph as ONNX files in memory, without the package onnx, which engines do not need.

A part is the file's own fields in their wire format: whole nodes and weights are copied, and no weight is decoded.
Field numbers are from onnx.proto.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..external_data import wire_fields
from .graph_cut import Cut, find_cut

_GRAPH: Final = 7  # of a model
_NODE, _INITIALIZER, _INPUT, _OUTPUT, _VALUE = 1, 5, 11, 12, 13  # of a graph
_ELEMENTS: Final = {
    "float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "double": 11, "uint32": 12, "uint64": 13, "bfloat16": 16,
}  # fmt: skip
"""TensorProto.DataType of ONNX Runtime's names of types."""

Data = bytes | mmap.mmap


@dataclass(frozen=True)
class _WireNode:
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    content: tuple[int, int]


class GraphParts:
    """A graph that falls apart at `cut`. The parts read the weights of `data` and, where it has external data, of the
    folder of its file."""

    def __init__(self, data: Data, nodes: Sequence[_WireNode], graph: tuple[int, int], cut: Cut) -> None:
        self._data, self._nodes, self._graph, self.cut = data, nodes, graph, cut

    @staticmethod
    def of(graph: Path | bytes) -> GraphParts | None:
        """The parts of a graph in a file, or of its bytes; None where it does not fall apart. Raises OSError."""
        data: Data = graph if isinstance(graph, bytes) else _mapped(graph)
        span = next((first, last) for field, first, last, _ in wire_fields(data, 0, len(data)) if field == _GRAPH)
        nodes = [_node(data, first, last) for field, first, last, _ in wire_fields(data, *span) if field == _NODE]
        cut = find_cut(nodes)
        return None if cut is None else GraphParts(data, nodes, span, cut)

    def image(self) -> bytes:
        """Pixels -> the features, in order. Their types are left out; a runtime infers them."""
        return self._part(self.cut.image, [_field(1, name.encode()) for name in self.cut.features], ())

    def text(self, features: Sequence[Any]) -> bytes:
        """The features, the text, and the pixels if it asks for their shape -> logits and saliency.

        features: what ONNX Runtime says of the outputs of the image part, each with a name, a type and a shape.
        """
        return self._part(self.cut.text, None, [_value(item.name, item.type, item.shape) for item in features])

    def _part(self, places: frozenset[int], outputs: Sequence[bytes] | None, given: Sequence[bytes]) -> bytes:
        """The nodes at `places`, with the inputs of the graph that they read, those that are `given`, and `outputs`;
        None: those of the graph."""
        data, kept, node = self._data, list[bytes](), iter(range(len(self._nodes)))
        made = {name for place in places for name in self._nodes[place].outputs}
        read = {name for place in places for name in self._nodes[place].inputs}
        stays: dict[int, Callable[[int, int], bool]] = {
            _NODE: lambda first, last: next(node) in places,
            _INITIALIZER: lambda first, last: _text(data, first, last, 8) in read,
            _INPUT: lambda first, last: _text(data, first, last, 1) in read,
            _OUTPUT: lambda first, last: outputs is None,
            _VALUE: lambda first, last: _text(data, first, last, 1) in made,
        }
        for field, first, last, _ in wire_fields(data, *self._graph):
            stay = stays.get(field)
            if first and (stay is None or stay(first, last)):
                kept.append(_field(field, data[first:last]))
        kept += [_field(_INPUT, value) for value in given]
        kept += [_field(_OUTPUT, value) for value in outputs or ()]
        graph = b"".join(kept)
        del kept
        model = [
            _field(field, graph) if field == _GRAPH else _field(field, data[first:last]) if first
            else _number(field << 3) + _number(value)
            for field, first, last, value in wire_fields(data, 0, len(data))
        ]  # fmt: skip
        return b"".join(model)


def _mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def _node(data: Data, start: int, end: int) -> _WireNode:
    inputs, outputs, operator = list[str](), list[str](), ""
    for field, first, last, _ in wire_fields(data, start, end):
        if field in (1, 2):
            (inputs if field == 1 else outputs).append(data[first:last].decode())
        elif field == 4:
            operator = data[first:last].decode()
        elif field == 5:
            inputs.extend(_read_inside(data, first, last))
    return _WireNode(operator, tuple(inputs), tuple(outputs), (start, end))


def _read_inside(data: Data, start: int, end: int) -> Iterator[str]:
    """The names that the graphs of an attribute read; some are of values that they make themselves."""
    for field, first, last, _ in wire_fields(data, start, end):
        if field == 6 and first:
            for part, begin, stop, _ in wire_fields(data, first, last):
                if part == _NODE:
                    yield from _node(data, begin, stop).inputs
                elif part == _OUTPUT:
                    yield _text(data, begin, stop, 1)


def _text(data: Data, start: int, end: int, wanted: int) -> str:
    """The text in the field `wanted` of a message; empty if it has none."""
    for field, first, last, _ in wire_fields(data, start, end):
        if field == wanted:
            return data[first:last].decode()
    return ""


def _value(name: str, kind: str, shape: Sequence[Any]) -> bytes:
    """A ValueInfoProto of ONNX Runtime's words: "tensor(float)", and lengths, names or None of axes."""
    axes = b"".join(_field(1, _axis(axis)) for axis in shape)
    element = _ELEMENTS[kind.removeprefix("tensor(").removesuffix(")")]
    tensor = _number(1 << 3) + _number(element) + _field(2, axes)
    return _field(1, name.encode()) + _field(2, _field(1, tensor))


def _axis(axis: int | str | None) -> bytes:
    if isinstance(axis, int):
        return _number(1 << 3) + _number(axis)
    return _field(2, axis.encode()) if axis else b""


def _field(number: int, content: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(content)) + content


def _number(value: int) -> bytes:
    """A varint."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
