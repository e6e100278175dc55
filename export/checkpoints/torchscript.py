"""Reads the tensors of a TorchScript archive (OpenAI's CLIP files) without loading its program.

`torch.jit.load` would compile the code in the archive and run its `__setstate__` methods. Only the object tree is
needed: `data.pkl` describes it, `data/<key>` hold the storages. The unpickler below knows inert records, tensors and
lists of numbers; any other name in the pickle is refused.
"""

from __future__ import annotations

import io
import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

__all__ = ["ArchiveReader", "read_torchscript", "stored_record"]

DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}


class _Record:
    """Represents any scripted module: keeps its attributes, has no methods."""

    def __setstate__(self, state: Any) -> None:
        self.attributes = state if isinstance(state, dict) else {}


def read_torchscript(path: Path) -> dict[str, Tensor]:
    """The tensors of the archive under their dotted names.

    Raises UnpicklingError (GLOBAL) when the pickle names anything other than its own modules and tensors; any other
    exception means that the archive is damaged.
    """
    with zipfile.ZipFile(path) as archive:
        data = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        tree = ArchiveReader(io.BytesIO(stored_record(archive, data)), archive, data.removesuffix("data.pkl")).load()
    found: dict[str, Tensor] = {}
    _collect(tree, "", found, set())
    return found


def stored_record(archive: zipfile.ZipFile, name: str) -> bytes:
    """The bytes of a record. Compressed records are refused: torch writes none, and they could grow without limit."""
    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"the record {name} is compressed")
    return archive.read(name)


class ArchiveReader(pickle.Unpickler):
    """Rebuilds tensors from the pickle and the storages of an archive that torch wrote; `root` is its folder inside.

    Nothing is imported: a name is one of the few below, or `foreign` decides.
    """

    def __init__(self, stream: Any, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(stream)
        self.archive, self.root = archive, root
        self.storages: dict[str, Tensor] = {}

    def find_class(self, module: str, name: str) -> Any:
        if module == "__torch__" or module.startswith("__torch__."):
            return _Record
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        known = {
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
            ("torch._utils", "_rebuild_parameter"): _first,
            ("torch.jit._pickle", "restore_type_tag"): _first,
            ("torch.jit._pickle", "build_intlist"): _first,
            ("torch.jit._pickle", "build_doublelist"): _first,
            ("torch.jit._pickle", "build_boollist"): _first,
            ("torch.jit._pickle", "build_tensorlist"): _first,
            ("collections", "OrderedDict"): OrderedDict,
        }
        if (module, name) in known:
            return known[module, name]
        return self.foreign(module, name)

    def foreign(self, module: str, name: str) -> Any:
        """The replacement for a class or function that is not part of a tensor; this class refuses the file."""
        raise pickle.UnpicklingError(f"GLOBAL {module}.{name} is no part of a plain model")

    def persistent_load(self, pid: Any) -> Tensor:
        """("storage", dtype, key, device, number of elements) -> the storage as a flat tensor, read once."""
        _, dtype, key, _, count = pid
        if key not in self.storages:
            self.storages[key] = self.read_storage(key, dtype, count) if count else torch.empty(0, dtype=dtype)
        return self.storages[key]

    def read_storage(self, key: str, dtype: torch.dtype, count: int) -> Tensor:
        """The first `count` values of the storage `key`, flat."""
        record = bytearray(stored_record(self.archive, f"{self.root}data/{key}"))
        return torch.frombuffer(record, dtype=dtype, count=count)


def _tensor(storage: Tensor, offset: int, shape: Sequence[int], stride: Sequence[int], *_: Any) -> Tensor:
    last = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    count = math.prod(shape)
    if min((offset, *shape, *stride)) < 0 or count > storage.numel() or (count and last >= storage.numel()):
        raise ValueError(f"a tensor of {tuple(shape)} has only {storage.numel()} stored values")
    # A storage may itself be a part of a mapped file.
    return storage.as_strided(tuple(shape), tuple(stride), storage.storage_offset() + offset)


def _first(value: Any, *_: Any) -> Any:
    return value


def _collect(node: Any, name: str, found: dict[str, Tensor], seen: set[int]) -> None:
    if isinstance(node, Tensor):
        found[name] = node
    elif isinstance(node, _Record) and id(node) not in seen:
        seen.add(id(node))
        for key, value in getattr(node, "attributes", {}).items():
            _collect(value, f"{name}.{key}" if name else str(key), found, seen)
