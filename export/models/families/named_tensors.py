"""The tensors of a checkpoint whose parts a configuration names: towers by their prefix, layers by their names.

Each tensor is taken once. What is left over is refused, so that no layer of the trained model goes missing unseen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from ....engines.errors import CheckpointError, ConfigError
from ....engines.registry import did_you_mean
from ...checkpoints.checkpoint import Checkpoint
from ...checkpoints.matching import install
from .family import near

ACTIVATIONS: Final[dict[str, Callable[[], nn.Module]]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "none": nn.Identity,
}
_SHOWN = 4
Kinds = Mapping[str, type | tuple[type, ...]]
"""Option -> what its value may be."""
Renaming = Callable[[dict[str, Tensor]], dict[str, Tensor]]


class NamedTensors:
    """`anchors` are tensors by which the prefix of the whole model is found, and left out. `unused` are beginnings of
    names of what the model does not need, except the layers that are taken by name, before the towers. Raises
    CheckpointError and ConfigError."""

    def __init__(self, source: Checkpoint, path: Path, anchors: Sequence[str], unused: Sequence[str]) -> None:
        self.path, self._places = path, source.places()
        tensors = source.tensors(*anchors)
        for start in unused:
            if not any(name.startswith(start) for name in tensors):
                raise ConfigError(f"{path} has no tensor whose name begins with '{start}', which 'unused' names.")
        # Index buffers that old releases of transformers stored.
        self._left = {name: tensor for name, tensor in tensors.items() if not name.endswith(".position_ids")}
        self._unused = tuple(unused)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def _prefix(self, needed: Collection[str], title: str) -> str:
        """The prefix under which most names of `needed` are."""
        counts = self._counts(needed)
        best = [prefix for prefix, count in counts.items() if count == max(counts.values())]
        if len(best) > 1:
            raise ConfigError(
                f"{self.path} has the tensors of {title} under '{best[0]}' and '{best[1]}'; state one of "
                "them as 'prefix'."
            )
        return best[0] if best else ""

    def shapes(self, name: str) -> set[tuple[int, ...]]:
        """The shapes of all tensors `name`, under any prefix."""
        return {tuple(tensor.shape) for one, tensor in self._left.items() if f".{one}".endswith(f".{name}")}

    def holds(self, module: nn.Module) -> bool:
        """Whether most names of `module` are there, under any prefix."""
        needed = [*module.state_dict()]
        return 2 * max(self._counts(needed).values(), default=0) > len(needed)

    def children(self, name: str) -> list[str]:
        """The layers below `name`, where it is not a layer itself."""
        if name in self._left or f"{name}.weight" in self._left:
            return []
        return [*dict.fromkeys(one.rpartition(".")[0] for one in self._left if one.startswith(f"{name}."))]

    def tower(
        self,
        module: nn.Module,
        prefix: str | None,
        title: str,
        renamed: Renaming | None = None,
        *,
        partly: bool = False,
    ) -> None:
        """Takes the tensors of `module` and puts them there; without a `prefix` the one under which most of its names
        are. `renamed` is what its library makes of names of older releases; all tensors below the prefix are then its,
        or with `partly` those that it has.

        Raises CheckpointError where tensors are missing or do not fit, ConfigError where two prefixes fit.
        """
        self._leave_out()
        needed = module.state_dict().keys()
        start = self._prefix(needed, title) if prefix is None else f"{prefix}." if prefix else ""
        start = f"{start.rstrip('.')}." if start else ""
        if renamed is None:
            tensors = self._take({name: f"{start}{name}" for name in needed if f"{start}{name}" in self._left})
        else:
            tensors = renamed(self._below(start))
            tensors = {name: tensors[name] for name in tensors if not partly or name in needed}
        self._install(module, tensors, title)

    def _leave_out(self) -> None:
        self._left = {name: tensor for name, tensor in self._left.items() if not name.startswith(self._unused)}

    def _below(self, prefix: str) -> dict[str, Tensor]:
        return self._take({name.removeprefix(prefix): name for name in self._left if name.startswith(prefix)})

    def _take(self, names: Mapping[str, str]) -> dict[str, Tensor]:
        return {own: self._left.pop(name) for own, name in names.items()}

    def _install(self, module: nn.Module, tensors: Mapping[str, Tensor], title: str) -> None:
        install(module, tensors, path=self.path, model=title, names=tensors)

    def _counts(self, needed: Collection[str]) -> Counter[str]:
        """Prefix -> how many names of `needed` are below it."""
        return Counter(
            name.removesuffix(own) for own in needed for name in self._left if f".{name}".endswith(f".{own}")
        )

    def scalar(self, name: str) -> Tensor:
        """Takes the tensor `name` of one value, float32 []. Raises CheckpointError."""
        if name not in self._left or self._left[name].numel() != 1:
            raise CheckpointError(f"{self.path} has no tensor '{name}' of one value; {self._near(name)}")
        return self._left.pop(name).detach().to(torch.float32).reshape(())

    def finish(self, title: str) -> None:
        """Raises CheckpointError where tensors are left."""
        self._leave_out()
        if self._left:
            shown = ", ".join([*self._left][:_SHOWN]) + (", ..." if len(self._left) > _SHOWN else "")
            raise CheckpointError(
                f"{self.path} has {len(self._left)} tensors that are no part of {title} ({shown}); if the model does "
                "not need them, write the beginnings of their names as the option 'unused'."
            )

    def layers(self, names: Sequence[str], activation: str = "") -> nn.Sequential:
        """Takes the layers `names`, which follow one another: linear ones, norms, and numbered chains of both.

        A name that is itself a matrix [C, D] multiplies from the right, as in CLIP. Where the numbers of a chain leave
        one out, and between several names, is the `activation`. Raises ConfigError and CheckpointError.
        """
        chain: list[nn.Module] = []
        for name in names:
            parts = self._numbered(name)
            for part, after_gap in parts:
                if chain and (after_gap or part == parts[0][0]):
                    chain.append(self._activation(activation, names))
                chain.append(self._layer(part))
        return nn.Sequential(*chain).eval().requires_grad_(False)

    def _activation(self, activation: str, names: Sequence[str]) -> nn.Module:
        if activation not in ACTIVATIONS:
            raise ConfigError(
                f"'{', '.join(names)}' of {self.path} has several layers, and weights do not show what is between "
                f"them: state the option 'activation' ({', '.join(ACTIVATIONS)})."
            )
        return ACTIVATIONS[activation]()

    def _numbered(self, name: str) -> list[tuple[str, bool]]:
        """The layers of `name` in their order, and whether a number is left out before each: itself, or its numbered
        children, at whatever depth all its tensors share the parts of their names."""
        if name in self._left or f"{name}.weight" in self._left:
            return [(name, False)]
        children = {one.removeprefix(f"{name}.").partition(".")[0] for one in self._left if one.startswith(f"{name}.")}
        if not children:
            raise CheckpointError(f"{self.path} has no layer '{name}'; {self._near(name)}")
        if all(child.isdecimal() for child in children):
            numbers = sorted(map(int, children))
            before = [numbers[0], *(number + 1 for number in numbers[:-1])]
            return [(f"{name}.{number}", number > place) for number, place in zip(numbers, before, strict=True)]
        if len(children) == 1:
            return self._numbered(f"{name}.{children.pop()}")
        raise ConfigError(
            f"The parts of '{name}' in {self.path} have no order ({', '.join(sorted(children)[:_SHOWN])}); name those "
            "that follow one another, as a list."
        )

    def _layer(self, name: str) -> nn.Module:
        if name in self._left:
            matrix, bias = self._left.pop(name).T, None
            parts = {"weight": matrix}
        else:
            parts = self._below(f"{name}.")
            matrix, bias = parts.get("weight", torch.empty(0)), parts.get("bias")
        if matrix.ndim > 2 and matrix[0, 0].numel() == 1:  # a convolution of one cell
            matrix = parts["weight"] = matrix.flatten(1)
        layer: nn.Module
        if matrix.ndim == 2 and parts.keys() <= {"weight", "bias"}:
            layer = nn.Linear(matrix.shape[1], matrix.shape[0], bias=bias is not None, device="meta")
        elif matrix.ndim == 1 and parts.keys() == {"weight", "bias"}:
            layer = nn.LayerNorm(matrix.shape[0], device="meta")
        elif matrix.ndim == 1 and "running_mean" in parts:
            layer = nn.BatchNorm1d(matrix.shape[0], device="meta")
        else:
            raise ConfigError(
                f"'{name}' of {self.path} is neither a linear layer nor a norm: it has "
                f"{', '.join(f'{part} {list(tensor.shape)}' for part, tensor in parts.items())}; write an adapter."
            )
        self._install(layer, parts, f"layer '{name}'")
        return layer

    def _near(self, name: str) -> str:
        layers = sorted({one.removesuffix(".weight") for one in self._left if one.count(".") < 4})
        return near(name, layers, f"its tensors are under {self._places}.")


def chosen(options: Mapping[str, Any], key: str, allowed: Sequence[str], default: str) -> str:
    """The value of `key`, one of `allowed`. Raises ConfigError."""
    value = str(options.get(key, default))
    if value not in allowed:
        raise ConfigError(f"The option '{key}' is '{value}': {did_you_mean(value, allowed)}.")
    return value


def checked(given: object, allowed: Kinds, where: str) -> dict[str, Any]:
    """A table of options with their types. Raises ConfigError for another key or a value of another kind."""
    if not isinstance(given, dict):
        raise ConfigError(f"{where} is not a table of options.")
    for key, value in given.items():
        if key not in allowed:
            raise ConfigError(f"{where} has no key '{key}': {did_you_mean(key, allowed)}.")
        kinds = found if isinstance(found := allowed[key], tuple) else (found,)
        if not isinstance(value, kinds) or isinstance(value, bool) > (bool in kinds):
            raise ConfigError(f"{where}: '{key}' must be {' or '.join(_WORDS[kind] for kind in kinds)}, not {value!r}.")
    return given


_WORDS: Final = {str: "a text", int: "a whole number", float: "a number", list: "a list", dict: "a table"}
