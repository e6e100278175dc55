"""Compares a checkpoint's tensors with those a model needs, and gives them the model's names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...engines.errors import CheckpointError
from .names import has_word, nearest_form, place_of, without_wrappers

if TYPE_CHECKING:
    from torch import Tensor, nn

_MOST_TOKENS = 8  # before the patches of an image tower: class token and registers
SHOWN = 3  # tensors listed per kind of difference

# Parts of tensor names that together identify a model, the most specific first.
SIGNATURES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("CARZero", ("CARZero.", "fusion_module.")),
    ("AFLoc", ("afloc.", "img_encoder.local_embedder.")),
    ("BiomedCLIP", ("visual.trunk.blocks.", "text.transformer.")),
    ("CLIP (a ResNet variant)", ("visual.attnpool.",)),
    ("CLIP", ("visual.transformer.resblocks.",)),
    ("CLIP (transformers names)", ("vision_model.encoder.layers.", "text_model.")),
    ("BioViL-T (image weights)", ("encoder.backbone_to_vit.", "projector.model.")),
    ("BioViL (image weights)", ("encoder.encoder.layer4.", "projector.model.")),
    ("BioViL or BioViL-T (text weights)", ("cls_projection_head.",)),
    ("MAVL", ("backbone.", "disease_embedding_layer.")),
    ("MedKLIP", ("res_features.", "disease_embedding_layer.")),
    ("KAD", ("image_encoder.", "text_encoder.bert_model.", "mlp_head.")),
    ("torchxrayvision's DenseNet-121", ("features.denseblock1.",)),
    ("a BERT text encoder alone", ("embeddings.word_embeddings.",)),
)


def identify(names: Iterable[str]) -> str | None:
    """The known model whose tensor names these look like, or None."""
    text = "\n".join(f".{name}" for name in names)  # a mark is a whole part of a name
    return next((model for model, marks in SIGNATURES if all(f".{mark}" in text for mark in marks)), None)


@dataclass(frozen=True)
class TensorNames:
    """How the published files of `model` name its tensors.

    `anchors` are tensors that a file holds, by which the prefix of all names is found. `rename` gives the module's
    names. `aliases` are pairs of a second name and the module's own, which counts where a file has both. `unused` is a
    pattern of the module's names: the model does not need tensors that match it.
    """

    model: str
    anchors: tuple[str, ...] = ()
    unused: str = ""
    rename: Callable[[str], str] = str
    aliases: tuple[tuple[str, str], ...] = ()

    def of(self, tensors: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
        """The tensors of the file at `path` that the model needs, under the module's names. Raises CheckpointError."""
        named = renamed(tensors, self.rename, path=path)
        for alias, name in self.aliases:
            if alias in named:
                named.setdefault(name, named.pop(alias))
        return {name: x for name, x in named.items() if not (self.unused and re.search(self.unused, name))}


@dataclass(frozen=True)
class ModelTensors:
    """A model's tensors from the file at `path`, whose own names of all tensors are `names`."""

    by_name: Mapping[str, Tensor]
    path: Path
    model: str
    names: Iterable[str]

    def install(self, module: nn.Module) -> None:
        """As the function `install`."""
        install(module, self.by_name, path=self.path, model=self.model, names=self.names)

    def shape(self, name: str, dimensions: int = 2) -> tuple[int, ...]:
        """The shape of the tensor `name`. Raises CheckpointError if it is missing or has other dimensions."""
        if name not in self.by_name:
            other = identify(self.names)
            hint = place_of({name: ()}, (), self.names)
            guess = f"; {hint}" if hint else ""
            guess = f"; it looks like a checkpoint of {other}" if other and other != self.model else guess
            raise CheckpointError(
                f"{self.path} is not a checkpoint of {self.model}: the tensor {name} is missing{guess}."
            )
        shape = tuple(self.by_name[name].shape)
        if len(shape) != dimensions or 0 in shape:
            raise CheckpointError(
                f"{self.path} is not a checkpoint of {self.model}: {name} has the shape {list(shape)}."
            )
        return shape

    def count(self, prefix: str, start: int = 0) -> int:
        """How many numbered children, from `start`, the module `prefix` (with its dot) has."""
        children = {name.removeprefix(prefix).split(".")[0] for name in self.by_name if name.startswith(prefix)}
        return sum(child.isdigit() and int(child) >= start for child in children)


