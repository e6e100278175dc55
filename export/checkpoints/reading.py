"""Reads checkpoint files without running code in them.

Three containers are known: files of `torch.save` and TorchScript archives (see `torch_files`), safetensors, and the
index of safetensors or `torch.save` files in shards. Which it is follows from the content, not from the file's name. A
folder is searched for the weights in it (see `given_paths`). Every refusal is a CheckpointError.
"""

from __future__ import annotations

from collections.abc import Mapping
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

    Other objects than tensors become records of their class (see `inert_pickle`). Raises CheckpointError when the file
    is missing, damaged or no checkpoint, and when a folder has no weights, or several.
    """
    if not path.exists():
        raise CheckpointError(f"The checkpoint {path} does not exist.")
    try:
        notes = []
        if path.is_dir():
            weights = find_weights(path)
            path, notes = weights.path, [weights.note] if weights.note else []
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
    safetensors = is_safetensors(path)
    if not safetensors and (sentence := what_it_is(path)) is not None:
        raise CheckpointError(sentence)
    try:
        if safetensors:
            from safetensors.torch import load_file

            return load_file(path)
        return read_torch(path)
    except (OSError, CheckpointError):
        raise
    except Exception as error:  # damaged files make the parsers raise whatever their code raises
        reason = (str(error) or type(error).__name__).strip().splitlines()[0][:160].rstrip(".")
        raise CheckpointError(
            f"The checkpoint {path} is truncated, damaged or not a checkpoint ({reason}); copy it again."
        ) from error
