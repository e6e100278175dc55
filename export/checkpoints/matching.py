"""Compares a checkpoint's tensors with those a model needs, and gives them the model's names."""

from __future__ import annotations

import math
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
class TensorSizes:
    """Reads a model's sizes from the shapes of a checkpoint's tensors; `names` are the file's own tensor names."""

    tensors: Mapping[str, Tensor]
    path: Path
    model: str
    names: Iterable[str]

    def __call__(self, name: str, dimensions: int = 2) -> tuple[int, ...]:
        """The shape of the tensor `name`. Raises CheckpointError if it is missing or has other dimensions."""
        if name not in self.tensors:
            other = identify(self.names)
            place = place_of({name: ()}, (), self.names)
            guess = f"; {place}" if place else ""
            guess = f"; it looks like a checkpoint of {other}" if other and other != self.model else guess
            raise CheckpointError(
                f"{self.path} is not a checkpoint of {self.model}: the tensor {name} is missing{guess}."
            )
        shape = tuple(self.tensors[name].shape)
        if len(shape) != dimensions or 0 in shape:
            raise CheckpointError(
                f"{self.path} is not a checkpoint of {self.model}: {name} has the shape {list(shape)}."
            )
        return shape

    def count(self, prefix: str, start: int = 0) -> int:
        """How many numbered children, from `start`, the module `prefix` (with its dot) has."""
        children = {name.removeprefix(prefix).split(".")[0] for name in self.tensors if name.startswith(prefix)}
        return sum(child.isdigit() and int(child) >= start for child in children)


def match_tensors(
    needed: Mapping[str, tuple[int, ...]],
    found: Mapping[str, Tensor],
    *,
    path: Path,
    model: str,
    names: Iterable[str] = (),
) -> None:
    """Checks that `found` has exactly the tensors `needed`, name by name and shape by shape.

    `names` are the file's own tensor names, from which another known model is recognised. Raises CheckpointError with
    the first few missing, unexpected and wrongly shaped tensors, and with what is known of such names.
    """
    shapes = {name: tuple(tensor.shape) for name, tensor in found.items()}
    if shapes == needed:
        return
    missing = [name for name in needed if name not in found]
    unexpected = [name for name in found if name not in needed]
    wrong = [
        f"{name} {list(shapes[name])} instead of {list(needed[name])}"
        for name in needed
        if name in shapes and shapes[name] != needed[name]
    ]
    differences = {"missing": missing, "unexpected": unexpected, "of another shape": wrong}
    parts = [f"{len(items)} {kind} ({_first(items)})" for kind, items in differences.items() if items]
    other = identify(names)
    known = other in (None, identify(needed)) or str(other).lower() == model.lower()
    told = [] if known else [f"it looks like a checkpoint of {other}"]
    told += [_other_image_size(name, shapes[name], needed[name]) for name in needed if name in shapes]
    told += [place_of(needed, found, names), nearest_form(unexpected, found)]
    guess = "; ".join(filter(None, told))
    raise CheckpointError(
        f"{path} does not fit the model {model}: tensors {', '.join(parts)}{f'; {guess}' if guess else ''}."
    )


def patches_per_side(found: Sequence[int], own: Sequence[int]) -> tuple[int, int] | None:
    """The sides of two square grids of patches, from the shapes [N, C] or [1, N, C] of the embeddings of their
    positions, which have as many class tokens; None where only one grid is square, or both are equal."""
    if len(found) != len(own) or not len(own) >= 2 or found[-1] != own[-1]:
        return None
    tokens = own[-2] - math.isqrt(own[-2]) ** 2
    if tokens > _MOST_TOKENS:
        return None
    side = math.isqrt(max(found[-2] - tokens, 0))
    if found[-2] == own[-2] or side == 0 or side**2 + tokens != found[-2]:
        return None
    return side, math.isqrt(own[-2])


def _other_image_size(name: str, found: tuple[int, ...], own: tuple[int, ...]) -> str:
    """A sentence on the embeddings of the positions of an image tower, if they are those of another image size."""
    positions = any(has_word(name, word) for word in ("pos", "position", "positional"))
    image = positions and "." in name and not has_word(name, "text")  # CLIP's text tower is at the top
    sides = patches_per_side(found, own) if image else None
    if sides is None:
        return ""
    one, other = sides
    return (
        f"the checkpoint is of another image size, because it has the positions of {one} x {one} patches and the model "
        f"those of {other} x {other}, which are not resampled"
    )


def install(
    module: nn.Module, found: Mapping[str, Tensor], *, path: Path, model: str, names: Iterable[str] = ()
) -> None:
    """Puts float32 copies of `found` into `module` (built on the meta device), checked, in evaluation mode.

    Raises CheckpointError as `match_tensors`, and for a tensor that is sparse, does not own all its values, holds
    numbers of another kind than the model's (whole or complex ones for real ones), or one that is not finite.
    """
    needed = module.state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in needed.items()}
    if not needed.keys() >= found.keys():
        found = renamed(found, lambda name: _as_needed(name, needed), path=path)
    match_tensors(shapes, found, path=path, model=model, names=names)
    own = {name: _own(name, tensor, needed[name], path) for name, tensor in found.items()}
    module.load_state_dict(own, strict=True, assign=True)
    module.eval().requires_grad_(False)


def _as_needed(name: str, needed: Mapping[str, Tensor]) -> str:
    """The name of the model's own tensor, if only a wrapper inside the name keeps the two apart."""
    plain = without_wrappers(name)
    return plain if name not in needed and plain in needed else name


def _own(name: str, tensor: Tensor, wanted: Tensor, path: Path) -> Tensor:
    import torch

    if tensor.layout is not torch.strided or _repeats(tensor):
        raise CheckpointError(f"The tensor {name} of {path} is not stored as plain values; save the checkpoint again.")
    if tensor.is_floating_point() and not wanted.is_floating_point() and bool((tensor == tensor.trunc()).all()):
        # Counters and positions, cast together with the weights; infinity is lost when they are cast back.
        whole = tensor.to(wanted.dtype)
        if bool((whole == tensor).all()):
            return whole
    if tensor.is_complex() or tensor.is_floating_point() != wanted.is_floating_point():
        found, own = (str(one.dtype).removeprefix("torch.") for one in (tensor, wanted))
        raise CheckpointError(
            f"The tensor {name} of {path} is {found}, the model's own is {own}; save the checkpoint again with numbers "
            "of that kind (quantised weights cannot be exported)."
        )
    if not tensor.is_floating_point():
        return tensor.clone()
    values = tensor.detach().to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    if not bool(values.isfinite().all()):
        raise CheckpointError(f"The tensor {name} of {path} holds values that are not finite; the file is damaged.")
    return values


def _repeats(tensor: Tensor) -> bool:
    """Whether one stored value stands for several."""
    return any(size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True))


def _first(items: list[str]) -> str:
    return ", ".join(items[:SHOWN]) + (", ..." if len(items) > SHOWN else "")


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
