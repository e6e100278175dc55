"""timm's Vision Transformer (Dosovitskiy et al. 2021) without a classifier, with its attention written out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import timm
from torch import Tensor, nn

from .attention import attend, split_heads
from .gradient_attention import LastBlock, gelu_slope
from .positions import patches_across


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

    def resize(self, side: int, title: str) -> tuple[int, int]:
        """Resamples the positions for pictures of `side` x `side` pixels, as timm does; returns the grid.

        Raises ConfigError where the patches do not divide the side.
        """
        grid = (patches_across(side, self.patch_embed.patch_size[0], title),) * 2
        self.set_input_size(img_size=(side, side))
        return grid

    def value_value(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens of `forward`, and those with value-value attention in the last block."""
        x, last = self._before_last(image)
        values = split_heads(last.attn.qkv(last.norm1(x)).chunk(3, dim=-1)[2], last.attn.num_heads)
        y = x + last.attn.proj(attend(values, values, values).out)
        return self.norm(last(x)), self.norm(y + last.mlp(last.norm2(y)))

    def weigh_attention(self, image: Tensor, projection: Tensor, text: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """The projected class token [B, D], and the last attention to each patch, weighted by the gradient of the
        scaled cosine of each text [Q, D]: [B, Q, N]. projection: [C, D]."""
        x, last = self._before_last(image)
        mlp, norm = last.mlp, cast(nn.LayerNorm, self.norm)
        block = LastBlock(last.attn.num_heads, last.attn.proj, last.norm2, mlp.fc1, mlp.act, gelu_slope, mlp.fc2,
                          norm, projection)  # fmt: skip
        return block.weigh(x, last.attn.qkv(last.norm1(x)), text, scale)

    def _before_last(self, image: Tensor) -> tuple[Tensor, Any]:
        """What enters the last block, and the block."""
        x = self._pos_embed(self.patch_embed(image))
        layers: Any = self.blocks
        *blocks, last = layers
        for block in blocks:
            x = block(x)
        return x, last
