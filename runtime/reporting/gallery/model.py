"""What a gallery holds. Everything lives on the evaluation grid of 224 x 224 pixels (docs/metrics.md §1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Gallery", "GalleryCase", "Overlay"]


@dataclass(frozen=True)
class GalleryCase:
    """One (image, class) pair of a dataset, shown for every model that has it.

    why: what it was chosen for, such as "best Dice". image: index into `Gallery.images`, None where the picture
    is not at hand. truth: row-major run lengths of the region, 0 and 1 in turn, starting with 0.
    """

    dataset: str
    case_id: str
    finding: str
    why: str
    image: int | None
    truth: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Overlay:
    """What one model sees in one case.

    case: index into `Gallery.cases`. saliency: float32 [h, w], as swept, before normalisation. frame: (y0, x0, y1, x1),
    the part of the image that it covers. area, overlap: int32 [101], as stored. best: level of the threshold that is
    best for the class. argmax: row * 224 + column. protocol: name of the protocol the counts were made by.
    """

    model: str
    case: int
    protocol: str
    saliency: NDArray[np.float32]
    frame: tuple[float, float, float, float]
    area: NDArray[np.int32]
    overlap: NDArray[np.int32]
    best: int
    argmax: int
    hit: bool
    degenerate: bool


@dataclass(frozen=True)
class Gallery:
    """images: 8-bit grey JPEG, 224 x 224, the whole native frame squashed. titles: dataset -> its printed name.

    models: in the order of the report. notes: what a reader must know about the pictures, such as why some are absent.
    """

    images: tuple[bytes, ...]
    cases: tuple[GalleryCase, ...]
    overlays: tuple[Overlay, ...]
    models: tuple[str, ...]
    titles: Mapping[str, str]
    notes: tuple[str, ...] = ()
