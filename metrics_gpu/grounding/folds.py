"""How patients are divided for cross-fitting (docs/metrics.md §4.3).

Up to `LEAVE_ONE_OUT` patients with a finding, each is a fold of its own, which needs no random choice. More are divided
into `FOLDS` folds, stratified by finding, `REPEATS` times in different orders. This is done once per dataset, so that
all models share the folds.
"""

from __future__ import annotations

import heapq
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..statistics.bootstrap import SEED

__all__ = ["FOLDS", "LEAVE_ONE_OUT", "REPEATS", "pair_folds", "patient_folds"]

LEAVE_ONE_OUT: Final = 500
"""The largest number of patients of which each is left out alone."""
FOLDS: Final = 10
REPEATS: Final = 5


def patient_folds(has: NDArray[np.bool_], seed: int = SEED) -> NDArray[np.intp]:
    """Fold of each patient of a dataset, intp [R, G]; R is 1, or `REPEATS` where many patients have a finding.

    has: bool [G, C], whether the truth gives a patient a finding; -1 for a patient without any, where there are folds.
    In each repeat patients are taken in another order (PCG64). Finding by finding, the one with the fewest patients
    first, each patient without a fold gets the one with the fewest patients of the finding; of equal ones that with the
    fewest patients, then the first. Raises ValueError for another shape.
    """
    has = np.asarray(has)
    if has.ndim != 2:
        raise ValueError(f"has must have the shape [G, C], got {has.shape}")
    if has.any(axis=1).sum() <= LEAVE_ONE_OUT:
        return np.arange(len(has), dtype=np.intp)[None]
    generator = np.random.Generator(np.random.PCG64(seed))
    found: NDArray[np.intp] = np.stack([_divided(has, generator.permutation(len(has))) for _ in range(REPEATS)])
    return found


def pair_folds(
    folds: NDArray[np.intp], class_of: NDArray[np.integer], patient_of: NDArray[np.integer]
) -> NDArray[np.intp]:
    """Fold of each pair within its class, intp [R, P]. folds: [R, G], of `patient_folds`; class_of, patient_of: [P].

    It is the patient's, but where one fold holds more than half of the patients of a class, each of them is left out
    alone in that repeat: too few others would be left to fit on, or none.
    """
    found: NDArray[np.intp] = folds[:, patient_of]
    for c in np.unique(class_of) if len(folds) > 1 else ():
        own = np.flatnonzero(class_of == c)
        members = np.unique(patient_of[own])
        for repeat, of_member in enumerate(folds[:, members]):
            if 2 * np.bincount(of_member).max() > len(members):
                found[repeat, own] = patient_of[own]
    return found


def _divided(has: NDArray[np.bool_], order: NDArray[np.integer]) -> NDArray[np.intp]:
    """Fold of each patient, intp [G]. has: bool [G, C], whether a patient has a finding."""
    fold = np.full(len(has), -1, np.intp)
    total = np.zeros(FOLDS, np.intp)
    for c in np.argsort(has.sum(axis=0), kind="stable"):
        placed = has[:, c] & (fold >= 0)
        own = np.bincount(fold[placed], minlength=FOLDS)
        heap = [(int(own[f]), int(total[f]), f) for f in range(FOLDS)]
        heapq.heapify(heap)
        for patient in order[(has[:, c] & (fold < 0))[order]]:
            of_class, of_all, f = heap[0]
            fold[patient] = f
            heapq.heapreplace(heap, (of_class + 1, of_all + 1, f))
        total = np.bincount(fold[fold >= 0], minlength=FOLDS)
    return fold
