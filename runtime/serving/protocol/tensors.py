"""Tensors of the Open Inference Protocol and their raw bytes."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .request_errors import BadRequest

DATATYPES: Final[dict[str, str]] = {
    "BOOL": "?",
    "UINT8": "u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
"""V2 datatype -> NumPy's; BYTES, whose elements differ in length, is not among them."""

MOST_ITEMS: Final = 1 << 14
"""Maximum elements of a BYTES tensor: files, names, texts. Each takes some time, even a short one."""

MOST_AXES = 8
_MOST_ELEMENTS = 1 << 31


@dataclass(frozen=True, eq=False)
class Tensor:
    """`array` has the tensor's shape; a BYTES tensor is an object array of bytes."""

    name: str
    datatype: str
    array: NDArray[Any]


def check_shape(name: str, shape: object) -> tuple[int, ...]:
    """The shape as a tuple. Raises BadRequest unless it is a list of at most 8 integers, none negative."""
    if not isinstance(shape, list | tuple) or len(shape) > MOST_AXES:
        raise BadRequest(f"The shape of '{name}' must be a list of at most {MOST_AXES} whole numbers.")
    sizes = tuple(shape)
    for size in sizes:
        if type(size) is not int or not 0 <= size < _MOST_ELEMENTS:
            raise BadRequest(f"The shape of '{name}' must hold whole numbers that are not negative.")
    if math.prod(sizes) >= _MOST_ELEMENTS:
        raise BadRequest(f"The shape of '{name}' has too many elements.")
    return sizes


def check_items(name: str, count: int) -> None:
    """Raises BadRequest when a BYTES tensor has more elements than the limit."""
    if count > MOST_ITEMS:
        raise BadRequest(f"'{name}' has {count} elements; a BYTES tensor may have {MOST_ITEMS}.")


def check_input(name: str, datatype: str, parameters: Iterable[str]) -> None:
    """Raises BadRequest for a datatype that V2 does not define, and for a tensor in shared memory."""
    if datatype != "BYTES" and datatype not in DATATYPES:
        raise BadRequest(f"The datatype '{datatype[:40]}' of '{name}' is not one of {', '.join(DATATYPES)}, BYTES.")
    if any(key.startswith("shared_memory") for key in parameters):
        raise BadRequest("Shared memory is not supported; send the tensor itself.")


def check_count(name: str, count: int, shape: tuple[int, ...]) -> None:
    """Raises BadRequest unless `count` elements fill the shape."""
    if count != math.prod(shape):
        raise BadRequest(f"'{name}' has {count} elements, its shape {list(shape)} takes {math.prod(shape)}.")


def bytes_array(items: Sequence[bytes]) -> NDArray[Any]:
    """The elements of a BYTES tensor, [N] of objects: NumPy's own byte strings would drop zero bytes at their end."""
    array = np.empty(len(items), object)
    array[:] = items
    return array


def raw_to_array(name: str, datatype: str, shape: object, raw: bytes | memoryview) -> NDArray[Any]:
    """The array of a tensor from its raw bytes: row-major, little-endian; each element of BYTES is preceded by its
    length, a 32-bit number. `datatype` is one that `check_input` accepts. Raises BadRequest as `check_shape`, and when
    the bytes do not fit the shape."""
    sizes = check_shape(name, shape)
    if datatype == "BYTES":
        check_items(name, math.prod(sizes))
        return bytes_array(_split(name, memoryview(raw), math.prod(sizes))).reshape(sizes)
    dtype = np.dtype(DATATYPES[datatype])
    wanted = math.prod(sizes) * dtype.itemsize
    if len(raw) != wanted:
        raise BadRequest(f"'{name}' has {len(raw)} bytes, {datatype} {list(sizes)} takes {wanted}.")
    return np.frombuffer(raw, dtype).reshape(sizes)


def array_to_raw(tensor: Tensor) -> bytes:
    """The raw bytes of a tensor, as `raw_to_array` reads them."""
    if tensor.datatype == "BYTES":
        return b"".join(struct.pack("<I", len(item)) + item for item in tensor.array.reshape(-1))
    return np.ascontiguousarray(tensor.array, DATATYPES[tensor.datatype]).tobytes()


def _split(name: str, raw: memoryview, count: int) -> list[bytes]:
    if count * 4 > len(raw):
        raise BadRequest(f"'{name}' has {len(raw)} bytes, too few for {count} elements with their lengths.")
    items: list[bytes] = []
    position = 0
    for _ in range(count):
        if position + 4 > len(raw):
            raise BadRequest(f"'{name}' ends within the length of element {len(items)}.")
        (length,) = struct.unpack_from("<I", raw, position)
        position += 4
        if position + length > len(raw):
            raise BadRequest(f"Element {len(items)} of '{name}' says {length} bytes, {len(raw) - position} are left.")
        items.append(bytes(raw[position : position + length]))
        position += length
    if position != len(raw):
        raise BadRequest(f"'{name}' has {len(raw) - position} bytes beyond its {count} elements.")
    return items
