"""MAVL (Phan et al. 2024, CVPR) as its authors published it (docs/parity.md §3.5).

MedKLIP's decoder with nine queries per class: its description and eight visual aspects (border, fluid, location,
opacity, other, patterns, shape, texture). The map of a class is the mean of four of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..checkpoints.matching import TensorNames
from ..checkpoints.names import without_wrappers
from .clinical_bert import ANCHOR, CELLS, DECODER, RESNET, ClinicalBertAdapter
from .layers.attention import attend, split_heads
from .layers.query_decoder import QueryDecoder, read_map
from .layers.resnet import resnet_features
from .saliency_maps import MAPS, PLAIN, Reading

ASPECTS = 9  # texts of a class, the description first
GROUNDING_ASPECTS = (0, 6, 7, 8)  # description, patterns, shape, texture: the official grounding mode "avg"
POOL_HEADS = 8


class AttentionPool(nn.Module):
    """CLIP's attention pooling: the mean token queries the grid. The table of positions fixes the grid at 14 x 14."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.positional_embedding = nn.Parameter(torch.zeros(CELLS**2 + 1, channels))
        self.q_proj = nn.Linear(channels, channels)
        self.k_proj = nn.Linear(channels, channels)
        self.v_proj = nn.Linear(channels, channels)
        self.c_proj = nn.Linear(channels, width)

    def forward(self, cells: Tensor) -> Tensor:
        """[B, channels, 14, 14] -> [B, width]."""
        tokens = cells.flatten(2).transpose(1, 2)
        tokens = torch.cat([tokens.mean(dim=1, keepdim=True), tokens], dim=1) + self.positional_embedding
        parts = (self.q_proj(tokens[:, :1]), self.k_proj(tokens), self.v_proj(tokens))
        pooled: Tensor = self.c_proj(attend(*(split_heads(part, POOL_HEADS) for part in parts))[0])
        return pooled[:, 0]


class Mavl(nn.Module):
    """The inference model, with the location head and the pooled image feature that grounding does not need."""

    def __init__(self) -> None:
        super().__init__()
        channels, width = RESNET.channels, DECODER.width
        self.backbone = resnet_features(RESNET)
        self.pool = AttentionPool(channels, width)
        self.res_l1 = nn.Sequential(nn.Conv2d(channels, channels, 1), nn.PReLU())
        self.res_l2 = nn.Conv2d(channels, width, 1)
        self.disease_embedding_layer = nn.Linear(768, width)
        self.decoder = QueryDecoder(DECODER)
        self.location_emb = nn.Conv1d(width, 768, ASPECTS, ASPECTS)
        self.classifier = nn.Linear(ASPECTS * width, 2)

    def patches(self, cells: Tensor) -> Tensor:
        """The backbone's map [B, 1024, 14, 14] -> patch features [B, 196, 256], row by row."""
        features: Tensor = self.res_l2(self.res_l1(cells))
        return features.flatten(2).transpose(1, 2)

    def ask(self, patches: Tensor, queries: Tensor, reading: Reading = PLAIN) -> tuple[Tensor, Tensor]:
        """patches [B, N, D], queries [9 Q, D], class by class -> states [B, 9 Q, D], attention [layers, B, 9 Q, N]."""
        states, maps = self.decoder(queries[None], patches, reading)
        return states, torch.stack(maps)

    def classify(self, states: Tensor) -> Tensor:
        """[B, 9 Q, D] -> logits [B, Q, 2] (absent, present) from the nine states of a class, side by side."""
        logits: Tensor = self.classifier(torch.unflatten(states, 1, (-1, ASPECTS)).flatten(2))
        return logits


class MavlAdapter(ClinicalBertAdapter):
    """`checkpoint_full_40.pth` or `checkpoint_full_46.pth`, and Bio_ClinicalBERT.

    A prompt is nine texts: `encode_text` gives one vector for each text, `forward` takes them as [Q, 9, 768] (or, the
    same in the order of the official book, class * 9 + aspect, as [9 Q, 768]).
    """

    names: ClassVar[TensorNames] = TensorNames(
        "MAVL",
        anchors=(ANCHOR,),
        unused="temp",  # training's temperatures, which the official loader drops too
        rename=without_wrappers,
    )
    key: ClassVar[str] = "mavl"
    maps: ClassVar[Mapping[str, str]] = MAPS["mavl"]
    queries: ClassVar[tuple[int, ...]] = (ASPECTS,)

    @classmethod
    def network(cls) -> nn.Module:
        """MAVL, untrained."""
        return Mavl()

    def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """Logit = present - absent, so that its sigmoid is the authors' softmax probability ("feature" mode)."""
        patches, queries = self.net.patches(self.net.backbone(image)), self._queries(text)
        states, layers = self.net.ask(patches, queries, self.reading)
        logits = self.net.classify(states)
        cells = read_map(layers, self.reading, queries, patches)
        aspects = torch.unflatten(cells, 1, (-1, ASPECTS))
        grounding = torch.stack([aspects[:, :, index] for index in GROUNDING_ASPECTS]).mean(dim=0)
        return logits[..., 1] - logits[..., 0], torch.unflatten(grounding, -1, self.grid)

    def _queries(self, text: Tensor) -> Tensor:
        """[Q, 9, 768] or [9 Q, 768] -> [9 Q, 256]."""
        queries: Tensor = self.net.disease_embedding_layer(text)
        return queries.flatten(0, -2)
