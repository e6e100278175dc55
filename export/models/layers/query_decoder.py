"""Pre-norm transformer decoder in which prompts query an image's patches (docs/parity.md §3.3-§3.5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..saliency_maps import PLAIN, Reading
from .attention import Attended, PackedAttention


@dataclass(frozen=True)
class DecoderConfig:
    """Sizes; the defaults are KAD's. Without `self_attention` the prompts do not attend to each other."""

    width: int = 768
    layers: int = 4
    heads: int = 4
    hidden: int = 1024
    self_attention: bool = True


class DecoderLayer(nn.Module):
    """Self-attention among the queries (if any), attention to the image, feed-forward; LayerNorm first, eps 1e-5."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.self_attention = config.self_attention
        if config.self_attention:
            self.self_attn = PackedAttention(config.width, config.heads)
            self.norm1 = nn.LayerNorm(config.width)
        self.multihead_attn = PackedAttention(config.width, config.heads)
        self.linear1 = nn.Linear(config.width, config.hidden)
        self.linear2 = nn.Linear(config.hidden, config.width)
        self.norm2 = nn.LayerNorm(config.width)
        self.norm3 = nn.LayerNorm(config.width)
        self.relu = nn.ReLU()

    def forward(self, queries: Tensor, memory: Tensor) -> tuple[Tensor, Attended]:
        """queries [B or 1, Q, C], memory [B, N, C] -> queries [B, Q, C] and the attention to the image."""
        if self.self_attention:
            x = self.norm1(queries)
            queries = queries + self.self_attn(x, x).out
        seen = self.multihead_attn(self.norm2(queries), memory)
        queries = queries + seen.out
        queries = queries + self.linear2(self.relu(self.linear1(self.norm3(queries))))
        return queries, seen


class QueryDecoder(nn.Module):
    """The layers and the final norm.

    Queries that are the same for every image are given once, with batch 1: they are joined with the batch only in the
    first attention to the image, so the first self-attention is not repeated per image.
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, queries: Tensor, memory: Tensor, reading: Reading = PLAIN) -> tuple[Tensor, list[Tensor]]:
        """queries [B or 1, Q, C], memory [B, N, C] -> states [B, Q, C] and each layer's map [B, Q, N], by default the
        mean of the weights over the heads."""
        maps = []
        for layer in self.layers:
            queries, seen = layer(queries, memory)
            heads = seen.scores if reading.raw else seen.weights
            maps.append(heads.amax(dim=1) if reading.head_maximum else heads.mean(dim=1))
        return self.norm(queries), maps


def read_map(maps: Sequence[Tensor] | Tensor, reading: Reading, queries: Tensor, patches: Tensor) -> Tensor:
    """The map [B, Q, N] of a decoder's layers [layers, B, Q, N], or of its queries [Q, C] and patches [B, N, C]."""
    return cosines(patches, queries) if reading.similarity else join_layers(maps, reading)


def cosines(patches: Tensor, queries: Tensor) -> Tensor:
    """patches [B, N, C], queries [Q, C] -> their cosines [B, Q, N]."""
    return F.normalize(queries, dim=-1) @ F.normalize(patches, dim=-1).transpose(1, 2)


def join_layers(maps: Sequence[Tensor] | Tensor, reading: Reading) -> Tensor:
    """Maps of the layers [layers, ...] -> the last, or their mean."""
    if not reading.all_layers:
        return maps[-1]
    stacked = maps if isinstance(maps, Tensor) else torch.stack(list(maps))
    return stacked.mean(dim=0)
