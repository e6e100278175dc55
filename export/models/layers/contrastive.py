"""Scores and maps of models that compare an image with a text by their cosine (CLIP parity specification)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

__all__ = ["PATCH_MAPS", "PATCH_TEXT", "VALUE_VALUE", "contrast", "contrast_outputs"]

PATCH_TEXT, VALUE_VALUE = "patch-text", "value-value"
PATCH_MAPS = {
    PATCH_TEXT: "cosine between each projected patch and the prompt",
    VALUE_VALUE: "cosine between each projected patch and the prompt, where the last block's attention weights are the "
    "softmax of value-value products instead of query-key ones; scores are the unchanged model's",
}
"""Saliency maps by name. Value-value attention is that of training-free open-vocabulary segmentation (Li et al. 2023,
arXiv 2304.05653; Wang et al. 2024, arXiv 2312.01597), here in the last block only, with its residual and MLP."""


def contrast(pooled: Tensor, patches: Tensor, text: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """pooled [B, D], patches [B, N, D], text [Q, D], scale [] -> scale * cosine [B, Q], cosine of patches [B, Q, N]."""
    pooled, patches, text = (F.normalize(x, dim=-1) for x in (pooled, patches, text))
    return scale * pooled @ text.T, (patches @ text.T).transpose(1, 2)


def contrast_outputs(
    pooled: Tensor, patches: Tensor, text: Tensor, scale: Tensor, grid: tuple[int, int]
) -> dict[str, Tensor]:
    """The same under the names of the parity specifications: `image_features` [B, D], `patch_features` [B, N, D],
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
        "similarity_map": similarity.unflatten(-1, grid),
    }
