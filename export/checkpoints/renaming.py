"""Gives the tensors of a checkpoint other names, without losing one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...engines.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["renamed"]


def renamed(tensors: Mapping[str, Tensor], rename: Callable[[str], str], *, path: Path) -> dict[str, Tensor]:
    """`tensors` under the names `rename` gives them; `path` is the file they are from.

    Raises CheckpointError when two get one name: which of them the model was trained with, nobody could say.
    """
    origin: dict[str, str] = {}
    for name in tensors:
        other = origin.setdefault(rename(name), name)
        if other != name:
            raise CheckpointError(
                f"{path} holds the tensors {other} and {name}, which are both {rename(name)} to the model; save the "
                "checkpoint again with one of them."
            )
    return {target: tensors[name] for target, name in origin.items()}
