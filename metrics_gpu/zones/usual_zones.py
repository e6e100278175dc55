"""The usual zones of a finding in other patients: words that look at no image (docs/words.md §7)."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np

from ..detection.boxes import Int


def usual_cells(true_cells: Int, class_of: Int, patient_of: Int) -> Int:
    """int64 [P]: the commonest set of cells of a pair's class in other patients, of equal ones the smallest number; 0
    where no other patient has the class. All int64 [P]."""
    of_class: dict[int, Counter[int]] = defaultdict(Counter)
    own: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    columns = (class_of.tolist(), patient_of.tolist(), true_cells.tolist())
    for name, patient, cells in zip(*columns, strict=True):
        of_class[name][cells] += 1
        own[name, patient][cells] += 1
    result = np.zeros(len(true_cells), np.int64)
    for pair, (name, patient) in enumerate(zip(columns[0], columns[1], strict=True)):
        others = of_class[name] - own[name, patient]
        result[pair] = min(others, key=lambda cells: (-others[cells], cells), default=0)
    return result
