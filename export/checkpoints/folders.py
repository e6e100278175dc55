"""Finds the weights in a folder: a repository of Hugging Face, whole or in shards, or a folder with one weight file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...engines.errors import CheckpointError
from .file_kinds import WEIGHT_SUFFIXES

__all__ = ["Weights", "find_weights", "read_index"]

# In the order in which transformers and open_clip take them; in one folder they are the same weights in other formats.
_PUBLISHED = (
    "model.safetensors",
    "model.safetensors.index.json",
    "open_clip_model.safetensors",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "open_clip_pytorch_model.bin",
)
_STATES = ("optimizer", "scheduler", "scaler", "rng_state", "random_states", "training_args", "trainer_state")
_OTHER = (".h5", ".msgpack", ".ot", ".onnx", ".gguf", ".index", ".pb", ".npz")  # weights of other frameworks
_ADAPTER = "adapter_model"
_SHOWN = 5


@dataclass(frozen=True)
class Weights:
    """The file with the weights, or the index of its shards; `note` says what else the folder has to choose from."""

    path: Path
    note: str = ""


def find_weights(folder: Path) -> Weights:
    """The weights in `folder`. Raises CheckpointError, naming the candidates, when there are none or several."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    known = [name for name in _PUBLISHED if name in names]
    if known:
        others = ", ".join(known[1:])
        note = f"{folder} also holds {others}; {known[0]} is read, as transformers does" if others else ""
        return Weights(folder / known[0], note)
    files = [name for name in names if name.endswith(WEIGHT_SUFFIXES) and not name.startswith(_STATES)]
    if adapters := [name for name in files if name.startswith(_ADAPTER)]:
        raise CheckpointError(
            f"The folder {folder} holds only a LoRA adapter ({adapters[0]}); merge it into its model "
            "(merge_and_unload), save that, and give the saved folder."
        )
    if len(files) == 1:
        return Weights(folder / files[0])
    if files:
        raise CheckpointError(
            f"The folder {folder} holds {len(files)} files with weights ({_list(files)}); give one of them."
        )
    other = [name for name in names if name.endswith(_OTHER)]
    inside = [path.name for path in folder.iterdir() if path.is_dir() and any(path.glob("*.safetensors"))]
    hint = "; it has weights of other frameworks alone" if other else ""
    if inside:
        hint = f"; look in its folder {sorted(inside)[0]}"
    seen = f" (it holds {_list(other or names)})" if names else " (it is empty)"
    raise CheckpointError(
        f"The folder {folder} has no weights that can be read{seen}{hint}: give a file of torch.save or safetensors, "
        "or a folder with model.safetensors, pytorch_model.bin or the index of their shards."
    )


def read_index(path: Path) -> dict[str, list[str]]:
    """File -> the tensors it holds, from the index of shards at `path`. Raises CheckpointError."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        shards: dict[str, list[str]] = {}
        for tensor, name in table.items():
            if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
                raise ValueError(f"{name!r} is no name of a file")
            shards.setdefault(name, []).append(tensor)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is not an index of shards ({error!r}); download it again.") from error
    missing = [name for name in shards if not (path.parent / name).is_file()]
    if missing or not shards:
        raise CheckpointError(
            f"{path} names {len(shards)} files, of which {len(missing)} are missing ({_list(missing) or 'none'}); "
            "download the folder again."
        )
    return shards


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
