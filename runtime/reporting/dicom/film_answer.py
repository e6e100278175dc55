"""An answer about a finding of a film, and its place on the film's own pixels (docs/dicom.md §3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

GRID: Final = 224
Values = TypeVar("Values", bound=np.generic)


@dataclass(frozen=True, eq=False)
class FindingAnswer:
    """A model's answer about one finding of one film.

    logit: the score. normalised: float32 [224, 224], the map on the evaluation grid. mask: uint8 [224, 224], 1 inside.
    boxes: x0, y0, x1, y1 as fractions of the width and height, and the largest value of the map inside.
    """

    finding: str
    logit: float
    normalised: NDArray[np.float32]
    mask: NDArray[np.uint8]
    boxes: Sequence[tuple[float, float, float, float, float]]


def on_film(values: NDArray[Values], size: tuple[int, int]) -> NDArray[Values]:
    """Values of the evaluation grid [224, 224] on a film's pixels [rows, columns].

    An evaluation reads grid pixel i at film pixel floor(i * n / 224) (docs/datasets.md §0.3). A film pixel here has
    the value of the last grid pixel that is read at it or before it, so an evaluation reads the same values again from
    every film of at least 224 pixels a side.
    """
    rows, columns = ((np.arange(1, side + 1) * GRID - 1) // side for side in size)
    spread: NDArray[Values] = values[np.ix_(rows, columns)]
    return spread


def film_corners(box: Sequence[float], size: tuple[int, int]) -> list[list[float]]:
    """The corners of an answer's box on the film, closed: the rectangle that encloses its pixels of `on_film`."""
    height, width = size
    x0, x1 = (round(box[at] * GRID) * width // GRID for at in (0, 2))
    y0, y1 = (round(box[at] * GRID) * height // GRID for at in (1, 3))
    x1, y1 = max(x1, x0 + 1), max(y1, y0 + 1)  # a film of fewer pixels than the grid
    return [[float(x), float(y)] for x, y in ((x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0))]


def answers_of(outputs: Any, findings: Sequence[str], image: int) -> list[FindingAnswer]:
    """The answers about one image from the outputs logits, saliency_full, mask and boxes of a request."""
    rows = outputs["boxes"]
    return [
        FindingAnswer(
            finding,
            float(outputs["logits"][image, at]),
            outputs["saliency_full"][image, at],
            outputs["mask"][image, at],
            [tuple(row[2:].tolist()) for row in rows if (row[0], row[1]) == (image, at)],
        )
        for at, finding in enumerate(findings)
    ]
