"""Gaussian smoothing of a map, as products with one constant matrix from both sides."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

SIGMA: Final = 1.5
"""Of the Gaussian of BioViL and AFLoc, in cells."""


def gaussian_matrix(cells: int, sigma: float = SIGMA, radius: int = 6) -> NDArray[np.float64]:
    """float64 [cells, cells]: row i holds the weight of each cell in the smoothed cell i; each row sums to 1.

    The kernel is cut at `radius` cells. Beyond an edge the map is mirrored, with the edge cell repeated. The matrix is
    symmetric.
    """
    offsets = np.arange(-radius, radius + 1)
    kernel = np.exp(-0.5 * (offsets / sigma) ** 2)
    kernel /= kernel.sum()
    places = (np.arange(cells)[:, None] + offsets) % (2 * cells)
    places = np.minimum(places, 2 * cells - 1 - places)
    matrix = np.zeros((cells, cells))
    np.add.at(matrix, (np.arange(cells)[:, None], places), kernel)
    return matrix


class SmoothedCells(nn.Module):
    """Smooths square maps along both axes. `matrix` is a constant, which no checkpoint has."""

    matrix: Tensor

    def __init__(self, cells: int, sigma: float = SIGMA, radius: int = 6) -> None:
        super().__init__()
        values = torch.as_tensor(gaussian_matrix(cells, sigma, radius), dtype=torch.float32, device="cpu")
        self.register_buffer("matrix", values, persistent=False)

    def forward(self, maps: Tensor) -> Tensor:
        """[..., cells, cells] -> the same shape."""
        return self.matrix @ maps @ self.matrix
