"""The common part of models that compare an image with a text by their cosine (docs/parity.md §3.1)."""

from __future__ import annotations

from abc import abstractmethod

import torch
import torch.nn.functional as F
from torch import Tensor

from ...engines.errors import ConfigError
from ..adapter import Adapter
from .saliency_maps import GRADIENT_ATTENTION, PATCH_SOFTMAX, VALUE_VALUE


class TwoTowers(Adapter):
    """An image tower whose patches have vectors in the space of the texts, and a text tower.

    The map is the cosine between each patch and the prompt, or attention weighted by the gradient of the score.
    """

    @abstractmethod
    def encode_image(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """float32 [B, 3, S, S] -> the image [B, D] and its patches [B, N, D], row by row, not normalised."""

    def encode_values(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """The same image vector, and the patches with value-value attention in the last block, where `maps` has it."""
        raise ConfigError(
            f"{self.name} has '{VALUE_VALUE}' in `maps` and no `encode_values`; define it, or leave it out."
        )

    def weigh_attention(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """The same image vector, and the last attention to each patch [B, Q, N], weighted by the gradient of the score
        of each text [Q, D], where `maps` has it."""
        raise ConfigError(
            f"{self.name} has '{GRADIENT_ATTENTION}' in `maps` and no `weigh_attention`; define it, or leave it out."
        )

    def scale(self) -> Tensor:
        """The factor of the cosine, []."""
        return self.module.get_parameter("logit_scale").exp()

    def bias(self) -> Tensor | None:
        """What is added to the scaled cosine, [], if anything."""
        return None

    def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """Logits are the scaled cosine of image and prompt, plus the bias."""
        if self.map_name == GRADIENT_ATTENTION:
            pooled, cells = self.weigh_attention(image, text)
            logits, _ = contrast(pooled, pooled[:, None], text, self.scale())
        else:
            pooled, patches = self.encode_values(image) if self.map_name == VALUE_VALUE else self.encode_image(image)
            logits, similarity = contrast(pooled, patches, text, self.scale())
            cells = patch_map(similarity, self.scale(), self.map_name)
        bias = self.bias()
        return logits if bias is None else logits + bias, torch.unflatten(cells, -1, self.grid)


def contrast(pooled: Tensor, patches: Tensor, text: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """pooled [B, D], patches [B, N, D], text [Q, D], scale [] -> scale * cosine [B, Q], cosine of patches [B, Q, N]."""
    pooled, patches, text = (F.normalize(x, dim=-1) for x in (pooled, patches, text))
    return scale * pooled @ text.T, (patches @ text.T).transpose(1, 2)


def patch_map(similarity: Tensor, scale: Tensor, name: str) -> Tensor:
    """Cosines of patches and prompts [B, Q, N] -> the map `name` (see models.saliency_maps), by default the cosines."""
    return (scale * similarity).softmax(dim=-1) if name == PATCH_SOFTMAX else similarity
