"""Reads files that torch wrote, of any age, without running what they hold (see `inert_pickle`).

Three containers: the zip archive of `torch.save`, the older stream of pickles followed by the storages, and
TorchScript archives (OpenAI's CLIP files), of which only the object tree is read: `torch.jit.load` would compile the
program in them. The file is mapped, so that optimiser states (often twice the weights) use no memory.
"""

from __future__ import annotations

import io
import sys
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...engines.errors import CheckpointError
from .inert_pickle import Record, read_pickle

_LOCAL_HEADER = 30  # bytes before the name in a zip entry's local header
_MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of a file that torch wrote before version 1.6
_STORAGES = {
    "Double": torch.float64,
    "Float": torch.float32,
    "Half": torch.float16,
    "BFloat16": torch.bfloat16,
    "ComplexDouble": torch.complex128,
    "ComplexFloat": torch.complex64,
    "Long": torch.int64,
    "Int": torch.int32,
    "Short": torch.int16,
    "Char": torch.int8,
    "Byte": torch.uint8,
    "Bool": torch.bool,
    "Untyped": torch.uint8,
    "QInt8": torch.int8,
    "QUInt8": torch.uint8,
    "QInt32": torch.int32,
}
_MOST_TENSORS = 100_000  # of one module, with its modules, counting shared ones as often as they are named


def read_torch(path: Path) -> Any:
    """The content of the file at `path`: tensors, plain containers and values, and records of everything else.

    A TorchScript archive, and a module that was saved whole, are a dictionary of their tensors. Raises ValueError and
    other exceptions of damaged files.
    """
    if not zipfile.is_zipfile(path):
        return _plain(_read_stream(path))
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        data = next(name for name in names if name == "data.pkl" or name.endswith("/data.pkl"))
        root = data.removesuffix("data.pkl")
        if f"{root}byteorder" in names and _record(archive, f"{root}byteorder") != b"little":
            raise ValueError("it was written on a big-endian machine")
        storages = _Archive(archive, root, path)
        content = read_pickle(io.BytesIO(_record(archive, data)), BUILDERS, storages)
        if f"{root}constants.pkl" in names and any(name.startswith(f"{root}code/") for name in names):
            tensors: dict[str, Tensor] = {}
            _collect(content, "", tensors, set())
            return tensors
    return _plain(content)


def module_tensors(value: Any) -> dict[str, Tensor] | None:
    """The tensors of a module that was saved whole, under the names of its `state_dict`; None for anything else."""
    if not (isinstance(value, Record) and isinstance(value.attributes.get("_modules"), dict)):
        return None
    tensors: dict[str, Tensor] = {}
    for count, (name, tensor) in enumerate(_walk(value, "", 64)):
        if count > _MOST_TENSORS:
            raise ValueError("its module has no end")
        if tensor is not None:
            tensors[name] = tensor
    return tensors


def _walk(module: Any, prefix: str, depth: int) -> Iterator[tuple[str, Tensor | None]]:
    """Every tensor of a module's record with its name, and (prefix, None) for the module itself."""
    if not isinstance(module, Record) or depth == 0:
        return
    yield prefix, None
    state = module.attributes
    passing = state.get("_non_persistent_buffers_set", ())
    for group in ("_parameters", "_buffers", "_modules"):
        items = state.get(group)
        for name, value in items.items() if isinstance(items, dict) else ():
            if isinstance(value, Tensor) and not (group == "_buffers" and name in passing):
                yield f"{prefix}{name}", value
            elif group == "_modules":
                yield from _walk(value, f"{prefix}{name}.", depth - 1)


def _plain(content: Any) -> Any:
    tensors = module_tensors(content)
    return content if tensors is None else tensors


def _record(archive: zipfile.ZipFile, name: str) -> bytes:
    """The bytes of a record. Compressed records are refused: torch writes none, and they could grow without limit."""
    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"the record {name} is compressed")
    return archive.read(name)


