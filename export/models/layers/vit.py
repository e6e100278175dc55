"""timm's Vision Transformer (Dosovitskiy et al. 2021) without a classifier, with its attention written out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import timm
from torch import Tensor

from .attention import attend, split_heads


@dataclass(frozen=True)
class ViTConfig:
    """Sizes; the defaults are ViT-B/16 at 224 pixels."""

    image_size: int = 224
    patch: int = 16
    width: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int = 3072

    @property
    def grid(self) -> int:
        """Patches along one side."""
        return self.image_size // self.patch


class VisionTransformer(timm.models.VisionTransformer):
    """[B, 3, S, S] -> tokens [B, 1 + N, C] after the last norm, the class token first, then the patches row by row."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(
            img_size=config.image_size,
            patch_size=config.patch,
            embed_dim=config.width,
            depth=config.layers,
            num_heads=config.heads,
            mlp_ratio=config.hidden / config.width,
            num_classes=0,
            global_pool="",
        )
        blocks: Any = self.blocks
        for block in blocks:
            block.attn.fused_attn = False  # products and a softmax are exported, and rounded, one by one

    def value_value(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens of `forward`, and those with value-value attention in the last block."""
        x = self._pos_embed(self.patch_embed(image))
        layers: Any = self.blocks
        *blocks, last = layers
        for block in blocks:
            x = block(x)
        values = split_heads(last.attn.qkv(last.norm1(x)).chunk(3, dim=-1)[2], last.attn.num_heads)
        y = x + last.attn.proj(attend(values, values, values).out)
        return self.norm(last(x)), self.norm(y + last.mlp(last.norm2(y)))
