"""The content of a checkpoint: its tensors, wherever training scripts put them, and under whichever prefix."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from ...engines.errors import CheckpointError
from ..adapter import CheckpointRecord
from .inert_pickle import Record
from .matching import ModelTensors, TensorNames, identify, renamed
from .names import has_word, plain_name, without_wrappers
from .torch_files import module_tensors

# Keys under which training scripts put a flat state dict or the module itself, and keys of averaged weights.
WRAPPERS = ("state_dict", "model_state_dict", "model", "module", "network", "net", "weights")
AVERAGED = ("model_ema", "ema", "state_dict_ema", "ema_state_dict", "ema_model", "model_ema_state_dict")
_COUNTER = "n_averaged"  # of torch's AveragedModel
_REPEATED, _SLACK = 4, 1 << 32  # tensors may share values: as many times the file's size, and bytes beyond that
_LONGEST = 1000  # characters in the name of a tensor
_LISTED = 5


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
        """File name and sha256, for the bundle; of shards, the sha256 of the list that `sha256sum` prints of them."""
        from ...engines.bundle import sha256_of  # so that a model is built without what bundles need

        try:
            digests = {path.name: sha256_of(path) for path in self.files or (self.path,)}
        except OSError as error:
            raise CheckpointError(f"The checkpoint {self.path} cannot be read: {error.strerror}.") from error
        lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
        checksum = digests[self.path.name] if len(digests) == 1 else hashlib.sha256(lines.encode()).hexdigest()
        return CheckpointRecord(self.path.name, checksum, "; ".join(self.notes))

    def tensors(self, *anchors: str) -> dict[str, Tensor]:
        """A flat checkpoint's tensors by name, out of wrappers (`state_dict`, `model`, ...), and without what other
        programs add to names (`names.plain_name`), and with `anchors` without the prefix of these names.

        Averaged weights are taken only where there are no others. Raises CheckpointError where the tensors lie under
        other keys alone, for a name that occurs both with a prefix and without it, and for objects in place of tensors.
        """
        *_, content = self.states()
        if not _count(content) and (places := self.places()):
            raise CheckpointError(
                f"{self.path} has no tensors at the top, nor under the keys that are known ({', '.join(WRAPPERS)}): "
                f"they are under {places}; save the model's tensors alone."
            )
        return self.after(self.named(content), anchors)

    def model_tensors(self, published: TensorNames) -> ModelTensors:
        """The tensors that a model needs, under its own names. Raises CheckpointError as `tensors`."""
        tensors = published.of(self.tensors(*published.anchors), self.path)
        return ModelTensors(tensors, self.path, published.model, self.names())

    def states(self) -> Iterator[Mapping[Any, Any]]:
        """The content, and what is under the known keys in it, from the outside to the state that is read."""
        content: Mapping[Any, Any] = self.content
        yield content
        for _ in range(3):
            inner = {key: state for key in (*WRAPPERS, *AVERAGED) if (state := _state(content.get(key))) is not None}
            averaged = [key for key in inner if key in AVERAGED]
            chosen = next(iter(inner), "")
            if not inner or (chosen in AVERAGED and _count(content) > _count(inner[chosen])):
                return
            if averaged and chosen != averaged[0]:
                self.note(f"{self.path.name} also holds averaged weights under '{averaged[0]}'; '{chosen}' is read")
            alike = _count(inner[chosen])
            others = (key for key, value in content.items() if key != chosen and key not in AVERAGED)
            for key in others:
                if alike and (state := _state(content[key])) is not None and _count(state) == alike:
                    self.note(f"{self.path.name} also holds weights under '{key!s:.60}'; '{chosen}' is read")
                    break
            content = inner[chosen]
            yield content

    def places(self) -> str:
        """Under which keys tensors are, with their numbers, those with most of them first; empty where there are none.

        The prefix that all names below a key share is shown.
        """
        shared: dict[str, list[str]] = {}
        for name in self.names():
            shared.setdefault(name.partition(".")[0], []).append(name)
        descriptions = []
        for names in sorted(shared.values(), key=len, reverse=True):
            parts = [name.split(".")[:-1] for name in (min(names), max(names))]
            same = [one for one, other in zip(*parts, strict=False) if one == other]
            descriptions.append(f"'{'.'.join(same[:3])}' ({len(names)})")
        return ", ".join(descriptions[:_LISTED]) + (", ..." if len(descriptions) > _LISTED else "")

    def after(self, tensors: dict[str, Tensor], anchors: Iterable[str]) -> dict[str, Tensor]:
        """The tensors with the prefix of the anchor, without it; all of them where no name ends in an anchor."""
        anchor, places = _ends(tensors, anchors)
        if not places and any(_ends(map(without_wrappers, tensors), anchors)):
            tensors = renamed(tensors, without_wrappers, path=self.path)
            anchor, places = _ends(tensors, anchors)
        if not places or anchor in places:
            return tensors
        # A prefix with the anchor alone, for example the scale of a loss, is no model.
        models = [
            candidate
            for candidate in places
            if sum(name.startswith(candidate.removesuffix(anchor)) for name in tensors) > 1
        ]
        places = models or places
        plain = [name for name in places if not has_word(name.removesuffix(anchor), "ema")]
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
        """The tensors of a state dict, without what wrappers add to names (`names.plain_name`).

        Raises CheckpointError for objects in place of tensors, for tensors that claim many times the file's size, for
        a name that is not text, and for one that occurs with a prefix and without.
        """
        for name in (name for name, value in content.items() if isinstance(value, Tensor)):
            if not _is_name(name):
                fault = (
                    f"of {len(name):,} characters" if isinstance(name, str) else f"of the type {type(name).__name__}"
                )
                raise CheckpointError(
                    f"A tensor of {self.path} has a key {fault}; keys of weights are text of at most {_LONGEST:,} "
                    "characters: save the tensors under their names."
                )
        tensors = {name: value for name, value in content.items() if isinstance(value, Tensor)}
        objects = {key: value.name for key, value in content.items() if isinstance(value, Record) and _is_name(key)}
        odd = next((name for name, fault in objects.items() if _is_tensor_class(fault)), None)
        if odd is not None:
            raise CheckpointError(
                f"The tensor {odd} of {self.path} is not stored as plain values ({objects[odd]}); save the checkpoint "
                "again, with whole tensors on one device."
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
        return renamed(tensors, plain_name, path=self.path)

    def note(self, text: str) -> None:
        """Adds a sentence for the user, once."""
        if text not in self.notes:
            self.notes.append(text)

    def parts(self, anchors: Mapping[str, str], model: str) -> dict[str, dict[str, Tensor]]:
        """As `find_parts`. Raises CheckpointError if a part is missing."""
        parts = self.find_parts(anchors)
        if parts is None:
            names = [name for name in self.content if _is_name(name)]
            other, places = identify(self.names()), self.places()
            guess = f"its tensors are under {places}" if places else f"its keys are {', '.join(names[:5])}"
            if other and other.lower() != model.lower():
                guess = f"it looks like a checkpoint of {other}"
            missing = next((key for key in anchors if _state(self.content.get(key)) is None), next(iter(anchors)))
            raise CheckpointError(f"{self.path} is not a checkpoint of {model}: it has no '{missing}'; {guess}.")
        return parts

    def find_parts(self, anchors: Mapping[str, str]) -> dict[str, dict[str, Tensor]] | None:
        """The tensors under these top-level keys, or in a flat checkpoint those whose names begin with them.

        `anchors` maps each key to a tensor that its part holds, by which it is found in a flat checkpoint. None if a
        part is missing. Raises CheckpointError as `tensors`.
        """
        for content in self.states():
            parts = {key: _state(content.get(key)) for key in anchors}
            if all(state is not None for state in parts.values()):
                return {key: self.named(state or {}) for key, state in parts.items()}
        names = [f"{key}.{anchor}" for key, anchor in anchors.items() if anchor]
        readable = names and (_count(content) or not self.places())  # objects in place of tensors are refused
        flat = self.after(self.named(content), names) if readable else {}
        if not all(name in flat for name in names):
            flat = renamed(flat, without_wrappers, path=self.path)
        return {key: _below(f"{key}.", flat) for key in anchors} if names and all(n in flat for n in names) else None

    def names(self) -> list[str]:
        """All tensor names, in nested dictionaries with their key in front."""
        return list(_names(self.content, set()))

    def settings(self) -> Mapping[str, Any]:
        """The training configuration under `config`, or an empty mapping."""
        config = self.content.get("config")
        if isinstance(config, Record):  # as argparse.Namespace
            return config.attributes
        return config if isinstance(config, Mapping) else {}


def _state(value: Any) -> Mapping[Any, Any] | None:
    """A state dict: a mapping, or the tensors of a module that was saved whole, if it has an end."""
    try:
        return value if isinstance(value, Mapping) else module_tensors(value)
    except ValueError as error:
        raise CheckpointError(f"The checkpoint holds a module that cannot be read: {error}.") from error


def _is_name(key: Any) -> bool:
    return isinstance(key, str) and len(key) <= _LONGEST


def _is_tensor_class(name: str) -> bool:
    """Whether objects of the class are tensors: sparse or quantised ones, and parts of a tensor on several devices."""
    return name.startswith("torch._utils._rebuild_") or name.endswith(("DTensor", "ShardedTensor"))


def _ends(names: Iterable[str], anchors: Iterable[str]) -> tuple[str, list[str]]:
    """The first anchor in which a name ends, and these names."""
    listed = list(names)
    ends = ((anchor, [name for name in listed if f".{name}".endswith(f".{anchor}")]) for anchor in anchors)
    return next(((anchor, places) for anchor, places in ends if places), ("", []))


def _count(content: Mapping[Any, Any]) -> int:
    return sum(isinstance(value, Tensor) for value in content.values())


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _names(content: Mapping[Any, Any], seen: set[int], prefix: str = "", depth: int = 3) -> Iterator[str]:
    for key, value in content.items():
        if not _is_name(key):
            continue
        if isinstance(value, Tensor):
            yield f"{prefix}{key}"
        elif depth and id(value) not in seen and (state := _state(value)) is not None:
            seen.add(id(value))
            yield from _names(state, seen, f"{prefix}{key}.", depth - 1)