class _Storages(ABC):
    """Storages by their key, each a flat tensor over the mapped file."""

    def __init__(self, path: Path) -> None:
        self.bytes = torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8)
        self.tensors: dict[str, Tensor] = {}
        self.copied = 0

    def __call__(self, pid: Any) -> Any:
        """("storage", type, key, device, count, view of old files) -> the storage, or the part that the view names."""
        if pid[0] == "module":  # a class with its source, in files of old versions
            return pid[1]
        key, dtype, count, *view = _stated(pid)
        if key not in self.tensors:
            self.tensors[key] = self.find(key, dtype, count) if count else torch.empty(0, dtype=dtype)
        storage = self.tensors[key]
        if storage.dtype != dtype or storage.numel() != count:
            raise ValueError(f"the storage {key} is of two kinds")
        if view and view[0] is not None:
            _, start, length = view[0]
            return storage[start : start + length]
        return storage

    @abstractmethod
    def find(self, key: str, dtype: torch.dtype, count: int) -> Tensor:
        """The `count` values of the storage `key`."""

    def part(self, key: str, start: int, size: int, dtype: torch.dtype) -> Tensor:
        """`size` bytes from `start`, as values; copied where they are not aligned, together at most the file's size."""
        if size < 0 or start + size > len(self.bytes):
            raise ValueError(f"the storage {key} is cut off")
        part = self.bytes[start : start + size]
        if start % dtype.itemsize:
            self.copied += size
            if self.copied > len(self.bytes):
                raise ValueError("its storages overlap")
            part = part.clone()
        return part.view(dtype)


class _Archive(_Storages):
    """The entries data/<key> of a zip archive."""

    def __init__(self, archive: zipfile.ZipFile, root: str, path: Path) -> None:
        super().__init__(path)
        self.archive, self.root = archive, root

    def find(self, key: str, dtype: torch.dtype, count: int) -> Tensor:
        entry = self.archive.getinfo(f"{self.root}data/{key}")
        size = count * dtype.itemsize
        if entry.compress_type != zipfile.ZIP_STORED or not 0 <= size <= entry.file_size:
            raise ValueError(f"the storage {key} is compressed or too short")
        header = self.bytes[entry.header_offset : entry.header_offset + _LOCAL_HEADER].tolist()
        if len(header) < _LOCAL_HEADER:
            raise ValueError(f"the storage {key} is cut off")
        name, extra = header[26] + 256 * header[27], header[28] + 256 * header[29]
        return self.part(key, entry.header_offset + _LOCAL_HEADER + name + extra, size, dtype)


class _Stream(_Storages):
    """Storages one after the other behind the pickles, each after its count; `wanted` maps a key to its type."""

    def __init__(self, path: Path, keys: Sequence[str], wanted: Mapping[str, torch.dtype], start: int) -> None:
        super().__init__(path)
        self.places: dict[str, tuple[int, int]] = {}
        for key in keys:
            count = int.from_bytes(bytes(self.bytes[start : start + 8].tolist()), "little", signed=True)
            if len(self.bytes) < start + 8 or count < 0:
                raise EOFError(f"the storage {key} is cut off")
            self.places[key] = (start + 8, count)
            start += 8 + count * wanted[key].itemsize

    def find(self, key: str, dtype: torch.dtype, count: int) -> Tensor:
        start, stored = self.places[key]
        if stored != count:
            raise ValueError(f"the storage {key} holds {stored} values, not {count}")
        return self.part(key, start, count * dtype.itemsize, dtype)


def _read_stream(path: Path) -> Any:
    """A file from before torch 1.6: four pickles, one with the keys of the storages, and the storages.

    The content is read twice, because the places of the storages follow from the types that it states.
    """
    with path.open("rb") as file:
        if read_pickle(file) != _MAGIC:
            raise CheckpointError(
                f"{path} is a pickle that torch.save did not write, so its tensors cannot be found; load it where it "
                "was made and save it with torch.save."
            )
        _, system = read_pickle(file), read_pickle(file)
        if isinstance(system, dict) and system.get("little_endian", sys.byteorder == "little") is not True:
            raise ValueError("it was written on a big-endian machine")
        content = file.tell()
        wanted: dict[str, torch.dtype] = {}
        read_pickle(file, {}, _noting(wanted))
        keys = read_pickle(file)
        if not (isinstance(keys, list) and all(isinstance(key, str) for key in keys)):
            raise ValueError("its list of storages is none")
        storages = _Stream(path, keys, wanted, file.tell())
        file.seek(content)
        return read_pickle(file, BUILDERS, storages)


