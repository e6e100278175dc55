"""The map of baseline:prior: the mean region of the finding in other patients of the dataset (docs/metrics.md §4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.grounding.other_patients import OtherPatients
from ....metrics_gpu.sweep.masks import pack_masks, unpack_masks
from ...results.schema import GRID
from ..decoded_case import DecodedCase
from ..drawn import DrawnPairs
from ..measure import Measure
from ..scoring import Scored
from .baselines import draw_case

if TYPE_CHECKING:
    from ...data.datasets.dataset import Case
    from ...data.images.contents import Contents


class Prior:
    """The mean regions of a dataset, each without one patient.

    cases: all of the dataset, also where a limit or a shard evaluates some of them, so that a pair has one map. A case
    without a patient is a patient of its own.
    """

    def __init__(self, cases: Sequence[Case], findings: Sequence[str], contents: Contents) -> None:
        self._cases, self._findings, self._contents = cases, list(findings), contents

    def scores(self, batch: Sequence[DecodedCase], measure: Measure) -> Scored:
        """The counts of those drawn cases of a batch that are readable.

        A finding that no other patient has is taken out of the masks of a case: without a map it is not a pair.
        """
        drawn, maps = [case for case in batch if case.status == "ok"], []
        for case in drawn:
            means = {name: self._mean(case.case, name) for name in self._findings if name in case.masks}
            case.masks = {name: mask for name, mask in case.masks.items() if means[name] is not None}
            maps += [mean for mean in means.values() if mean is not None]
        pairs = DrawnPairs.of(drawn, self._findings)
        counts, native = measure.count(pairs, np.array(maps, np.float32).reshape(-1, GRID, GRID))
        return Scored(pairs, counts, native=native)

    def _mean(self, case: Case, finding: str) -> NDArray[np.float32] | None:
        others, numbers = self._others
        return others.mean(self._findings.index(finding), numbers[case.patient])

    @cached_property
    def _others(self) -> tuple[OtherPatients, dict[str, int]]:
        numbers = {name: number for number, name in enumerate(dict.fromkeys(case.patient for case in self._cases))}
        masks, class_of, patient_of = [np.zeros((0, GRID, GRID // 8), np.uint8)], list[int](), list[int]()
        for case in self._cases:
            masks_of_case = draw_case(case, self._findings, self._contents).masks
            masks += [pack_masks(mask[None]) for mask in masks_of_case.values()]
            class_of += map(self._findings.index, masks_of_case)
            patient_of += [numbers[case.patient]] * len(masks_of_case)
        packed = np.concatenate(masks)
        means = OtherPatients(
            lambda places: unpack_masks(packed[places], GRID),
            np.array(class_of, np.intp),
            np.array(patient_of, np.intp),
        )
        return means, numbers
