"""Views of a dataset: every image with one change, and where its map belongs on the unchanged image (docs/datasets.md
§0.9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import ConfigError
from ....engines.registry import did_you_mean
from ....metrics_gpu.trust.perturbations import Perturbation, jpeg_coder
from ..datasets.pixels import PixelSource, ReadyImages, read_many

if TYPE_CHECKING:
    from ..datasets.dataset import Case

Frame = tuple[float, float, float, float]

_LEVELS: Final = {
    "flip": "no level",
    "shift": "a whole number of pixels of 224, from 1 to 111",
    "gamma": "an exponent from 0.1 to 10",
    "window": "CENTRE/WIDTH in grey levels, such as 120/255",
    "jpeg": "a quality from 1 to 100",
    "noise": "a standard deviation in grey levels, above 0 and at most 128",
}
_SEED: Final = 0  # of the noise; the case and the change make the rest of the name of its stream


@dataclass(frozen=True)
class View:
    """A change of every image of a dataset. text: as the configuration names it, such as "flip" or "shift:8".

    The model gets the changed image. Its map is put back on the unchanged one, so that regions, pictures and studies
    are the same for all views: a flipped map is mirrored, and the field of view of a shifted one is moved. Raises
    ConfigError for a change that does not exist, and for a level that it does not take.
    """

    text: str

    def __post_init__(self) -> None:
        transform, _, level = self.text.partition(":")
        if transform not in _LEVELS:
            raise ConfigError(f"augment has no view '{self.text}': {did_you_mean(transform, list(_LEVELS))}.")
        if not _is_level(transform, level):
            raise ConfigError(f"The view '{self.text}' of augment is wrong: {transform} takes {_LEVELS[transform]}.")

    @cached_property
    def change(self) -> Perturbation:
        """The change, as the probe `stability` makes it."""
        transform, _, level = self.text.partition(":")
        return Perturbation(transform, level)

    @property
    def name(self) -> str:
        """The change in the names of results, without characters that paths do not take."""
        return str(self.change).replace(" ", "-").replace("/", "-")

    @property
    def mirrored(self) -> bool:
        """Whether the maps of changed images must be mirrored."""
        return self.change.transform == "flip"

    @property
    def description(self) -> str:
        """What pixels depend on, for the key of a result."""
        coder = f", {jpeg_coder()}" if self.change.transform == "jpeg" else ""
        return f"{self.change}{coder}"

    def frame(self, frame: Frame, side: int) -> Frame:
        """The part (y0, x0, y1, x1) of the unchanged image that the map of a changed model input of `side` pixels
        covers, of the part `frame` that the input covers."""
        moved = self.change.shift_of(side) / side
        y0, x0, y1, x1 = frame
        y, x = moved * (y1 - y0), moved * (x1 - x0)
        return (y0 - y, x0 - x, y1 - y, x1 - x)

    def source(self, source: PixelSource) -> PixelSource:
        """`source` with the change made in every image that it reads."""
        return _ViewSource(self, source)

    def of(self, pixels: NDArray[np.uint8], case: Case) -> NDArray[np.uint8]:
        """The changed model input, uint8 [S, S], of that of a case."""
        return self.change.of(pixels, f"{_SEED} {case.case_id} {self.change}")


class _ViewSource:
    """A `BulkSource` that changes what another source reads."""

    def __init__(self, view: View, source: PixelSource) -> None:
        self._view, self._source = view, source

    def __call__(self, case: Case, /) -> tuple[NDArray[np.uint8], int, int]:
        pixels, height, width = self._source(case)
        return self._view.of(pixels, case), height, width

    def read_many(self, cases: Sequence[Case], target: NDArray[np.uint8], /) -> ReadyImages:
        found = read_many(self._source, cases, target)
        for at in np.flatnonzero(found.ready).tolist():
            target[at, 0] = self._view.of(target[at, 0].copy(), cases[at])
        return found


def _is_level(transform: str, level: str) -> bool:
    try:
        if "_" in level or level != level.strip():
            return False
        if transform == "flip":
            return not level
        if transform in ("shift", "jpeg"):
            return level.isdecimal() and level.isascii() and 1 <= int(level) <= (111 if transform == "shift" else 100)
        if transform == "window":
            centre, width = map(float, level.split("/"))
            return -255 <= centre <= 510 and 1 <= width <= 510
        low, high = (0.1, 10) if transform == "gamma" else (1e-3, 128)
        return low <= float(level) <= high
    except ValueError:
        return False
