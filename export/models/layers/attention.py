"""Multi-head attention whose weights are an output and whose graph is only matrix products and a softmax."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attended(NamedTuple):
    """The output of attention [B, Q, H * d], its softmax weights [B, H, Q, N] and the scores before the softmax."""

    out: Tensor
    weights: Tensor
    scores: Tensor


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, N, heads * d] -> [B, heads, N, d]."""
    return torch.unflatten(x, -1, (heads, -1)).transpose(1, 2)


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Attended:
    """Scaled dot-product attention of q [B, H, Q, d] over k, v [B, H, N, d].

    `bias` is added to the scores. A batch of 1 on either side is broadcast.
    """
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    scores = scores if bias is None else scores + bias
    weights = scores.softmax(dim=-1)
    return Attended((weights @ v).transpose(1, 2).flatten(2), weights, scores)


class PackedAttention(nn.Module):
    """`nn.MultiheadAttention` by tensor names and arithmetic, without its fast path; `in_proj_weight` is [q; k; v]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, query: Tensor, memory: Tensor, bias: Tensor | None = None) -> Attended:
        """query [B, Q, C], memory [B, N, C] -> [B, Q, C], weights and scores; either batch may be 1.

        The tensors that share an input are projected together: all three in self-attention, else keys and values.
        """
        width = self.out_proj.in_features
        if query is memory:
            q, k, v = F.linear(query, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        else:
            rows = [width, 2 * width]
            (w_q, w_kv), (b_q, b_kv) = torch.split(self.in_proj_weight, rows), torch.split(self.in_proj_bias, rows)
            q = F.linear(query, w_q, b_q)
            k, v = F.linear(memory, w_kv, b_kv).chunk(2, dim=-1)
        q, k, v = (split_heads(x, self.heads) for x in (q, k, v))
        out, weights, scores = attend(q, k, v, bias)
        return Attended(self.out_proj(out), weights, scores)

    def values(self, x: Tensor) -> Tensor:
        """Self-attention of x [B, N, C] with the values as queries and keys -> [B, N, C]."""
        start = 2 * self.out_proj.in_features
        v = split_heads(F.linear(x, self.in_proj_weight[start:], self.in_proj_bias[start:]), self.heads)
        projected: Tensor = self.out_proj(attend(v, v, v)[0])
        return projected
