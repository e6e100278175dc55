"""Vision Transformer (Dosovitskiy et al. 2021) with the tensor names and arithmetic of timm, without a classifier."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .attention import attend, split_heads

EPS = 1e-6


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


class _Attention(nn.Module):
    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.proj = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, values_only: bool = False) -> Tensor:
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, dim=-1))
        out: Tensor = self.proj((attend(v, v, v) if values_only else attend(q, k, v)).out)
        return out


class _Block(nn.Module):
    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width, EPS)
        self.attn = _Attention(config)
        self.norm2 = nn.LayerNorm(config.width, EPS)
        layers = {"fc1": nn.Linear(config.width, config.hidden), "fc2": nn.Linear(config.hidden, config.width)}
        self.mlp = nn.ModuleDict(layers)
        self.gelu = nn.GELU()

    def forward(self, x: Tensor, values_only: bool = False) -> Tensor:
        x = x + self.attn(self.norm1(x), values_only)
        hidden: Tensor = self.mlp["fc2"](self.gelu(self.mlp["fc1"](self.norm2(x))))
        return x + hidden


class VisionTransformer(nn.Module):
    """Patches and a class token through pre-norm blocks and a last norm."""

    def __init__(self, config: ViTConfig) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.width))
        self.pos_embed = nn.Parameter(torch.randn(1, 1 + config.grid**2, config.width) * 0.02)
        projection = nn.Conv2d(3, config.width, config.patch, config.patch)
        self.patch_embed = nn.ModuleDict({"proj": projection})
        self.blocks = nn.Sequential(*(_Block(config) for _ in range(config.layers)))
        self.norm = nn.LayerNorm(config.width, EPS)

    def forward(self, image: Tensor) -> Tensor:
        """[B, 3, S, S] -> tokens [B, 1 + N, C], the class token first, then the patches row by row."""
        tokens: Tensor = self.norm(self.blocks(self._embed(image)))
        return tokens

    def value_value(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens of `forward`, and those with value-value attention in the last block."""
        x = self.blocks[:-1](self._embed(image))
        return self.norm(self.blocks[-1](x)), self.norm(self.blocks[-1](x, values_only=True))

    def _embed(self, image: Tensor) -> Tensor:
        patches = self.patch_embed["proj"](image).flatten(2).transpose(1, 2)
        first = self.cls_token.expand(patches.shape[0], -1, -1)
        return torch.cat([first, patches], dim=1) + self.pos_embed
