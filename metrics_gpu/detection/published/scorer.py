"""The form of a published scorer, and the IoU of boxes that two of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..boxes import Answers, Float

if TYPE_CHECKING:
    from ..overlaps import BoxOverlaps

Values = Mapping[str, float | None]
"""Name of a number -> its value, None where the authors' code gives none."""


@dataclass(frozen=True)
class Scorer:
    """name: as on the command line. source: repository and version that it equals. main: the number that papers quote.

    note: where the rule misleads. compute: the numbers of answers, given their table of IoUs.
    """

    name: str
    source: str
    main: str
    note: str
    compute: Callable[[Answers, BoxOverlaps], Values]


def box_ious(given: NDArray[np.number], true: NDArray[np.number]) -> Float:
    """float64 [N]: IoU of two boxes [N, 4] each, with 1e-16 in the denominator, as the authors' code has it."""
    sides = np.minimum(given[:, 2:], true[:, 2:]) - np.maximum(given[:, :2], true[:, :2])
    both = np.maximum(sides, 0).prod(axis=1)
    areas = (given[:, 2:] - given[:, :2]).prod(axis=1) + (true[:, 2:] - true[:, :2]).prod(axis=1)
    return np.asarray(both / (areas - both + 1e-16), np.float64)
