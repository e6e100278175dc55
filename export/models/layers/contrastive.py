"""Scores and maps of models that compare an image with a text by their cosine (docs/parity.md §3.1)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..saliency_maps import PATCH_SOFTMAX


def contrast(pooled: Tensor, patches: Tensor, text: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """pooled [B, D], patches [B, N, D], text [Q, D], scale [] -> scale * cosine [B, Q], cosine of patches [B, Q, N]."""
    pooled, patches, text = (F.normalize(x, dim=-1) for x in (pooled, patches, text))
    return scale * pooled @ text.T, (patches @ text.T).transpose(1, 2)


def patch_map(similarity: Tensor, scale: Tensor, name: str) -> Tensor:
    """Cosines of patches and prompts [B, Q, N] -> the map `name` (see models.saliency_maps), by default the cosines."""
    return (scale * similarity).softmax(dim=-1) if name == PATCH_SOFTMAX else similarity


def contrast_outputs(
    pooled: Tensor, patches: Tensor, text: Tensor, scale: Tensor, grid: tuple[int, int]
) -> dict[str, Tensor]:
    """The same under the names of the goldens: `image_features` [B, D], `patch_features` [B, N, D],
    `text_features` [Q, D], `logits_per_image` [B, Q], `logits_per_text` [Q, B], `probabilities` [B, Q] (softmax over
    the prompts), `similarity_map` [B, Q, h, w]."""
    logits, similarity = contrast(pooled, patches, text, scale)
    return {
        "image_features": pooled,
        "patch_features": patches,
        "text_features": text,
        "logits_per_image": logits,
        "logits_per_text": logits.T,
        "probabilities": logits.softmax(dim=-1),
        "similarity_map": torch.unflatten(similarity, -1, grid),
    }
