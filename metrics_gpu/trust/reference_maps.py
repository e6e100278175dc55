"""Maps that a model's own map must beat: maps of the same finding in other patients (docs/trust.md §1.2)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..grounding.other_patients import OtherPatients
from .similarity import degenerate_maps

MOST_OTHERS: Final = 8
"""How many maps of other patients are scored one by one on the region of a pair."""


def scaled_grids(saliency: NDArray[np.float32]) -> NDArray[np.float32]:
    """float32 [n, h, w]: maps scaled to [0, 1] by their extremes, at their own size; a degenerate map is 0."""
    flat = degenerate_maps(saliency)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        low = saliency.min(axis=(1, 2), keepdims=True)
        scaled: NDArray[np.float32] = (saliency - low) / (saliency.max(axis=(1, 2), keepdims=True) - low)
    scaled[flat] = 0
    return scaled


def prior_maps(
    saliency: NDArray[np.float32], class_of: NDArray[np.intp], patient_of: NDArray[np.intp]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """For each of P pairs the mean of the scaled maps of the same class in all other patients, float32 [P, h, w].

    saliency: float32 [P, h, w]; class_of, patient_of: intp [P]. Also bool [P]: whether there is another patient.
    """
    scaled = scaled_grids(saliency)
    others = OtherPatients(lambda places: scaled[places], class_of, patient_of)
    priors, has_others = np.zeros_like(scaled), np.zeros(len(scaled), np.bool_)
    keys, key_of = np.unique(np.column_stack([class_of, patient_of]), axis=0, return_inverse=True)
    means = [others.mean(int(name), int(patient)) for name, patient in keys]
    for pair, key in enumerate(key_of.reshape(-1).tolist()):
        mean = means[key]
        if mean is not None:
            priors[pair], has_others[pair] = mean, True
    return priors, has_others


def other_patient_pairs(
    class_of: NDArray[np.intp], patient_of: NDArray[np.intp], seed: int, most: int = MOST_OTHERS
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Two intp [M]: a pair, and a pair of the same class and another patient.

    Each pair has all of those, or `most` of them, drawn without replacement (PCG64).
    """
    generator = np.random.Generator(np.random.PCG64(seed))
    pairs, others = [np.zeros(0, np.intp)], [np.zeros(0, np.intp)]
    for name in np.unique(class_of):
        members = np.flatnonzero(class_of == name)
        for pair in members:
            near = members[patient_of[members] != patient_of[pair]]
            chosen = near if len(near) <= most else np.sort(generator.choice(near, most, replace=False))
            pairs.append(np.full(len(chosen), pair))
            others.append(chosen)
    return np.concatenate(pairs), np.concatenate(others)
