"""Small changes of an image that keep its findings, and how they are undone on a map (docs/trust-probes.md §4).

All work on the model's own input, uint8 [S, S], so that one decoded image serves them all. Lengths are pixels of 224.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..statistics.bootstrap import named_stream

Grey = NDArray[np.uint8]

_FRAME: Final = 224  # the evaluation grid, on which shifts are stated and undone
_LARGEST_SHIFT: Final = 16  # maps are compared on the pixels that no shift moves out of the image (docs/trust.md)
INNER: Final = (slice(_LARGEST_SHIFT, -_LARGEST_SHIFT),) * 2
"""The pixels of a map [224, 224] that no shift moves out of the image: the same for all shifts, so that their
similarities can be compared."""


def gamma_table(gamma: float) -> Grey:
    """uint8 [256]: 255 (x / 255) ^ gamma, rounded half to even."""
    return np.asarray(np.rint(255 * (np.arange(256) / 255) ** gamma), np.uint8)


def window_table(centre: float, width: float) -> Grey:
    """uint8 [256]: the grey levels from centre - width / 2 to centre + width / 2 spread over 0..255, the others at its
    ends, rounded half to even."""
    shares = (np.arange(256) - (centre - width / 2)) / width
    return np.asarray(np.rint(np.clip(shares, 0, 1) * 255), np.uint8)


def jpeg_coder() -> str:
    """The library that codes JPEG here, with its version: other versions may round otherwise."""
    import PIL
    from PIL import features

    return f"Pillow {PIL.__version__}, libjpeg {features.version('jpg')}"


@dataclass(frozen=True)
class Perturbation:
    """One change: `transform` and `level`.

    shift: `level` pixels of 224 to the right and down, edges repeated. gamma: the exponent on grey / 255. window:
    "centre/width" in grey levels. jpeg: the quality. noise: the standard deviation of Gaussian noise in grey levels.
    flip: right and left exchanged; it has no level. Raises ValueError for another transform.
    """

    transform: str
    level: str = ""

    def __post_init__(self) -> None:
        if self.transform not in ("shift", "gamma", "window", "jpeg", "noise", "flip"):
            raise ValueError(f"unknown perturbation {self.transform!r}")

    def __str__(self) -> str:
        return f"{self.transform} {self.level}".rstrip()

    @property
    def shift(self) -> int:
        """By how many pixels of 224 the image moves to the right and down."""
        return int(self.level) if self.transform == "shift" else 0

    def shift_of(self, side: int) -> int:
        """By how many pixels of `side` the image moves to the right and down."""
        return round(self.shift * side / _FRAME)

    def of(self, image: Grey, name: str) -> Grey:
        """The changed image, uint8 [S, S], of `image`. name: of the stream of its noise."""
        if self.transform == "shift":
            moved = np.maximum(np.arange(len(image)) - self.shift_of(len(image)), 0)
            return np.asarray(image[np.ix_(moved, moved)])
        if self.transform == "flip":
            return image[:, ::-1]
        if self.transform == "jpeg":
            return _coded(image, int(self.level))
        if self.transform == "noise":
            return _noisy(image, float(self.level), name)
        return np.asarray(_table(self)[image])

    def undone(self, maps: NDArray[np.float32]) -> NDArray[np.float32]:
        """Maps [n, 224, 224] of changed images, back in the place of the unchanged ones, on `INNER` for a shift and
        whole for the rest."""
        if self.shift:
            back = slice(_LARGEST_SHIFT + self.shift, _FRAME - _LARGEST_SHIFT + self.shift)
            return maps[:, back, back]
        return maps[:, :, ::-1] if self.transform == "flip" else maps

    def compared(self, maps: NDArray[np.float32]) -> NDArray[np.float32]:
        """The pixels of unchanged maps [n, 224, 224] that `undone` is compared with."""
        return maps[(slice(None), *INNER)] if self.shift else maps

    def maxima(self, maps: NDArray[np.float32]) -> NDArray[np.intp]:
        """Row and column, intp [n, 2], of the first maximum of changed maps [n, 224, 224] in the unchanged image;
        one in the repeated edge lies outside, below 0."""
        turned = maps[:, :, ::-1] if self.transform == "flip" else maps
        return np.column_stack(np.divmod(turned.reshape(len(maps), -1).argmax(axis=1), _FRAME)) - self.shift


@cache
def _table(change: Perturbation) -> Grey:
    if change.transform == "gamma":
        return gamma_table(float(change.level))
    centre, width = change.level.split("/")
    return window_table(float(centre), float(width))


def _coded(image: Grey, quality: int) -> Grey:
    from io import BytesIO

    from PIL import Image

    file = BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))


def _noisy(image: Grey, deviation: float, name: str) -> Grey:
    from scipy.special import ndtri

    bits = named_stream(name).random_raw(image.size).reshape(image.shape)
    normal = ndtri(((bits >> 11) + 0.5) / 2.0**53)
    return np.asarray(np.rint(np.clip(image + deviation * normal, 0, 255)), np.uint8)


_LEVELS: Final = {
    "shift": ("2", "4", "8", "16"),
    "gamma": ("0.8", "0.9", "1.1", "1.25"),
    "window": ("127.5/230", "120/255", "135/255"),
    "jpeg": ("90", "50", "20"),
    "noise": ("2", "5"),
    "flip": ("",),
}
_ON_REQUEST: Final = ("shift 4", "shift 16", "gamma 0.9", "gamma 1.1", "jpeg 50", "jpeg 20", "noise 5")
_ALL: Final = tuple(Perturbation(transform, level) for transform, levels in _LEVELS.items() for level in levels)

DEFAULT: Final = tuple(change for change in _ALL if str(change) not in _ON_REQUEST)
LEVELS: Final = {"default": DEFAULT, "all": _ALL}
"""What can be asked for by name."""
POOLED: Final = tuple(
    change for change in _ALL if str(change) in ("shift 2", "gamma 0.8", "gamma 1.25", "jpeg 90", "noise 2")
)
"""Those whose flips are counted together for the verdict."""