def match_tensors(
    needed: Mapping[str, tuple[int, ...]],
    tensors: Mapping[str, Tensor],
    *,
    path: Path,
    model: str,
    names: Iterable[str] = (),
) -> None:
    """Checks that `tensors` has exactly the tensors `needed`, name by name and shape by shape.

    `names` are the file's own tensor names, from which another known model is recognised. Raises CheckpointError with
    the first few missing, unexpected and wrongly shaped tensors, and with hints from their names.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if shapes == needed:
        return
    missing = [name for name in needed if name not in tensors]
    unexpected = [name for name in tensors if name not in needed]
    wrong = [
        f"{name} {list(shapes[name])} instead of {list(needed[name])}"
        for name in needed
        if name in shapes and shapes[name] != needed[name]
    ]
    differences = {"missing": missing, "unexpected": unexpected, "of another shape": wrong}
    parts = [
        f"{len(items)} {difference} ({', '.join(items[:SHOWN])}{', ...' if len(items) > SHOWN else ''})"
        for difference, items in differences.items()
        if items
    ]
    other = identify(names)
    expected = other in (None, identify(needed)) or str(other).lower() == model.lower()
    hints = [] if expected else [f"it looks like a checkpoint of {other}"]
    hints += [_other_image_size(name, shapes[name], needed[name]) for name in needed if name in shapes]
    hints += [place_of(needed, tensors, names), nearest_form(unexpected, tensors)]
    guess = "; ".join(filter(None, hints))
    raise CheckpointError(
        f"{path} does not fit the model {model}: tensors {', '.join(parts)}{f'; {guess}' if guess else ''}."
    )


def patches_per_side(stored: Sequence[int], needed: Sequence[int]) -> tuple[int, int] | None:
    """The sides of two square grids of patches, from the shapes [N, C] or [1, N, C] of the embeddings of their
    positions, which have as many class tokens; None where only one grid is square, or both are equal."""
    if len(stored) != len(needed) or not len(needed) >= 2 or stored[-1] != needed[-1]:
        return None
    tokens = needed[-2] - math.isqrt(needed[-2]) ** 2
    if tokens > _MOST_TOKENS:
        return None
    side = math.isqrt(max(stored[-2] - tokens, 0))
    if stored[-2] == needed[-2] or side == 0 or side**2 + tokens != stored[-2]:
        return None
    return side, math.isqrt(needed[-2])


def _other_image_size(name: str, stored: tuple[int, ...], needed: tuple[int, ...]) -> str:
    """A sentence for an image tower whose embeddings of positions belong to another image size; else empty."""
    positions = any(has_word(name, word) for word in ("pos", "position", "positional"))
    # CLIP's text tower is at the top, and so are the positions of timm's image towers.
    image = positions and ("." in name or name == "pos_embed") and not has_word(name, "text")
    sides = patches_per_side(stored, needed) if image else None
    if sides is None:
        return ""
    one, other = sides
    return (
        f"the checkpoint is of another image size, because it has the positions of {one} x {one} patches and the model "
        f"has {other} x {other}, and positions are not resampled"
    )


def install(
    module: nn.Module, tensors: Mapping[str, Tensor], *, path: Path, model: str, names: Iterable[str] = ()
) -> None:
    """Puts float32 copies of `tensors` into `module` (built on the meta device), checked, in evaluation mode.

    Raises CheckpointError as `match_tensors`, and for a tensor that is sparse, does not own all its values, holds
    numbers of another kind than the model's (whole or complex ones for real ones), or one that is not finite.
    """
    needed = module.state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in needed.items()}
    if not needed.keys() >= tensors.keys():
        # Only a wrapper inside the name may keep the two apart: what the model itself has keeps its name.
        plain = {name: without_wrappers(name) for name in tensors if name not in needed}
        tensors = renamed(tensors, lambda name: plain[name] if plain.get(name) in needed else name, path=path)
    match_tensors(shapes, tensors, path=path, model=model, names=names)
    values = {name: _converted(name, tensor, needed[name], path) for name, tensor in tensors.items()}
    module.load_state_dict(values, strict=True, assign=True)
    module.eval().requires_grad_(False)


def _converted(name: str, tensor: Tensor, wanted: Tensor, path: Path) -> Tensor:
    import torch

    strided = tensor.layout is torch.strided
    # A step of 0 lets one stored value stand for several.
    if not strided or any(size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True)):
        raise CheckpointError(f"The tensor {name} of {path} is not stored as plain values; save the checkpoint again.")
    if tensor.is_floating_point() and not wanted.is_floating_point() and bool((tensor == tensor.trunc()).all()):
        # Counters and positions, cast together with the weights; infinity is lost when they are cast back.
        converted = tensor.to(wanted.dtype)
        if bool((converted == tensor).all()):
            return converted
    if tensor.is_complex() or tensor.is_floating_point() != wanted.is_floating_point():
        stored, needed = (str(one.dtype).removeprefix("torch.") for one in (tensor, wanted))
        raise CheckpointError(
            f"The tensor {name} of {path} is {stored}, the model's own is {needed}; save the checkpoint again with "
            "numbers of that kind (quantised weights cannot be exported)."
        )
    if not tensor.is_floating_point():
        return tensor.clone()
    values = tensor.detach().to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    if not bool(values.isfinite().all()):
        raise CheckpointError(f"The tensor {name} of {path} holds values that are not finite; the file is damaged.")
    return values


def renamed(tensors: Mapping[str, Tensor], rename: Callable[[str], str], *, path: Path) -> dict[str, Tensor]:
    """`tensors` under the names `rename` gives them; `path` is the file they are from.

    Raises CheckpointError when two get the same name, because it is unknown which of them belongs to the model.
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
