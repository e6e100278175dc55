"""Bootstrap replicates of every number of `recognition.recognition` (docs/metrics.md §7 and §8).

The images of a class are sorted by their score once; a replicate then is one walk along them with the drawn counts as
weights, which gives AUC, average precision, F1 and accuracy of that replicate exactly, ties included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..grounding.search import macro_curve
from ..statistics.bootstrap import Draws, Replicates
from .scores import check_recognition

__all__ = ["RECOGNITION_FIELDS", "RecognitionReplicates", "recognition_replicates"]

Float = NDArray[np.float64]

RECOGNITION_FIELDS: Final = ("auc", "auprc", "auprc_trapezoid", "f1", "f1_best", "accuracy")


@dataclass(frozen=True, eq=False)
class RecognitionReplicates(Replicates):
    """Replicates of one (model, dataset), NaN where a replicate leaves a value undefined.

    classes: field -> float64 [B, C]; macro: field -> float64 [B], the mean over the classes defined in that replicate;
    micro: float64 [B], Hamming accuracy over all known (image, class) cells, under the field `accuracy` only.
    """


def recognition_replicates(
    logits: NDArray[np.floating],
    labels: NDArray[np.integer],
    names: Sequence[str],
    draws: Draws,
    patient_of: NDArray[np.intp],
) -> RecognitionReplicates:
    """Replicates of `recognition.recognition(logits, labels, names)`.

    draws: of the patients of the dataset. patient_of: integers [N], the patient of each image.
    Raises ValueError as `recognition.recognition`, and for a patient that was not drawn from.
    """
    logits, labels = check_recognition(logits, labels, names)
    patient_of = draws.check(patient_of, len(logits))

    from .walk import walk  # compiles, so only where it is run

    values = np.full((len(RECOGNITION_FIELDS), draws.replicates, len(names)), np.nan)
    right, known = np.zeros(draws.replicates), np.zeros(draws.replicates)
    for c in range(len(names)):
        index = np.flatnonzero(labels[:, c] >= 0)
        if len(index) == 0:
            continue
        order = index[np.argsort(-logits[index, c].astype(np.float64), kind="stable")]
        score = logits[order, c].astype(np.float64)
        last = np.append(score[1:] != score[:-1], True)  # the last image of each distinct score
        truth, patient = labels[order, c] == 1, patient_of[order].astype(np.int64)
        cut = int((score >= 0).sum())
        out: Any = np.empty((draws.replicates, len(RECOGNITION_FIELDS)))
        cells: Any = np.empty((draws.replicates, 2))
        walk(draws.counts, patient, truth, last, patient[truth], cut, out, cells)
        values[:, :, c] = out.T
        right += cells[:, 0]
        known += cells[:, 1]
    classes = dict(zip(RECOGNITION_FIELDS, values, strict=True))
    macro = {f: macro_curve([v[:, c] for c in range(len(names))]) for f, v in classes.items() if len(names)}
    with np.errstate(invalid="ignore"):
        return RecognitionReplicates(tuple(names), classes, macro, {"accuracy": right / known})
