"""Resizing and smoothing of an image or a map, as products with one constant matrix from both sides."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
import torch.nn.functional as F
from scipy.ndimage import gaussian_filter1d
from torch import Tensor, nn

SIGMA: Final = 1.5
"""Of the Gaussian of BioViL and AFLoc, in cells."""


def bicubic_matrix(target: int, source: int) -> Tensor:
    """float32 [target, source]: what PyTorch's bicubic resize, without antialiasing, takes of each source pixel."""
    pixels = torch.eye(source, device="cpu")[None, None]
    return F.interpolate(pixels, (target, source), mode="bicubic", align_corners=False)[0, 0]


def corner_matrix(target: int, source: int) -> Tensor:
    """float32 [target, source]: the same for the bilinear resize with aligned corners."""
    pixels = torch.eye(source, device="cpu")[None, None]
    return F.interpolate(pixels, (target, source), mode="bilinear", align_corners=True)[0, 0]


def gaussian_matrix(cells: int, sigma: float = SIGMA, radius: int = 6) -> Tensor:
    """float32 [cells, cells]: SciPy's Gaussian filter, cut at `radius` cells, along one axis.

    Beyond an edge the map is mirrored, with the edge cell repeated.
    """
    smoothed = gaussian_filter1d(np.eye(cells), sigma, axis=0, mode="reflect", radius=radius)
    return torch.as_tensor(smoothed, dtype=torch.float32, device="cpu")


class Resampled(nn.Module):
    """Resizes or smooths squares along both axes. `matrix` is a constant, which no checkpoint has."""

    matrix: Tensor

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.register_buffer("matrix", matrix, persistent=False)

    def forward(self, image: Tensor) -> Tensor:
        """[..., source, source] -> [..., target, target].

        The image is transposed and not the matrix, whose product is then with the constant of this name: in lower
        precision it stays in float32.
        """
        return (self.matrix @ (self.matrix @ image).mT).mT
