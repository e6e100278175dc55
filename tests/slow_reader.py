"""Readers for tests of workers: COCO whose regions take time to draw, or end the process that draws them."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xbench_fast.runtime.data.datasets.dataset import Case, Note
from xbench_fast.runtime.data.datasets.formats.coco import Coco


@dataclass(frozen=True)
class _Slow:
    region: Any
    seconds: float
    deadly: bool = False

    def mask(self, height: int, width: int) -> NDArray[np.bool_]:
        time.sleep(self.seconds)
        if self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        drawn: NDArray[np.bool_] = self.region.mask(height, width)
        return drawn


class Slow(Coco):
    """Each region takes a tenth of a second."""

    def read(self, notes: list[Note]) -> Sequence[Case]:
        return [_wrapped(case, 0.1, deadly=False) for case in super().read(notes)]


class Deadly(Coco):
    """Who draws the regions of the fourth case is killed, as by a system that is out of memory."""

    def read(self, notes: list[Note]) -> Sequence[Case]:
        return [_wrapped(case, 0.0, deadly=index == 3) for index, case in enumerate(super().read(notes))]


def _wrapped(case: Case, seconds: float, *, deadly: bool) -> Case:
    return replace(case, regions={name: _Slow(region, seconds, deadly) for name, region in case.regions.items()})
