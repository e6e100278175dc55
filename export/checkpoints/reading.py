"""Reads checkpoint files without running code in them.

Three containers are known: `torch.save` files (read with `weights_only=True`, memory-mapped where the file allows it,
or with inert records for the objects of other programs, see `foreign_objects`), TorchScript archives (see
`torchscript`) and safetensors. Every refusal is a CheckpointError.
"""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy import dtypes
from torch import Tensor

from ...engines.bundle import sha256_of
from ...engines.errors import CheckpointError
from ..adapter import CheckpointRecord
from .matching import identify, renamed

__all__ = ["Checkpoint", "read_checkpoint"]

ZIP_MAGIC = b"PK\x03\x04"
WRAPPERS = ("state_dict", "model_state_dict")  # keys under which training scripts put a flat state dict
_SCALAR: Any = np.float64(0).__reduce__()[0]
HARMLESS: list[Any] = [_SCALAR, (_SCALAR, "numpy.core.multiarray.scalar"), np.dtype, dtypes.BoolDType]
HARMLESS += [dtypes.Float16DType, dtypes.Float32DType, dtypes.Float64DType]
HARMLESS += [dtypes.Int32DType, dtypes.Int64DType, dtypes.UInt8DType]
"""NumPy numbers, which learning-rate schedulers leave in official checkpoints."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint file. Tensors may be memory-mapped: copy before the file can change."""

    path: Path
    content: Mapping[str, Any]

    @cached_property
    def record(self) -> CheckpointRecord:
        """File name and sha256, for the bundle."""
        try:
            return CheckpointRecord(self.path.name, sha256_of(self.path))
        except OSError as error:
            raise CheckpointError(f"The checkpoint {self.path} cannot be read: {error.strerror}.") from error

    def tensors(self) -> dict[str, Tensor]:
        """A flat checkpoint's tensors by name, out of a `state_dict` wrapper and without a `module.` prefix.

        Raises CheckpointError for a name that occurs both with the prefix and without it.
        """
        content = self.content
        for wrapper in WRAPPERS:
            if isinstance(content.get(wrapper), Mapping):
                content = content[wrapper]
        return _unprefixed(content, self.path)

    def part(self, key: str, model: str) -> dict[str, Tensor]:
        """The tensors under the top-level `key` of `model`'s files.

        Raises CheckpointError as `tensors`, and if there is no such key.
        """
        part = self.content.get(key)
        if isinstance(part, Mapping):
            return _unprefixed(part, self.path)
        names = [str(name) for name in self.content]
        other = identify(self.names())
        guess = f"it looks like a checkpoint of {other}" if other else f"its keys are {', '.join(names[:5])}"
        raise CheckpointError(f"{self.path} is not a checkpoint of {model}: it has no '{key}'; {guess}.")

    def names(self) -> list[str]:
        """All tensor names, those of nested dictionaries with their key in front."""
        return list(_names(self.content))

    def settings(self) -> Mapping[str, Any]:
        """The training configuration under `config`, or an empty mapping."""
        config = self.content.get("config")
        return config if isinstance(config, Mapping) else {}


def read_checkpoint(path: Path, *, inert: bool = False) -> Checkpoint:
    """Reads the file. Raises CheckpointError when it is missing, empty, damaged, holds code, or is no checkpoint.

    With `inert`, a `torch.save` archive may hold pickled objects: they become records that do nothing.
    """
    if not path.exists():
        raise CheckpointError(f"The checkpoint {path} does not exist.")
    if not path.is_file():
        raise CheckpointError(f"The checkpoint {path} is not a file; give the file itself, not its folder.")
    try:
        if path.stat().st_size == 0:
            raise CheckpointError(f"The checkpoint {path} is empty; copy or download it again.")
        content = _read(path, inert)
    except OSError as error:
        raise CheckpointError(f"The checkpoint {path} cannot be read: {error.strerror or error}.") from error
    if not isinstance(content, Mapping):
        raise CheckpointError(f"The checkpoint {path} holds a {type(content).__name__}, not a dictionary of tensors.")
    return Checkpoint(path, content)


def _read(path: Path, inert: bool) -> Any:
    """Converts every exception of a parser to a CheckpointError, except OSError."""
    try:
        if path.suffix == ".safetensors":
            return _read_safetensors(path)
        if zipfile.is_zipfile(path):
            if _is_torchscript(path):
                from .torchscript import read_torchscript

                return read_torchscript(path)
            if inert:
                from .foreign_objects import read_inert

                return read_inert(path)
            return _read_torch(path, mmap=True)
        if _magic(path) == ZIP_MAGIC:
            raise EOFError("its end is missing")
        return _read_torch(path, mmap=False)
    except (OSError, CheckpointError):
        raise
    except pickle.UnpicklingError as error:
        if "GLOBAL" in str(error):  # the word in torch's messages, and ours, for a class or function by name
            raise CheckpointError(
                f"The checkpoint {path} holds pickled code or objects, which this program never runs, and was refused; "
                "save it again with only dictionaries of tensors and plain values."
            ) from error
        raise _damaged(path, "unreadable pickle") from error
    except Exception as error:
        raise _damaged(path, str(error) or type(error).__name__) from error


def _is_torchscript(path: Path) -> bool:
    """Whether a zip file is a TorchScript archive: it carries code and constants beside its data."""
    with zipfile.ZipFile(path) as archive:
        names = "\n".join(archive.namelist()) + "\n"
    return "/constants.pkl\n" in names and "/code/" in names


def _magic(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = load_file(path)
    return tensors


def _read_torch(path: Path, *, mmap: bool) -> Any:
    with warnings.catch_warnings(), torch.serialization.safe_globals(HARMLESS):
        warnings.simplefilter("ignore")  # about pickle protocols; an unreadable file is refused anyway
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)


def _damaged(path: Path, reason: str) -> CheckpointError:
    short = reason.strip().splitlines()[0][:160].rstrip(".")
    return CheckpointError(f"The checkpoint {path} is truncated, damaged or not a checkpoint ({short}); copy it again.")


def _names(content: Mapping[Any, Any], prefix: str = "", depth: int = 3) -> list[str]:
    found: list[str] = []
    for key, value in content.items():
        if isinstance(value, Tensor):
            found.append(f"{prefix}{key}")
        elif isinstance(value, Mapping) and depth:
            found += _names(value, f"{prefix}{key}.", depth - 1)
    return found


def _unprefixed(content: Mapping[Any, Any], path: Path) -> dict[str, Tensor]:
    tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    return renamed(tensors, methodcaller("removeprefix", "module."), path=path)
