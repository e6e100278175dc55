"""The last block's attention, weighted by its gradient (Chefer et al. 2021, arXiv 2103.15679), in forward operations.

Of `torch.func.vjp` and `torch.autograd` no graph with a free number of images can be traced. What is between the last
attention and the score is short, because the class token is only read by itself: projection, MLP and two norms of one
token. Their derivatives are written out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .attention import attend, split_heads

QUICK = 1.702  # of QuickGELU: x * sigmoid(1.702 x)


def gelu_slope(x: Tensor) -> Tensor:
    """The derivative of GELU."""
    return (1 + torch.erf(x * 0.5**0.5)) / 2 + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def quick_gelu_slope(x: Tensor) -> Tensor:
    """The derivative of QuickGELU."""
    gate = torch.sigmoid(QUICK * x)
    return gate + QUICK * x * gate * (1 - gate)


@dataclass(frozen=True)
class LastBlock:
    """What the class token passes in a pre-norm transformer after its last attention of `heads` heads.

    out: the attention's projection; norm, first, activation, second: the MLP; final: the norm behind the blocks;
    projection: [C, D], to the space of the texts. slope: the derivative of the activation.
    """

    heads: int
    out: nn.Linear
    norm: nn.LayerNorm
    first: nn.Linear
    activation: Callable[[Tensor], Tensor]
    slope: Callable[[Tensor], Tensor]
    second: nn.Linear
    final: nn.LayerNorm
    projection: Tensor

    def weigh(self, x: Tensor, packed: Tensor, text: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """What enters the block, [B, 1 + N, C], its queries, keys and values [B, 1 + N, 3 C] and texts [Q, D]
        -> the image vector [B, D] and the map of scale * cosine [B, Q, N]."""
        q, k, v = split_heads(packed, 3 * self.heads).chunk(3, dim=1)
        seen, weights, _ = attend(q[:, :, :1], k, v)
        attended = x[:, 0] + self.out(seen[:, 0])
        hidden = self.first(self.norm(attended))
        token = attended + self.second(self.activation(hidden))
        pooled = self.final(token) @ self.projection
        image, text = F.normalize(pooled, dim=-1)[:, None], F.normalize(text, dim=-1)
        slope = scale * (text - (image @ text.T).transpose(1, 2) * image) / pooled.norm(dim=-1)[:, None, None]
        slope = _norm_slope(self.final, token, slope @ self.projection.T)  # [B, Q, C], as all that follow
        inner = (slope @ self.second.weight) * self.slope(hidden)[:, None]
        slope = slope + _norm_slope(self.norm, attended, inner @ self.first.weight)
        heads = split_heads(slope @ self.out.weight, self.heads) @ v.transpose(-2, -1)
        return pooled, (weights * heads).relu().mean(dim=1)[..., 1:]


def _norm_slope(norm: nn.LayerNorm, x: Tensor, slope: Tensor) -> Tensor:
    """The derivative with respect to x [B, C] from the one with respect to norm(x), both [B, Q, C]."""
    variance, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
    inverse = torch.rsqrt(variance + norm.eps)[:, None]
    unit, slope = (x - mean)[:, None] * inverse, slope * norm.weight
    along = (slope * unit).mean(dim=-1, keepdim=True)
    return inverse * (slope - slope.mean(dim=-1, keepdim=True) - unit * along)
