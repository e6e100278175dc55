"""What the pairs of a finding look like in other patients: means that leave one patient out (docs/metrics.md §4.4), and
one pair of another patient (docs/detection.md §5)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_BLOCK: Final = 256  # pairs in memory at once


class OtherPatients:
    """Means over the maps, or the regions, of a finding in all patients but one.

    take: the maps [n, h, w] of the pairs at these places, so that they need not all be in memory. class_of, patient_of:
    intp [P], of each pair. Sums are float64, exact for masks.
    """

    def __init__(
        self,
        take: Callable[[NDArray[np.intp]], NDArray[Any]],
        class_of: NDArray[np.intp],
        patient_of: NDArray[np.intp],
    ) -> None:
        self._take = take
        self._places: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for pair, (finding, patient) in enumerate(zip(class_of.tolist(), patient_of.tolist(), strict=True)):
            self._places[finding][patient].append(pair)
        self._totals = {finding: self._sum(np.flatnonzero(class_of == finding)) for finding in self._places}

    def mean(self, finding: int, patient: int) -> NDArray[np.float32] | None:
        """float32 [h, w]: the mean over the finding's pairs of all patients but this one; None if there is none."""
        of_patient = self._places.get(finding, {})
        pairs = of_patient.get(patient, [])
        others = sum(map(len, of_patient.values())) - len(pairs)
        if not others:
            return None
        left = self._totals[finding] - self._sum(np.array(pairs, np.intp))
        return np.asarray(left / others, np.float32)

    def _sum(self, places: NDArray[np.intp]) -> NDArray[np.float64]:
        total = self._take(places[:_BLOCK]).sum(axis=0, dtype=np.float64)
        for start in range(_BLOCK, len(places), _BLOCK):
            total += self._take(places[start : start + _BLOCK]).sum(axis=0, dtype=np.float64)
        return np.asarray(total)


def next_patients(class_of: NDArray[np.intp], patient_of: NDArray[np.intp]) -> NDArray[np.intp]:
    """intp [P]: for each pair the next one of its class that is of another patient; after the last comes the first.

    -1 where all pairs of the class are of one patient.
    """
    next_of = np.full(len(class_of), -1, np.intp)
    for finding in np.unique(class_of):
        pairs = np.flatnonzero(class_of == finding)
        other = -1
        for at in [*range(len(pairs) - 1, -1, -1)] * 2:  # the second time around, the last pairs see the first
            after = pairs[(at + 1) % len(pairs)]
            if patient_of[after] != patient_of[pairs[at]]:
                other = after
            next_of[pairs[at]] = other
    return next_of
