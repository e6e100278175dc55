"""The pairs and images that the numbers of a cell rest on, by patient."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.statistics.intervals import meaningful
from ....metrics_gpu.statistics.shares import Shares, shares
from ..load import CellRows
from ..pairs import ScoredPairs
from ..patients import Patients

__all__ = ["Sample", "sample_of"]

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Sample:
    """Pairs and images of a cell.

    names: of the dataset's patients, each with the dataset, so that no two datasets share one. findings: the classes.
    class_of, pair_patient: [P], of the pairs. image_patient: [N], of the readable images; labels: [N, C]; logits:
    float [N, C], C = 0 where there are no scores. seed: of all resampling. pooled: whether a mean over classes is
    weighted by their pairs.
    """

    names: tuple[str, ...]
    findings: tuple[str, ...]
    class_of: NDArray[np.intp]
    pair_patient: NDArray[np.intp]
    image_patient: NDArray[np.intp]
    labels: NDArray[np.int8]
    logits: NDArray[np.floating]
    seed: int
    pooled: bool

    def pairs_of(self, name: str) -> NDArray[np.intp]:
        """Indices of the pairs of a class, or (no name) of all."""
        if not name:
            return np.arange(len(self.class_of))
        return np.flatnonzero(self.class_of == self.findings.index(name))

    def shares(self, values: Float, name: str = "") -> Shares | None:
        """What patients add to the mean of `values` [P] over the pairs of a class, or (no name) over classes."""
        own = self.pairs_of(name)
        columns = self.class_of[own]
        if self.pooled and not name:
            own = own[~np.isnan(values[own])]
            columns = np.zeros(len(own), np.intp)
        return shares(values[own], columns, self.pair_patient[own], len(self.names))

    def ranked(self, names: Iterable[str]) -> bool:
        """Whether intervals and tests of AUC mean something: enough patients with and without each finding."""
        for name in names:
            label = self.labels[:, self.findings.index(name)]
            counts = (len(np.unique(self.image_patient[label == value])) for value in (1, 0))
            if not meaningful(**dict(zip(("positives", "negatives"), counts, strict=True))):
                return False
        return True

    @property
    def read(self) -> int:
        """The number of patients with a readable image."""
        return len(np.unique(self.image_patient))

    def auc_parts(self, names: Iterable[str]) -> Float | None:
        """What patients add to the deviation of the mean AUC of classes; None if it has no test."""
        from ....metrics_gpu.recognition.delong import auc_parts

        names = list(names)
        if not (names and self.logits.shape[1] and self.ranked(names)):
            return None
        found = np.zeros(len(self.names))
        for name in names:
            column = self.findings.index(name)
            known = self.labels[:, column] >= 0
            label, score = self.labels[known, column], self.logits[known, column]
            found += auc_parts(score, label, self.image_patient[known], len(self.names)) / len(names)
        return found


def sample_of(rows: CellRows, pairs: ScoredPairs, patients: Patients, seed: int, *, pooled: bool = False) -> Sample:
    """What the numbers of a cell rest on; `pairs`: those that count."""
    of_image = patients.of_images(rows)
    return Sample(
        names=tuple(f"{patients.dataset}/{name}" for name in patients.number),
        findings=rows.findings,
        class_of=pairs.class_of,
        pair_patient=of_image[pairs.image_of],
        image_patient=of_image,
        labels=rows.labels,
        logits=rows.logits[:, : len(rows.findings) if rows.scored else 0],
        seed=seed,
        pooled=pooled,
    )
