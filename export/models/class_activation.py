"""The common part of supervised models with a linear head: logits of their findings and class activation maps.

The map of a finding is the weight of its output applied to every cell of the last features (Zhou et al. 2016).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...engines.errors import ConfigError
from ..adapter import Adapter


class ClassActivation(Adapter):
    """A supervised model, asked by rows of the identity matrix (`Adapter.findings`)."""

    @abstractmethod
    def answer(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """image [B, 3, S, S] -> logits [B, F] of all findings, class activation maps [B, F, h, w] without the bias."""

    def forward(self, image: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """The output of the linear layer, before a sigmoid.

        Queries select by product and sum, so that the last layer stays in float32 in lower precision.
        """
        logits, maps = self.answer(image)
        return (logits[:, None] * text).sum(dim=2), (maps[:, None] * text[:, :, None, None]).sum(dim=2)


def class_maps(head: nn.Linear, cells: Tensor, grid: Sequence[int]) -> Tensor:
    """cells [B, C, N], row by row -> maps [B, F, h, w]."""
    return torch.unflatten(head.weight @ cells, 2, grid)


def trained_rows(labels: Sequence[str], source: object, trained: Sequence[str] | None = None) -> list[int]:
    """The outputs that count: those of `labels` with a name, and of these the `trained` ones; `source` is the file.

    Raises ConfigError where no output or two outputs have a name.
    """
    rows = [row for row, name in enumerate(labels) if name and (trained is None or name in trained)]
    if not rows or len({labels[row] for row in rows}) != len(rows):
        raise ConfigError(f"The findings of {source} are {list(labels)}; name each output once, and one at least.")
    return rows


def with_rows(head: nn.Linear, rows: Sequence[int]) -> nn.Linear:
    """The linear layer with these outputs alone."""
    kept = nn.Linear(head.in_features, len(rows), bias=head.bias is not None, device="meta")
    state = {name: tensor[list(rows)] for name, tensor in head.state_dict().items()}
    kept.load_state_dict(state, assign=True)
    return kept.requires_grad_(False)
