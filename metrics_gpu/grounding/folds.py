"""How patients are divided for cross-fitting (docs/metrics.md §4.3).

Up to `LEAVE_ONE_OUT` patients, each is a fold of its own, which needs no random choice. More are divided into `FOLDS`
folds, stratified by finding, `REPEATS` times in different orders.
"""

from __future__ import annotations

import heapq
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..statistics.bootstrap import SEED

__all__ = ["FOLDS", "LEAVE_ONE_OUT", "REPEATS", "patient_folds"]

LEAVE_ONE_OUT: Final = 500
"""The largest number of patients of which each is left out alone."""
FOLDS: Final = 10
REPEATS: Final = 5


def patient_folds(class_of: NDArray[np.integer], patient_of: NDArray[np.integer], seed: int = SEED) -> NDArray[np.intp]:
    """Fold of each pair, intp [R, P]; all pairs of a patient share one. R is 1, or `REPEATS` for many patients.

    class_of, patient_of: integers [P], the class and the patient of each pair. In each repeat patients are taken in
    another order (PCG64). Class by class, the one with the fewest patients first, each patient without a fold gets the
    one with the fewest patients of the class; of equal ones that with the fewest patients, then the first. Raises
    ValueError for other shapes.
    """
    class_of, patient_of = np.asarray(class_of), np.asarray(patient_of)
    if class_of.ndim != 1 or class_of.shape != patient_of.shape:
        raise ValueError(
            f"class_of and patient_of must have one shape [P], got {class_of.shape} and {patient_of.shape}"
        )
    names, patient = np.unique(patient_of, return_inverse=True)
    if len(names) <= LEAVE_ONE_OUT:
        single: NDArray[np.intp] = patient.astype(np.intp)[None]
        return single
    has = np.zeros((len(names), len(np.unique(class_of))), np.bool_)
    has[patient, np.unique(class_of, return_inverse=True)[1]] = True
    generator = np.random.Generator(np.random.PCG64(seed))
    repeats = [_divided(has, generator.permutation(len(names))) for _ in range(REPEATS)]
    found: NDArray[np.intp] = np.stack(repeats)[:, patient]
    return found


def _divided(has: NDArray[np.bool_], order: NDArray[np.integer]) -> NDArray[np.intp]:
    """Fold of each patient, intp [G]. has: bool [G, C], whether a patient has pairs of a class."""
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
