"""Sorts the tensors of somebody's DeViDe file under the adapter's names, by the user's mapping.

Nothing is guessed: a tensor without a place and a place without a tensor are both refused, and all are listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...engines.errors import CheckpointError
from ..checkpoints.reading import Checkpoint
from .devide_config import CheckpointMap, DevideConfig

__all__ = ["map_tensors"]

TRAINING = ("optimizer", "lr_scheduler", "scheduler", "scaler")  # top-level keys that hold no weights
UNUSED = ("text_encoder.logit_scale", "model.logit_scale")
APART = re.compile(r"(.*\.attn\.)(q|k|v|query|key|value)(\.weight|\.bias)")


def map_tensors(
    source: Checkpoint, config: DevideConfig, mapping: CheckpointMap, needed: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor]:
    """The tensors of `source` under the names of `needed` (shapes by name).

    Raises CheckpointError that lists every unmapped and every missing tensor, or two that claim one name.
    """
    origin: dict[str, str] = {}
    found: dict[str, Tensor] = {}
    unmapped: list[str] = []
    for name, tensor in _flat(source.content):
        if name.split(".")[0] in TRAINING or _matches(mapping, name):
            continue
        target = _target(mapping, name)
        if target is None:
            unmapped.append(name)
        elif not _matches(mapping, target.split(".", 1)[1]) and target not in UNUSED:
            if target in found:
                raise CheckpointError(
                    f"{source.path}: the mapping gives {origin[target]} and {name} the same name {target}; correct it."
                )
            origin[target], found[target] = name, tensor
    if mapping.stack_qkv:
        found = _stack(found, origin)
    if config.decoder.input_norm == "shared":
        _share_norm(source, found)
    missing = [name for name in needed if name not in found]
    unmapped += [f"{origin[name]} (as {name})" for name in found if name not in needed]
    if missing or unmapped:
        lists = {"missing": missing, "unmapped": unmapped}
        parts = [f"{len(names)} {kind} ({', '.join(names)})" for kind, names in lists.items() if names]
        raise CheckpointError(
            f"{source.path} does not fill the assumed DeViDe by this mapping: tensors {'; '.join(parts)}; extend "
            "parts, rename or drop in the config."
        )
    positions = "image_encoder.pos_embed"
    if positions in found:
        found[positions] = _resample(found[positions], needed[positions])
    return found


def _flat(content: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every tensor with the dotted path of keys to it."""
    for key, value in content.items():
        if isinstance(value, Tensor):
            yield f"{prefix}{key}", value
        elif isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")


def _matches(mapping: CheckpointMap, name: str) -> bool:
    return any(pattern.search(name) for pattern in mapping.drop)


def _target(mapping: CheckpointMap, name: str) -> str | None:
    """The new name, its part in front; of several parts the one with the longest prefix. None for no part."""
    inside = [part for part, prefix in mapping.parts.items() if not prefix or name.startswith(f"{prefix}.")]
    if not inside:
        return None
    part = max(inside, key=lambda part: len(mapping.parts[part]))
    prefix = mapping.parts[part]
    rest = name[len(prefix) + 1 :] if prefix else name
    for pattern, replacement in mapping.rename:
        rest = pattern.sub(replacement, rest)
    return f"{part}.{rest}"


def _stack(found: Mapping[str, Tensor], origin: dict[str, str]) -> dict[str, Tensor]:
    """Three projections that lie apart become the rows of one, in the order q, k, v; an incomplete trio is left."""
    trios: dict[str, dict[str, str]] = {}
    for name in found:
        if match := APART.fullmatch(name):
            trios.setdefault(f"{match[1]}qkv{match[3]}", {})[match[2][0]] = name
    stacked = dict(found)
    for target, trio in trios.items():
        names = [trio.get(letter, "") for letter in "qkv"]
        if all(names) and len({found[name].shape for name in names}) == 1:
            stacked[target] = torch.cat([stacked.pop(name) for name in names])
            origin[target] = " + ".join(origin[name] for name in names)
    return stacked


def _share_norm(source: Checkpoint, found: dict[str, Tensor]) -> None:
    """One norm may be stored under two names; two different norms contradict the assumption."""
    for kind in ("weight", "bias"):
        alias = found.pop(f"model.decoder_norm.{kind}", None)
        if alias is None:
            continue
        norm = found.setdefault(f"model.decoder.norm.{kind}", alias)
        if not torch.equal(norm, alias):
            raise CheckpointError(
                f"{source.path}: decoder_norm and decoder.norm differ, so they are two norms; set decoder.input_norm "
                "to separate in the config."
            )


def _resample(table: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The position table of another image size, as timm does it: the grid by bicubic interpolation, the first row (of
    the class token) as it is."""
    if tuple(table.shape) == shape or table.ndim != 3 or table.shape[-1] != shape[-1] or not table.is_floating_point():
        return table
    old, new = round((table.shape[1] - 1) ** 0.5), round((shape[1] - 1) ** 0.5)
    if old * old + 1 != table.shape[1]:
        return table
    grid = table[:, 1:].float().reshape(1, old, old, -1).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, (new, new), mode="bicubic", antialias=True)
    return torch.cat([table[:, :1].float(), grid.flatten(2).transpose(1, 2)], dim=1)
