"""Tiles of a model's input: parts of the image at a higher resolution, and their maps stitched (docs/saliency.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ....engines.base import Scores
from ....engines.errors import ConfigError
from ....engines.geometry import Geometry
from ....engines.registry import did_you_mean
from ..datasets.pixels import PixelSource, ReadyImages, read_many

if TYPE_CHECKING:
    from ..datasets.dataset import Case

Floats = NDArray[np.float64]

_TEXT: Final = re.compile(r"([1-9]\d?)x([1-9]\d?)(?:@(0?\.\d{1,4}|0))?", re.ASCII)
_MOST: Final = 64  # tiles; more are a mistake of typing, or a model of the wrong size
_WIDEST: Final = 0.9
_LARGEST_SIDE: Final = 8192  # of a `Geometry`


@dataclass(frozen=True)
class Tiling:
    """A grid of tiles that cover the model's field of view, and the score of an image. text: such as "2x2@0.25": rows
    x columns, and the share of a tile that it has in common with the next.

    A tile has the size of the model's input. The image is resized to `sides`, larger by rows - (rows - 1) x overlap,
    and cut there. largest: the score is the largest of the whole image and all tiles, in place of the whole image's.
    Raises ConfigError.
    """

    text: str
    largest: bool = False

    def __post_init__(self) -> None:
        fits = _TEXT.fullmatch(self.text)
        if fits is None or self.rows * self.columns > _MOST or self.overlap > _WIDEST:
            raise ConfigError(
                f"--tiles takes ROWSxCOLUMNS@OVERLAP, such as 2x2@0.25, of at most {_MOST} tiles and an overlap of at "
                f"most {_WIDEST}, not '{self.text}'."
            )

    @staticmethod
    def of(text: str, score: str) -> Tiling | None:
        """The tiling; None for none, which a single tile is too. Raises ConfigError."""
        if score not in (known := ("whole", "largest")):
            raise ConfigError(f"The option 'tile_score' cannot be '{score}': {did_you_mean(score, known)}.")
        tiling = Tiling(text, score == "largest") if text else None
        return None if tiling is None or len(tiling) == 1 else tiling

    @cached_property
    def rows(self) -> int:
        """Tiles from top to bottom."""
        return int(self.text.partition("x")[0])

    @cached_property
    def columns(self) -> int:
        """Tiles from left to right."""
        return int(self.text.partition("x")[2].partition("@")[0])

    @cached_property
    def overlap(self) -> float:
        """The share of a tile that it has in common with the next one."""
        return float(self.text.partition("@")[2] or 0)

    def __len__(self) -> int:
        return self.rows * self.columns

    @property
    def name(self) -> str:
        """The tiling in the names of results."""
        return f"{self.text}-largest" if self.largest else self.text

    @property
    def description(self) -> str:
        """What rows depend on, for the key of a result."""
        score = "the largest of the whole image and the tiles" if self.largest else "the whole image's"
        return f"{self.rows} x {self.columns}, overlap {self.overlap:g}, score: {score}"

    def sides(self, size: int) -> tuple[int, int]:
        """Height and width of the image from which tiles of `size` pixels are cut."""
        height, width = (round(size * (n - (n - 1) * self.overlap)) for n in (self.rows, self.columns))
        return height, width

    def geometry(self, geometry: Geometry) -> Geometry:
        """The geometry of that image, square: of its longer side. Raises ConfigError for an image that is too large."""
        side = max(self.sides(geometry.size))
        resize = round(geometry.resize * side / geometry.size)
        if resize > _LARGEST_SIDE:
            raise ConfigError(f"--tiles {self.text} needs images of {resize} pixels, more than {_LARGEST_SIDE}.")
        return geometry.scaled(side, geometry.size)

    def grid(self, grid: tuple[int, int], size: int) -> tuple[int, int]:
        """Height and width of a stitched map, of tiles with maps of `grid` cells."""
        height, width = (round(cells * side / size) for cells, side in zip(grid, self.sides(size), strict=True))
        return height, width

    def source(self, whole: PixelSource, fine: PixelSource, size: int) -> PixelSource:
        """A source of uint8 [1 + tiles, S, S]: the model's input, and the tiles, row by row.

        whole, fine: sources of the model's geometry and of `geometry`."""
        return _TiledSource(self, whole, fine, size)

    def cut(self, fine: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
        """The tiles, uint8 [T, S, S], of the image in `geometry`, uint8 [K, K]."""
        height, width = self.sides(size)
        if fine.shape != (height, width):
            from PIL import Image

            fine = np.asarray(Image.fromarray(fine).resize((width, height), Image.Resampling.BILINEAR))
        tops, lefts = _starts(self.rows, height, size), _starts(self.columns, width, size)
        return np.stack([fine[top : top + size, left : left + size] for top in tops for left in lefts])

    def joined(self, scores: Sequence[Scores], size: int) -> Scores:
        """The scores of images, from those of the whole images and of each of their tiles, in the order of `source`."""
        whole, *tiles = scores
        logits = np.max([each.logits for each in scores], axis=0) if self.largest else whole.logits
        return Scores(logits, self.stitched(np.stack([each.saliency for each in tiles]), size))

    def stitched(self, maps: NDArray[np.float32], size: int) -> NDArray[np.float32]:
        """Maps on the field of view, float32 [..., H, W], of the maps of T tiles, [T, ..., h, w].

        A cell of the result is read at its centre, by bilinear interpolation within a tile, and is the mean over the
        tiles that have its centre.
        """
        (height, width), grid = self.sides(size), self.grid((maps.shape[-2], maps.shape[-1]), size)
        down = _weights(_starts(self.rows, height, size), height, size, maps.shape[-2], grid[0])
        across = _weights(_starts(self.columns, width, size), width, size, maps.shape[-1], grid[1])
        placed = maps.reshape(self.rows, self.columns, *maps.shape[1:])
        stitched = np.einsum("riy,rc...yx,cjx->...ij", down, placed, across, optimize=True)
        return np.asarray(stitched, np.float32)


class _TiledSource:
    """A `BulkSource` of the whole model input and of its tiles."""

    def __init__(self, tiling: Tiling, whole: PixelSource, fine: PixelSource, size: int) -> None:
        self._tiling, self._whole, self._fine, self._size = tiling, whole, fine, size

    def __call__(self, case: Case, /) -> tuple[NDArray[np.uint8], int, int]:
        pixels, height, width = self._whole(case)
        tiles = self._tiling.cut(self._fine(case)[0], self._size)
        return np.concatenate([pixels[None], tiles]), height, width

    def read_many(self, cases: Sequence[Case], target: NDArray[np.uint8], /) -> ReadyImages:
        side = max(self._tiling.sides(self._size))
        whole = np.empty((len(cases), 1, self._size, self._size), np.uint8)
        found = read_many(self._whole, cases, whole)
        fine = np.empty((len(cases), 1, side, side), np.uint8)
        ready = found.ready & read_many(self._fine, cases, fine).ready
        for at in np.flatnonzero(ready).tolist():
            target[at, :1] = whole[at]
            target[at, 1:] = self._tiling.cut(fine[at, 0], self._size)
        found.sizes[~ready], found.images[~ready] = 0, 0
        return ReadyImages(ready, found.sizes, found.images)


def _starts(count: int, length: int, size: int) -> list[int]:
    """Where `count` windows of `size` pixels begin that cover `length` pixels evenly."""
    return [0] if count == 1 else [round(at * (length - size) / (count - 1)) for at in range(count)]


def _weights(starts: Sequence[int], length: int, size: int, cells: int, out: int) -> Floats:
    """float64 [windows, out, cells]: the part of each cell of a window's map in each of `out` cells of the result."""
    weights = np.zeros((len(starts), out, cells))
    centres = (np.arange(out) + 0.5) * length / out
    for window, start in enumerate(starts):
        inside = np.flatnonzero((centres >= start) & (centres <= start + size))
        at = np.clip((centres[inside] - start) * cells / size - 0.5, 0, cells - 1)
        low = np.minimum(at.astype(np.intp), cells - 2)  # of a single cell -1, with the weight 0
        np.add.at(weights[window], (inside, low), 1 - (at - low))
        np.add.at(weights[window], (inside, np.minimum(low + 1, cells - 1)), at - low)
    return np.asarray(weights / weights.sum(axis=(0, 2))[None, :, None])
