"""Reads checkpoint files without running code in them.

Three containers are known: files of `torch.save` and TorchScript archives (see `torch_files`), safetensors, and the
index of safetensors or `torch.save` files in shards. Which it is follows from the content, not from the file's name. A
folder stands for the weights in it (see `folders`). Every refusal is a CheckpointError.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from ...engines.errors import CheckpointError
from ..adapter import CheckpointRecord
from .given_paths import find_weights, is_safetensors, read_index, what_it_is
from .inert_pickle import Record
from .matching import identify, renamed
from .torch_files import module_tensors, read_torch

__all__ = ["Checkpoint", "read_checkpoint"]

# Keys under which training scripts put a flat state dict, or the module itself, and those of averaged weights.
WRAPPERS = ("state_dict", "model_state_dict", "model", "module", "network", "net", "weights")
AVERAGED = ("model_ema", "ema", "state_dict_ema", "ema_state_dict", "ema_model", "model_ema_state_dict")
_COUNTER = "n_averaged"  # of torch's AveragedModel
_INDEX = ".index.json"
_REPEATED, _SLACK = 4, 1 << 32  # tensors may share values: as many times the file's size, and bytes beyond that


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint file. Tensors may be memory-mapped: copy before the file can change.

    `files` are all that were read: one, or an index and its shards, together of `size` bytes. `notes` says what was
    chosen among several.
    """

    path: Path
    content: Mapping[str, Any]
    files: tuple[Path, ...] = ()
    size: int = 0
    notes: list[str] = field(default_factory=list)

    @cached_property
    def record(self) -> CheckpointRecord:
        """File name and sha256, for the bundle; of shards, that of the list `sha256sum` would print of the files."""
        from ...engines.bundle import sha256_of  # so that a model is built without what bundles need

        try:
            digests = {path.name: sha256_of(path) for path in self.files or (self.path,)}
        except OSError as error:
            raise CheckpointError(f"The checkpoint {self.path} cannot be read: {error.strerror}.") from error
        lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
        whole = digests[self.path.name] if len(digests) == 1 else hashlib.sha256(lines.encode()).hexdigest()
        return CheckpointRecord(self.path.name, whole, "; ".join(self.notes))

    def tensors(self, *anchors: str) -> dict[str, Tensor]:
        """A flat checkpoint's tensors by name, out of wrappers (`state_dict`, `model`, ...), and without the prefixes
        that other programs add: `module.`, `_orig_mod.`, and with `anchors` what stands before one of these names.

        Averaged weights are taken only where there are no others. Raises CheckpointError for a name that occurs both
        with a prefix and without it, and for objects in place of tensors.
        """
        content: Mapping[Any, Any] = self.content
        for _ in range(3):
            inner = {key: state for key in (*WRAPPERS, *AVERAGED) if (state := _state(content.get(key))) is not None}
            averaged = [key for key in inner if key in AVERAGED]
            chosen = next(iter(inner), "")
            if not inner or (chosen in AVERAGED and _count(content) > _count(inner[chosen])):
                break
            if averaged and chosen != averaged[0]:
                self.note(f"{self.path.name} also holds averaged weights under '{averaged[0]}'; '{chosen}' is read")
            content = inner[chosen]
        return self.after(self.named(content), anchors)

    def after(self, tensors: dict[str, Tensor], anchors: Iterable[str]) -> dict[str, Tensor]:
        """The tensors with the prefix of the anchor, without it; all of them where no name ends in an anchor."""
        ends = {anchor: [name for name in tensors if f".{name}".endswith(f".{anchor}")] for anchor in anchors}
        anchor, places = next(((anchor, names) for anchor, names in ends.items() if names), ("", []))
        if not places or anchor in places:
            return tensors
        plain = [name for name in places if "ema" not in name.removesuffix(anchor).lower()]
        if len(places) > 1 and len(plain) != 1:
            raise CheckpointError(
                f"{self.path} holds several models, with the tensors {' and '.join(sorted(places)[:3])}; save the "
                "tensors of one of them."
            )
        prefix = (plain or places)[0].removesuffix(anchor)
        if len(places) > 1:
            self.note(f"{self.path.name} holds several models; the one under '{prefix[:-1]}' is read")
        return _below(prefix, tensors)

    def named(self, content: Mapping[Any, Any]) -> dict[str, Tensor]:
        """The tensors of a state dict, without the prefixes of DataParallel and torch.compile.

        Raises CheckpointError for objects in place of tensors, for tensors that claim many times the file's size, and
        for a name that occurs with a prefix and without.
        """
        tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
        objects = {str(name): value.name for name, value in content.items() if isinstance(value, Record)}
        odd = next((name for name, kind in objects.items() if kind.startswith("torch._utils._rebuild_")), None)
        if odd is not None:
            raise CheckpointError(
                f"The tensor {odd} of {self.path} is not stored as plain values ({objects[odd]}); save the checkpoint "
                "again."
            )
        if objects and not tensors:
            name = next((key for key in (*WRAPPERS, *AVERAGED) if key in objects), next(iter(objects)))
            raise CheckpointError(
                f"{self.path} holds no tensors: '{name}' is an object of the class {objects[name]}, and nothing in the "
                "file is run; load it where that class is installed and save a dictionary of torch tensors."
            )
        tensors.pop(_COUNTER, None)
        claimed = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        if claimed > _REPEATED * self.size + _SLACK:
            raise CheckpointError(
                f"The tensors of {self.path} would take {claimed / 1e9:,.0f} GB, far more than the file holds; it is "
                "damaged, or not stored as plain values: save the checkpoint again."
            )
        return renamed(tensors, lambda name: name.replace("_orig_mod.", "").removeprefix("module."), path=self.path)

    def note(self, text: str) -> None:
        """Adds a sentence for the user, once."""
        if text not in self.notes:
            self.notes.append(text)

    def part(self, key: str, model: str) -> dict[str, Tensor]:
        """The tensors under the top-level `key` of `model`'s files. Raises CheckpointError as `tensors`, and without
        that key."""
        return self.parts({key: ""}, model)[key]

    def parts(self, anchors: Mapping[str, str], model: str) -> dict[str, dict[str, Tensor]]:
        """As `find_parts`. Raises CheckpointError if a part is missing."""
        found = self.find_parts(anchors)
        if found is None:
            names = [str(name) for name in self.content]
            other = identify(self.names())
            guess = f"it looks like a checkpoint of {other}" if other else f"its keys are {', '.join(names[:5])}"
            missing = next((key for key in anchors if _state(self.content.get(key)) is None), next(iter(anchors)))
            raise CheckpointError(f"{self.path} is not a checkpoint of {model}: it has no '{missing}'; {guess}.")
        return found

    def find_parts(self, anchors: Mapping[str, str]) -> dict[str, dict[str, Tensor]] | None:
        """The tensors under these top-level keys, or in a flat checkpoint those whose names begin with them.

        `anchors` maps each key to a tensor that its part holds, by which it is found in a flat checkpoint. None if a
        part is missing. Raises CheckpointError as `tensors`.
        """
        states = {key: _state(self.content.get(key)) for key in anchors}
        if all(state is not None for state in states.values()):
            return {key: self.named(state or {}) for key, state in states.items()}
        names = [f"{key}.{anchor}" for key, anchor in anchors.items() if anchor]
        flat = self.tensors(*names) if names else {}
        return {key: _below(f"{key}.", flat) for key in anchors} if names and all(n in flat for n in names) else None

    def names(self) -> list[str]:
        """All tensor names, those of nested dictionaries with their key in front."""
        return list(_names(self.content, set()))

    def settings(self) -> Mapping[str, Any]:
        """The training configuration under `config`, or an empty mapping."""
        config = self.content.get("config")
        if isinstance(config, Record):  # as argparse.Namespace
            return config.attributes
        return config if isinstance(config, Mapping) else {}


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


def _state(value: Any) -> Mapping[Any, Any] | None:
    """A state dict: a mapping, or the tensors of a module that was saved whole."""
    return value if isinstance(value, Mapping) else module_tensors(value)


def _count(content: Mapping[Any, Any]) -> int:
    return sum(isinstance(value, Tensor) for value in content.values())


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _names(content: Mapping[Any, Any], seen: set[int], prefix: str = "", depth: int = 3) -> Iterator[str]:
    for key, value in content.items():
        if isinstance(value, Tensor):
            yield f"{prefix}{key}"
        elif depth and id(value) not in seen and (state := _state(value)) is not None:
            seen.add(id(value))
            yield from _names(state, seen, f"{prefix}{key}.", depth - 1)
