"""Reads `torch.save` archives that hold objects of other programs, without importing those programs.

Lightning's checkpoints carry a configuration, callbacks and optimiser states beside the tensors (docs/parity.md §3.6).
Here every class and function that is not part of a tensor becomes an inert record: no class or function that the file
names is imported or called, installed or not.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from .torchscript import ArchiveReader, stored_record

__all__ = ["Record", "read_inert"]

_LOCAL_HEADER = 30  # bytes before the name in a zip entry's local header


class Record:
    """Represents an object, a class or a function that was not imported: keeps its state, does nothing.

    `attributes` holds the state and the items it was given; the arguments of calls are dropped.
    """

    attributes: dict[Any, Any]

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        made = super().__new__(cls)
        made.attributes = {}
        return made

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def __call__(self, *arguments: Any, **options: Any) -> Record:
        return Record()

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.attributes.update(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.attributes[key] = value

    def append(self, item: Any) -> None:
        """Discards an item that the pickle would add to a list or set."""

    extend = add = append


def read_inert(path: Path) -> Any:
    """The content of the zip archive at `path`; tensors are memory-mapped.

    Raises ValueError, KeyError and other exceptions of damaged files.
    """
    with zipfile.ZipFile(path) as archive:
        data = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        root = data.removesuffix("data.pkl")
        if f"{root}byteorder" in archive.namelist() and stored_record(archive, f"{root}byteorder") != b"little":
            raise ValueError("it was written on a big-endian machine")
        content = _InertReader(io.BytesIO(stored_record(archive, data)), archive, root, path).load()
    if not isinstance(content, dict):
        return content
    return {key: _items(value) for key, value in _items(content).items()}


def _items(value: Any) -> Any:
    """A plain dictionary: an OrderedDict's methods can be covered by attributes that the pickle sets."""
    return dict(dict.items(value)) if isinstance(value, dict) else value


class _InertReader(ArchiveReader):
    """Maps the file instead of reading storages, so that optimiser states (often twice the weights) use no memory."""

    def __init__(self, stream: Any, archive: zipfile.ZipFile, root: str, path: Path) -> None:
        super().__init__(stream, archive, root)
        self._bytes = torch.from_file(str(path), shared=False, size=path.stat().st_size, dtype=torch.uint8)

    def foreign(self, module: str, name: str) -> Any:
        return Record

    def read_storage(self, key: str, dtype: torch.dtype, count: int) -> Tensor:
        entry = self.archive.getinfo(f"{self.root}data/{key}")
        size = count * dtype.itemsize
        if entry.compress_type != zipfile.ZIP_STORED or not 0 <= size <= entry.file_size:
            raise ValueError(f"the storage {key} is compressed or too short")
        header = self._bytes[entry.header_offset : entry.header_offset + _LOCAL_HEADER].tolist()
        start = entry.header_offset + _LOCAL_HEADER + header[26] + 256 * header[27] + header[28] + 256 * header[29]
        if len(header) < _LOCAL_HEADER or start + size > len(self._bytes):
            raise ValueError(f"the storage {key} is cut off")
        part = self._bytes[start : start + size]
        return (part.clone() if start % dtype.itemsize else part).view(dtype)
