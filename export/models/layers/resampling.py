"""Resizing of an image or a map as products with one constant matrix from both sides; PyTorch's arithmetic."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

_A = -0.75  # of the cubic kernel


def bicubic_matrix(target: int, source: int) -> NDArray[np.float64]:
    """float64 [target, source]: row i holds the weight of each source pixel in pixel i; each row sums to 1.

    Half-pixel centres, no antialiasing, and beyond an edge its pixel is repeated. The scale and then the place are
    rounded to float32, as PyTorch does it: an exact place gives other pixels by 1e-4 of a standard deviation.
    """
    scale = np.float64(np.float32(source) / np.float32(target))
    place = (scale * (np.arange(target) + 0.5) - 0.5).astype(np.float32)
    first = np.floor(place)
    beyond = (place - first).astype(np.float64)
    matrix = np.zeros((target, source))
    for offset in (-1, 0, 1, 2):
        columns = np.clip(first.astype(np.int64) + offset, 0, source - 1)
        np.add.at(matrix, (np.arange(target), columns), _cubic(np.abs(beyond - offset)))
    return matrix


def _cubic(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    near = ((_A + 2) * distance - (_A + 3)) * distance**2 + 1
    far = ((_A * distance - 5 * _A) * distance + 8 * _A) * distance - 4 * _A
    return np.where(distance <= 1, near, far)


def corner_matrix(target: int, source: int) -> NDArray[np.float64]:
    """float64 [target, source]: bilinear weights with aligned corners, places in float32 as PyTorch computes them."""
    place = np.float32(source - 1) / np.float32(target - 1) * np.arange(target, dtype=np.float32)
    first = np.minimum(place.astype(np.int64), source - 1)
    beyond = place - first.astype(np.float32)
    matrix = np.zeros((target, source))
    rows = np.arange(target)
    np.add.at(matrix, (rows, first), 1 - beyond)
    np.add.at(matrix, (rows, np.minimum(first + 1, source - 1)), beyond)
    return matrix


class Resampled(nn.Module):
    """Resizes squares along both axes. `matrix` is a constant, which no checkpoint has."""

    matrix: Tensor

    def __init__(self, matrix: NDArray[np.float64]) -> None:
        super().__init__()
        values = torch.as_tensor(matrix, dtype=torch.float32, device="cpu")
        self.register_buffer("matrix", values, persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        """[..., source, source] -> [..., target, target]."""
        return (self.matrix @ (self.matrix @ image).mT).mT
