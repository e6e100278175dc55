"""DeViDe (Luo et al. 2024, arXiv 2404.03618) as an assumed architecture.

The authors published neither code nor weights, so parity cannot be checked. The parts are those that the paper names: a
ViT-B/16, KAD's text encoder (Med-KEBERT) and a query decoder like KAD's (docs/parity.md §3.7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from ...engines.errors import CheckpointError
from ...engines.geometry import Geometry
from ..adapter import CheckpointRecord, Saliency, TokenizerSpec, Weights
from ..checkpoints.matching import ModelTensors
from ..checkpoints.reading import read_checkpoint
from ..checkpoints.stand_in import stand_in_module
from ..tokenizing.reference import PUBMED_BERT, bert_reference
from .kad import CONTEXT, TOKENIZERS, Kad, QueryAdapter
from .kad_checkpoint import ANCHORS, PARTS, KadConfig, joined_parts
from .layers.vit import VisionTransformer, ViTConfig
from .normalisation import IMAGENET_MEAN, IMAGENET_STD
from .saliency_maps import LAST_LAYER, MAPS

ASSUMED = "assumed-architecture"  # the only variant: it names the bundle, and so every result


@dataclass(frozen=True)
class DevideConfig:
    """Sizes. Of `kad` the text encoder and the decoder are used; its width is also the width of the patches."""

    vit: ViTConfig = field(default_factory=ViTConfig)
    kad: KadConfig = field(default_factory=KadConfig)


class _Patches(VisionTransformer):
    """[B, 3, S, S] -> patches [B, N, C], without the class token."""

    def forward(self, x: Tensor, *options: Any, **more: Any) -> Tensor:
        tokens = super().forward(x, *options, **more)
        return tokens[:, 1:]


class Devide(Kad):
    """KAD with another image encoder, named as a file must name it (docs/parity.md §3.7)."""

    def __init__(self, config: DevideConfig) -> None:
        super().__init__(config.kad)
        self.vit, self.image_encoder = config.vit, _Patches(config.vit)


class DevideAdapter(QueryAdapter):
    """A file with the assumed tensor names, or stand-in weights; both marked "assumed architecture"."""

    variants: ClassVar[tuple[str, ...]] = (ASSUMED,)
    maps: ClassVar[Mapping[str, str]] = MAPS["devide"]

    @classmethod
    def load(cls, checkpoint: Path) -> Self:
        """Reads a file in KAD's structure: `image_encoder` (timm's names), `text_encoder` and `model` (KAD's names).

        Raises CheckpointError for any other file.
        """
        source = read_checkpoint(checkpoint)
        parts = source.find_parts({**ANCHORS, "image_encoder": "cls_token"})
        if parts is None:
            raise CheckpointError(
                f"{checkpoint} does not hold {', '.join(PARTS)}: DeViDe's code and weights are not public, so its "
                "architecture and tensor names are assumed (KAD's structure with timm's ViT-B/16); save the file again "
                "under these names."
            )
        with torch.device("meta"):
            module = Devide(DevideConfig())
        title = "DeViDe (assumed architecture)"
        ModelTensors(joined_parts(parts, checkpoint), checkpoint, title, source.names()).install(module)
        return cls._describe(module, "published", source.record)

    @classmethod
    def stand_in(cls, variant: str = ASSUMED, seed: int = 0) -> Self:
        """`variant` is "assumed-architecture"."""
        return cls._describe(stand_in_module(lambda: Devide(DevideConfig()), seed), "stand-in", None)

    @classmethod
    def _describe(cls, module: Devide, weights: Weights, record: CheckpointRecord | None) -> Self:
        vit, kad = module.vit, module.config
        return cls(
            module=module,
            name="devide",
            variant=ASSUMED,
            weights=weights,
            geometry=Geometry("squash", vit.image_size, vit.image_size, "bicubic"),
            mean=IMAGENET_MEAN,
            std=IMAGENET_STD,
            grid=(vit.grid, vit.grid),
            saliency=Saliency("attention", cls.maps[LAST_LAYER]),
            text_shape=(kad.decoder.width,),
            text_inputs=("input_ids", "attention_mask"),
            context=min(CONTEXT, kad.bert.positions),
            vocabulary_size=kad.bert.vocabulary,
            tokenizer=TokenizerSpec(
                "wordpiece", TOKENIZERS[:1], ends=(2, 3), sample=PUBMED_BERT, reference=partial(bert_reference, "")
            ),
            checkpoint=record,
        )

    def resize(self, side: int) -> None:
        """By timm's resampling of the positions."""
        tower: Any = self.module.image_encoder
        self.grid = tower.resize(side, self.name)

    def cautions(self) -> tuple[str, ...]:
        """A warning that every export of this model depends on assumptions."""
        return ("DeViDe's code and weights are not public: the architecture is assumed, and results are marked so",)