def _noting(wanted: dict[str, torch.dtype]) -> Callable[[Any], Any]:
    def note(pid: Any) -> Any:
        if pid[0] == "module":
            return pid[1]
        key, dtype, *_ = _stated(pid)
        wanted[key] = dtype
        return Record("storage")

    return note


def _stated(pid: Sequence[Any]) -> tuple[str, torch.dtype, int, *tuple[Any, ...]]:
    """Key, type, count and maybe view of a storage; what is none of these is not hashed and not written out."""
    _, storage_type, key, _, count, *view = pid
    if not (isinstance(storage_type, Record) and isinstance(key, str) and isinstance(count, int)):
        raise TypeError("a storage without type, key or count")
    return key, _STORAGES[storage_type.name.rpartition(".")[2].removesuffix("Storage")], count, *view


def _tensor(storage: Tensor, offset: int, shape: Sequence[int], stride: Sequence[int], *_: Any) -> Tensor:
    """A view of the storage, which may repeat values."""
    if not all(isinstance(number, int) for number in (offset, *shape, *stride)):
        raise TypeError("a tensor whose sizes are not numbers")
    last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    if min((offset, *shape, *stride)) < 0 or (0 not in shape and last >= storage.numel()):
        raise ValueError(f"a tensor of {tuple(shape)} has only {storage.numel()} stored values")
    # A storage may itself be a part of a mapped file.
    return storage.as_strided(tuple(shape), tuple(stride), storage.storage_offset() + offset)


def _typed_tensor(
    storage: Tensor, offset: int, shape: Sequence[int], stride: Sequence[int], _grad: bool, _hooks: Any, *rest: Any
) -> Any:
    """A tensor over an untyped storage, of a type that is named; what has no name here stays an object."""
    dtype = getattr(torch, rest[0].name.removeprefix("torch."), None)
    if not isinstance(dtype, torch.dtype):
        return Record(rest[0].name)
    return _tensor(storage.view(dtype), offset, shape, stride)


def _subclass(function: Any, _: Any, arguments: Any, *__: Any) -> Any:
    """A tensor of another class: the result of the named function for its arguments."""
    module, _, name = function.name.rpartition(".")
    return BUILDERS[module, name](*arguments) if (module, name) in BUILDERS else Record(function.name)


def _first(value: Any, *_: Any) -> Any:
    return value


BUILDERS: dict[tuple[str, str], Callable[..., Any]] = {
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _typed_tensor,
    ("torch._utils", "_rebuild_parameter"): _first,
    ("torch._utils", "_rebuild_parameter_with_state"): _first,
    ("torch._tensor", "_rebuild_from_type_v2"): _subclass,
    ("torch.jit._pickle", "restore_type_tag"): _first,
    ("torch.jit._pickle", "build_intlist"): _first,
    ("torch.jit._pickle", "build_doublelist"): _first,
    ("torch.jit._pickle", "build_boollist"): _first,
    ("torch.jit._pickle", "build_tensorlist"): _first,
}
"""What a call of these names makes; all others make a record."""


def _collect(node: Any, name: str, tensors: dict[str, Tensor], seen: set[int]) -> None:
    """The tensors of a TorchScript object tree, under their dotted names."""
    if isinstance(node, Tensor):
        tensors[name] = node
    elif isinstance(node, Record) and id(node) not in seen:
        seen.add(id(node))
        for key, value in node.attributes.items():
            _collect(value, f"{name}.{key}" if name else str(key), tensors, seen)
