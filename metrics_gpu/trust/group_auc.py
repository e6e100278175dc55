"""AUC of groups of images, and the gap between two (docs/subgroups.md §5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..recognition.delong import auc_difference, auc_parts
from ..recognition.scores import recognition
from ..statistics.bootstrap import Draws
from ..statistics.intervals import meaningful, percentile_interval
from ..statistics.measured_numbers import Measured
from .subgroups import LEAST_PRINTED, LEAST_TESTED, Gap

Float = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ScoredImages:
    """N images with scores of C findings. logits: float [N, C]; labels: int8 [N, C], -1 for unknown; patient_of: intp
    [N]; draws: of the patients of the dataset; level: of the intervals."""

    logits: NDArray[np.floating]
    labels: NDArray[np.int8]
    names: Sequence[str]
    patient_of: NDArray[np.intp]
    draws: Draws
    level: float = 0.95

    def patients(self, members: Mask) -> int:
        """The number of patients with one of the images `members`, bool [N]."""
        return len(np.unique(self.patient_of[members]))

    def findings(self, members: Mask) -> list[int]:
        """Those with enough patients with and without them, so that an AUC means something."""
        findings = []
        for c in range(self.labels.shape[1]):
            counts = [self.patients(members & (self.labels[:, c] == label)) for label in (1, 0)]
            if meaningful(positives=counts[0], negatives=counts[1]):
                findings.append(c)
        return findings

    def drawn(self, members: Mask, findings: Sequence[int]) -> Float:
        """float64 [1 + B]: the mean over `findings` of the AUC of these images, NaN where one is undefined."""
        columns = list(findings)
        scores = recognition(
            self.logits[members][:, columns],
            self.labels[members][:, columns],
            [self.names[c] for c in columns],
            self.draws,
            self.patient_of[members],
        )
        means: Float = scores.rows["auc"][: len(columns)].T.copy().mean(axis=1)
        return means

    def parts(self, members: Mask, findings: Sequence[int]) -> Float:
        """float64 [G]: what each patient adds to the deviation of that mean."""
        total = np.zeros(self.draws.patients)
        for c in findings:
            labelled = members & (self.labels[:, c] >= 0)
            parts = auc_parts(self.logits[labelled, c], self.labels[labelled, c], self.patient_of[labelled], len(total))
            total += parts / len(findings)
        return total


def auc_of_group(images: ScoredImages, members: Mask) -> tuple[Measured, int] | None:
    """The mean AUC of the images `members`, bool [N], and the number of findings it is of; None without one, or with
    too few patients."""
    findings = images.findings(members)
    if not findings or images.patients(members) < LEAST_PRINTED:
        return None
    drawn = images.drawn(members, findings)
    return Measured(float(drawn[0]), percentile_interval(drawn[1:], images.level)), len(findings)


def auc_gap(images: ScoredImages, first: Mask, second: Mask) -> Gap | None:
    """The gap between the images `first` and `second`, bool [N], over the findings that have an AUC in both; None
    without one, or with too few patients. Tested by DeLong's method by patient, who may be in both."""
    findings = [c for c in images.findings(first) if c in images.findings(second)]
    patients = images.patients(first), images.patients(second)
    if not findings or min(patients) < LEAST_PRINTED:
        return None
    gaps = images.drawn(first, findings) - images.drawn(second, findings)
    p = None
    if min(patients) >= LEAST_TESTED:
        p = auc_difference(float(gaps[0]), images.parts(first, findings) - images.parts(second, findings)).p
    return Gap(float(gaps[0]), percentile_interval(gaps[1:], images.level), p=p)
