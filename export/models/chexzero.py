"""CheXzero (Tiu et al. 2022, Nature Biomedical Engineering): CLIP ViT-B/32 with another preparation of the image and
another score, of one checkpoint or of several (docs/parity.md §3.10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...engines.errors import CheckpointError
from ...engines.geometry import Geometry
from ..adapter import CheckpointRecord, Weights
from ..checkpoints.given_paths import weight_files
from ..checkpoints.stand_in import stand_in_module
from .clip import PATCHES, SIZE, ClipAdapter, build_clip, image_vectors, read_clip, text_vectors, weighed_attention
from .layers.positions import resize_tower
from .layers.resampling import Resampled, bicubic_matrix
from .published_checkpoints import PUBLISHED
from .saliency_maps import MAPS

if TYPE_CHECKING:
    from open_clip.model import CLIP

VARIANT = "vit-b-32"
SQUARE = 320  # the side to which the authors' code pads and resizes images before the graph (docs/parity.md)
MEAN, STD = (101.48761 / 255,) * 3, (83.43944 / 255,) * 3


class Members(nn.Module):
    """The network of each checkpoint, and the resize of the image that they share."""

    def __init__(self, members: Sequence[CLIP]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.shrink = Resampled(bicubic_matrix(SIZE, SQUARE))


class ChexzeroAdapter(ClipAdapter):
    """CheXzero's weights. Of several checkpoints the score is the mean of their differences of cosines, the map the
    mean of their cosines: their vectors, each of length 1, are joined."""

    variants: ClassVar[tuple[str, ...]] = (VARIANT,)
    maps: ClassVar[Mapping[str, str]] = MAPS["chexzero"]
    module: Members

    @classmethod
    def load(cls, checkpoint: Path) -> Self:
        """Reads one of the authors' files, or all files of a folder. Raises CheckpointError."""
        files = weight_files(checkpoint) if checkpoint.is_dir() else []
        members = [_read(path) for path in (files if len(files) > 1 else [checkpoint])]
        records = [record for _, record in members]
        return cls._of([module for module, _ in members], "published", _joined(checkpoint, records))

    @classmethod
    def stand_in(cls, variant: str = VARIANT, seed: int = 0) -> Self:
        """`variant` is "vit-b-32"; one checkpoint."""
        return cls._of([stand_in_module(lambda: build_clip(PATCHES[variant]), seed)], "stand-in", None)

    @classmethod
    def _of(cls, members: Sequence[CLIP], weights: Weights, record: CheckpointRecord | None) -> Self:
        clip, count = cls._describe(members[0], VARIANT, weights, record), len(members)
        return replace(
            clip,
            module=Members(members).eval(),
            name="chexzero",
            variant=VARIANT if count == 1 else f"{VARIANT}-mean-of-{count}",
            geometry=Geometry("pad_crop", SQUARE, SQUARE, "lanczos"),
            mean=MEAN,
            std=STD,
            logit_scale=1.0,
            text_shape=(count * clip.text_shape[0],),
            tokenizer=replace(clip.tokenizer, refuses_long=True),
        )

    @property
    def resolution(self) -> int:
        """Side of the picture after the resize inside the graph."""
        return self.module.shrink.matrix.shape[0]

    def resize(self, side: int) -> None:
        """By resampling the positions, as open_clip does; the square before the graph's resize grows alike."""
        for model in self._members:
            resize_tower(model.visual, side, self.name)
            self.grid = model.visual.grid_size
        self.module.shrink = Resampled(bicubic_matrix(side, round(SQUARE * side / SIZE)))

    def cautions(self) -> tuple[str, ...]:
        """Warnings that the published numbers need several checkpoints, and that OpenAI's file is not CheXzero."""
        if self.checkpoint is None or len(self.module.members) > 1:
            return ()
        if self.checkpoint.sha256 in PUBLISHED["clip"].sha256.values():
            return (f"{self.checkpoint.name} is OpenAI's CLIP (sha256), which CheXzero was trained from, not CheXzero",)
        return (
            f"{self.checkpoint.name} is one checkpoint; CheXzero's published numbers are the mean of the probabilities "
            "of all files of its folder: give that folder as --checkpoint",
        )

    def scale(self) -> Tensor:
        """1: the checkpoint's `logit_scale` is not used."""
        return torch.ones(())

    def encode_text(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """int64 [T, N], padded with 0 -> float32 [T, 512], or [T, 512 * members], each part of length 1."""
        return self._side_by_side([text_vectors(model, ids) for model in self._members])

    def encode_image(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Class token [B, D] and patches [B, N, D] of the square of 320 pixels, or of one that is resized already."""
        return self._encode(image)

    def encode_values(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The same class token, and the patches with value-value attention in the last block."""
        return self._encode(image, values=True)

    def weigh_attention(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """The same class token, and the mean over the members of their attention weighted by its gradient."""
        image, texts = self._shrunk(image), text.chunk(len(self._members), dim=-1)
        pairs = [weighed_attention(model, image, part, self.scale())
                 for model, part in zip(self._members, texts, strict=True)]  # fmt: skip
        vectors, maps = zip(*pairs, strict=True)
        return self._side_by_side(vectors), torch.stack(maps).mean(dim=0)

    @property
    def _members(self) -> Sequence[CLIP]:
        return list(self.module.members)

    def _encode(self, image: Tensor, *, values: bool = False) -> tuple[Tensor, Tensor]:
        image = self._shrunk(image)
        vectors = [image_vectors(model, image, values=values) for model in self._members]
        pooled, patches = ([pair[part] for pair in vectors] for part in (0, 1))
        return self._side_by_side(pooled), self._side_by_side(patches)

    def _shrunk(self, image: Tensor) -> Tensor:
        if image.shape[-1] != self.resolution:  # the three channels are equal
            image = self.module.shrink(image[:, :1]).expand(-1, 3, -1, -1)
        return image

    def _side_by_side(self, vectors: Sequence[Tensor]) -> Tensor:
        if len(vectors) == 1:
            return vectors[0]
        return torch.cat([F.normalize(x, dim=-1) for x in vectors], dim=-1)


def _read(path: Path) -> tuple[CLIP, CheckpointRecord]:
    try:
        module, _, record = read_clip(path, {VARIANT: PATCHES[VARIANT]})
    except CheckpointError as error:
        if "patches of 16 pixels" not in str(error):
            raise
        raise CheckpointError(
            f"{path} has patches of 16 pixels: CheXzero's code trains this network without CLIP's weights, but its "
            "published files are ViT-B/32; give one of those."
        ) from error
    return module, record


def _joined(folder: Path, records: Sequence[CheckpointRecord]) -> CheckpointRecord:
    """One record of all files: the sha256 of the list that `sha256sum` would print. Raises CheckpointError if one file
    is there twice."""
    if len(records) == 1:
        return records[0]
    names: dict[str, str] = {}
    for record in records:
        if other := names.get(record.sha256):
            raise CheckpointError(
                f"{other} and {record.name} in {folder} are the same file; it would count twice: remove one."
            )
        names[record.sha256] = record.name
    lines = "".join(f"{record.sha256}  {record.name}\n" for record in sorted(records, key=lambda one: one.name))
    note = f"the {len(records)} checkpoints of {folder.name} are averaged: {', '.join(names.values())}"
    activations = dict.fromkeys(record.activation for record in records if record.activation)
    return CheckpointRecord(folder.name, sha256(lines.encode()).hexdigest(), note, "; ".join(activations))
