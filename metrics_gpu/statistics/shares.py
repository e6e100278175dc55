"""What each patient adds to a mean over pairs, which tests and intervals by patient rest on (docs/metrics.md §8)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Shares", "shares"]

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Shares:
    """The parts of G patients in the mean of K means, those over the pairs of each class.

    added: float64 [G, K], the sum over a patient's pairs divided by the number of all pairs of the class; part: the
    share of these pairs that are the patient's. Both are of the same pairs where two are subtracted.
    """

    added: Float
    part: Float

    @property
    def of_patients(self) -> Float:
        """float64 [G]: what each patient adds; the sum is the value."""
        found: Float = self.added.mean(axis=1)
        return found

    @property
    def residuals(self) -> Float:
        """float64 [G]: what each patient adds beyond the mean of each class; the sum is 0."""
        found: Float = (self.added - self.part * self.added.sum(axis=0)).mean(axis=1)
        return found

    @property
    def patients(self) -> int:
        """How many patients have a pair."""
        return int(self.part.any(axis=1).sum())

    def minus(self, other: Shares) -> Shares:
        """The shares of the difference of two values on the same pairs."""
        return Shares(self.added - other.added, self.part)


def shares(values: Float, class_of: NDArray[np.integer], patient_of: NDArray[np.intp], patients: int) -> Shares | None:
    """Shares of the mean over classes of their mean over pairs; None without a pair.

    values: float64 [P]; classes with a NaN are left out. class_of: integers [P]. patient_of: [P] in 0..patients-1.
    """
    names, column = np.unique(class_of, return_inverse=True)
    if not len(values):
        return None
    known = np.flatnonzero(~np.isnan(np.bincount(column, values, len(names))))
    if not len(known):
        return None
    added, part = np.zeros((2, patients, len(known)))
    for place, k in enumerate(known):
        own = np.flatnonzero(column == k)
        added[:, place] = np.bincount(patient_of[own], values[own], patients) / len(own)
        part[:, place] = np.bincount(patient_of[own], minlength=patients) / len(own)
    return Shares(added, part)
