"""Scores and maps of models that compare an image with a text by their cosine (CLIP parity specification)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

__all__ = ["contrast"]


def contrast(pooled: Tensor, patches: Tensor, text: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """pooled [B, D], patches [B, N, D], text [Q, D], scale [] -> scale * cosine [B, Q], cosine of patches [B, Q, N]."""
    pooled, patches, text = (F.normalize(x, dim=-1) for x in (pooled, patches, text))
    return scale * pooled @ text.T, (patches @ text.T).transpose(1, 2)
