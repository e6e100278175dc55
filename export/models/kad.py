"""KAD (Zhang et al. 2023, Nature Communications 14:4542) as its authors published it (docs/parity.md §3.4).

An image becomes a grid of patch features, a prompt becomes one vector, and in a small decoder the prompts attend to
the patches: its last attention is the saliency map, its two outputs per prompt are "absent" and "present".
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from ...engines.geometry import Geometry
from ..adapter import Adapter, CheckpointRecord, Saliency, TokenizerSpec, Weights
from ..checkpoints.reading import read_checkpoint
from ..checkpoints.stand_in import stand_in_module
from ..tokenizing.reference import PUBMED_BERT, bert_reference
from .kad_checkpoint import CONFIGS, KadConfig, read_parts
from .layers.bert import Bert
from .layers.query_decoder import QueryDecoder, read_map
from .layers.resnet import ResNetGrid
from .normalisation import IMAGENET_MEAN, IMAGENET_STD
from .saliency_maps import LAST_LAYER, MAPS, PLAIN, Reading, reading_of

TOKENIZERS = (
    "xmcmic/Med-KEBERT",
    "GanjinZero/UMLSBert_ENG",
    "microsoft/BiomedNLP-PubMedBERT-base-uncased-abstract-fulltext",
)
CONTEXT = 256


class KadText(nn.Module):
    """BERT's pooled output and two linear layers."""

    def __init__(self, config: KadConfig) -> None:
        super().__init__()
        self.bert_model = Bert(config.bert)
        width = config.decoder.width
        self.mlp_embed = nn.Sequential(nn.Linear(config.bert.width, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """int64 [T, N] -> text features [T, D], not normalised."""
        features: Tensor = self.mlp_embed(self.bert_model.pool(self.bert_model(ids, mask)[-1]))
        return features


class QueryNetwork(nn.Module):
    """Prompts query the patches. One LayerNorm is used three times: on both inputs and after the last layer."""

    def __init__(self, config: KadConfig) -> None:
        super().__init__()
        self.decoder = QueryDecoder(config.decoder)
        self.mlp_head = nn.Sequential(nn.Linear(config.decoder.width, 2))

    def forward(self, patches: Tensor, text: Tensor, reading: Reading = PLAIN) -> tuple[Tensor, list[Tensor]]:
        """patches [B, N, D], text [Q, D] -> logits [B, Q, 2] (absent, present), the map of every layer [B, Q, N]."""
        norm = self.decoder.norm
        states, maps = self.decoder(norm(text)[None], norm(patches), reading)
        return self.mlp_head(states), maps


class Kad(nn.Module):
    """The three parts, named as the top-level keys of a published checkpoint."""

    def __init__(self, config: KadConfig) -> None:
        super().__init__()
        self.config = config
        self.image_encoder: nn.Module = ResNetGrid(config.resnet, config.decoder.width)
        self.text_encoder = KadText(config)
        self.model = QueryNetwork(config)

    def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """image [B, 3, S, S], text features [Q, D] -> logits [B, Q, 2], the last layer's attention [B, Q, N]."""
        logits, maps = self.model(self.image_encoder(image), text)
        return logits, maps[-1]


class QueryAdapter(Adapter):
    """What KAD and DeViDe share: prompts query patches."""

    module: Kad

    def encode_text(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """int64 [T, N] -> float32 [T, D]; without a mask every position counts as a token."""
        features: Tensor = self.module.text_encoder(ids, torch.ones_like(ids) if mask is None else mask)
        return features

    def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """Logit = present - absent, so that its sigmoid is the authors' softmax probability of "present"."""
        reading = reading_of(self.map_name, self.maps)
        patches = self.module.image_encoder(image)
        logits, maps = self.module.model(patches, text, reading)
        score = logits[..., 1] - logits[..., 0]
        return score, torch.unflatten(read_map(maps, reading, text, patches), -1, self.grid)


class KadAdapter(QueryAdapter):
    """KAD-224, KAD-512, KAD-1024, and smaller models in the same checkpoint structure."""

    variants: ClassVar[tuple[str, ...]] = tuple(CONFIGS)
    maps: ClassVar[Mapping[str, str]] = MAPS["kad"]

    @classmethod
    def load(cls, checkpoint: Path, *, resolution: int | None = None) -> Self:
        """Reads `best_valid.pt`. KAD-512 and KAD-1024 have the same tensors: `resolution` (pixels) says which it is, by
        default KAD-512 where the file does not say. Raises CheckpointError."""
        source = read_checkpoint(checkpoint)
        parts = read_parts(source, resolution)
        with torch.device("meta"):
            module = Kad(parts.config)
        parts.tensors.install(module)
        return cls._describe(module, parts.variant, parts.weights, parts.vocabulary, source.record)

    @classmethod
    def stand_in(cls, variant: str, seed: int = 0) -> Self:
        """`variant` is one of `variants`; "demo" is a model of a few hundred thousand values for quick tests."""
        module = stand_in_module(lambda: Kad(CONFIGS[variant]), seed)
        return cls._describe(module, variant, "stand-in", None, None)

    @classmethod
    def _describe(
        cls,
        module: Kad,
        variant: str,
        weights: Weights,
        vocabulary: tuple[str, ...] | None,
        record: CheckpointRecord | None,
    ) -> Self:
        size, bert = module.config.image_size, module.config.bert
        side = module.config.resnet.grid(size)
        return cls(
            module=module,
            name="kad",
            variant=variant,
            weights=weights,
            geometry=Geometry("squash", size, size, "bicubic"),
            mean=IMAGENET_MEAN,
            std=IMAGENET_STD,
            grid=(side, side),
            saliency=Saliency("attention", cls.maps[LAST_LAYER]),
            text_shape=(module.config.decoder.width,),
            text_inputs=("input_ids", "attention_mask"),
            context=min(CONTEXT, bert.positions),
            vocabulary_size=bert.vocabulary,
            tokenizer=TokenizerSpec(
                "wordpiece",
                TOKENIZERS,
                vocabulary=vocabulary,
                reference=partial(bert_reference, ""),
                ends=None if vocabulary else (2, 3),
                sample=None if vocabulary else PUBMED_BERT,
            ),
            checkpoint=record,
        )

    def resize(self, side: int) -> None:
        """Convolutions and a decoder without positions take any size."""
        self.grid = (self.module.config.resnet.grid(side),) * 2
