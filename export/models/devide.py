"""DeViDe (Luo et al. 2024, arXiv 2404.03618) as an assumed architecture.

The authors published neither code nor weights, so parity cannot be checked. The parts are those that the paper names: a
ViT-B/16, KAD's text encoder (Med-KEBERT) and a query decoder like KAD's (docs/parity.md §3.7).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from ...engines.errors import CheckpointError
from ...engines.geometry import Geometry
from ..adapter import Adapter, CheckpointRecord, Saliency, TokenizerSpec, Weights
from ..checkpoints.matching import install
from ..checkpoints.reading import read_checkpoint
from ..checkpoints.stand_in import fill_module
from ..tokenizing.reference import bert_reference
from .kad import CONTEXT, TOKENIZERS, KadText, QueryNetwork
from .kad_checkpoint import ANCHORS, PARTS, KadConfig, joined_parts
from .layers.query_decoder import join_layers
from .layers.vit import VisionTransformer, ViTConfig
from .normalisation import IMAGENET_MEAN, IMAGENET_STD
from .saliency_maps import LAST_LAYER, MAPS, reading_of
from .vocabularies import PUBMED_BERT

ASSUMED = "assumed-architecture"  # the only variant: it names the bundle, and so every result


@dataclass(frozen=True)
class DevideConfig:
    """Sizes. Of `kad` the text encoder and the decoder are used; its width is also the width of the patches."""

    vit: ViTConfig = field(default_factory=ViTConfig)
    kad: KadConfig = field(default_factory=KadConfig)


class Devide(nn.Module):
    """The three parts, named as a file must name them (docs/parity.md §3.7)."""

    def __init__(self, config: DevideConfig) -> None:
        super().__init__()
        self.config = config
        self.image_encoder = VisionTransformer(config.vit)
        self.text_encoder = KadText(config.kad)
        self.model = QueryNetwork(config.kad)


class DevideAdapter(Adapter):
    """A file with the assumed tensor names, or stand-in weights; both marked "assumed architecture"."""

    variants: ClassVar[tuple[str, ...]] = (ASSUMED,)
    maps: ClassVar[Mapping[str, str]] = MAPS["devide"]
    module: Devide

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
        install(
            module, joined_parts(parts), path=checkpoint, model="DeViDe (assumed architecture)", names=source.names()
        )
        return cls._describe(module, "published", source.record)

    @classmethod
    def stand_in(cls, variant: str = ASSUMED, seed: int = 0) -> Self:
        """`variant` is "assumed-architecture"."""
        with torch.device("meta"):
            module = Devide(DevideConfig())
        fill_module(module, seed)
        return cls._describe(module, "stand-in", None)

    @classmethod
    def _describe(cls, module: Devide, weights: Weights, record: CheckpointRecord | None) -> Self:
        vit, kad = module.config.vit, module.config.kad
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
            logit_scale=1.0,
            text_shape=(kad.decoder.width,),
            text_inputs=("input_ids", "attention_mask"),
            context=min(CONTEXT, kad.bert.positions),
            vocabulary_size=kad.bert.vocabulary,
            tokenizer=TokenizerSpec(
                "wordpiece", TOKENIZERS[:1], ends=(2, 3), sample=PUBMED_BERT, reference=partial(bert_reference, "")
            ),
            checkpoint=record,
        )

    def cautions(self) -> tuple[str, ...]:
        """A warning that every export of this model depends on assumptions."""
        return ("DeViDe's code and weights are not public: the architecture is assumed, and results are marked so",)

    def encode_text(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """int64 [T, N] -> float32 [T, D]; without a mask every position counts as a token."""
        features: Tensor = self.module.text_encoder(ids, torch.ones_like(ids) if mask is None else mask)
        return features

    def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """Logit = present - absent, so that its sigmoid is the softmax probability of "present"."""
        reading = reading_of(self.map_name, self.maps)
        logits, maps = self.module.model.ask(self.module.image_encoder(image)[:, 1:], text, reading)
        return logits[..., 1] - logits[..., 0], torch.unflatten(join_layers(maps, reading), -1, self.grid)

    def outputs(self, image: Tensor, text: Tensor) -> dict[str, Tensor]:
        """`image_cls` [B, C], `image_patches` [B, N, C], `text_features`, `logits` [B, Q, 2], `probability` [B, Q],
        `attention` [B, Q, N], `attention_map` [B, Q, h, w]."""
        tokens = self.module.image_encoder(image)
        logits, attention = self.module.model(tokens[:, 1:], text)
        return {
            "image_cls": tokens[:, 0],
            "image_patches": tokens[:, 1:],
            "text_features": text,
            "logits": logits,
            "probability": logits.softmax(dim=-1)[..., 1],
            "attention": attention,
            "attention_map": torch.unflatten(attention, -1, self.grid),
        }
