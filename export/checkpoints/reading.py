"""Reads checkpoint files without running code in them.

Three containers are known: files of `torch.save` and TorchScript archives (see `torch_files`), safetensors, and the
index of safetensors or `torch.save` files in shards. Which it is follows from the content, not from the file's name. A
folder stands for the weights in it (see `given_paths`). Every refusal is a CheckpointError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ...engines.errors import CheckpointError
from .checkpoint import Checkpoint
from .given_paths import find_weights, is_safetensors, read_index, what_it_is
from .inert_pickle import Record
from .torch_files import read_torch

_INDEX = ".index.json"


def read_checkpoint(path: Path) -> Checkpoint:
    """Reads the file, the index of shards, or the weights of the folder at `path`; nothing in it is run.

    Objects beside the tensors become records of their class (see `inert_pickle`). Raises CheckpointError when the file
    is missing, damaged or no checkpoint, and when a folder has no weights, or several.
    """
    if not path.exists():
        raise CheckpointError(f"The checkpoint {path} does not exist.")
    try:
        notes = []
        if path.is_dir():
            found = find_weights(path)
            path, notes = found.path, [found.note] if found.note else []
        if path.name.endswith(_INDEX):
            content, files = _read_shards(path)
            return Checkpoint(path, content, files, sum(file.stat().st_size for file in files), notes)
        if not path.is_file():
            raise CheckpointError(f"The checkpoint {path} is not a file; give a file or a folder with weights.")
        content = _read(path)
    except OSError as error:
        raise CheckpointError(f"The checkpoint {path} cannot be read: {error.strerror or error}.") from error
    if isinstance(content, Record):
        raise CheckpointError(
            f"The checkpoint {path} holds an object of the class {content.name}, not tensors, and nothing in it is "
            "run; load it where that class is installed and save its tensors: torch.save(model.state_dict(), FILE)."
        )
    if not isinstance(content, Mapping):
        raise CheckpointError(f"The checkpoint {path} holds a {type(content).__name__}, not a dictionary of tensors.")
    return Checkpoint(path, content, (path,), path.stat().st_size, notes)


def _read_shards(index: Path) -> tuple[dict[str, Tensor], tuple[Path, ...]]:
    """The tensors of all shards, as the index says which file holds which, and the files that were read."""
    tensors: dict[str, Tensor] = {}
    shards = read_index(index)
    for name, wanted in shards.items():
        content = _read(index.parent / name)
        for tensor in wanted:
            value = content.get(tensor) if isinstance(content, Mapping) else None
            if not isinstance(value, Tensor):
                raise CheckpointError(
                    f"{index.parent / name} lacks the tensor {tensor}, which {index.name} names; download it again."
                )
            tensors[tensor] = value
    return tensors, (index, *(index.parent / name for name in shards))


def _read(path: Path) -> Any:
    """Converts every exception of a parser to a CheckpointError, except OSError."""
    if is_safetensors(path):
        return _guarded(path, _read_safetensors)
    if (sentence := what_it_is(path)) is not None:
        raise CheckpointError(sentence)
    return _guarded(path, read_torch)


def _guarded(path: Path, read: Callable[[Path], Any]) -> Any:
    try:
        return read(path)
    except (OSError, CheckpointError):
        raise
    except Exception as error:
        reason = (str(error) or type(error).__name__).strip().splitlines()[0][:160].rstrip(".")
        raise CheckpointError(
            f"The checkpoint {path} is truncated, damaged or not a checkpoint ({reason}); copy it again."
        ) from error


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = load_file(path)
    return tensors
