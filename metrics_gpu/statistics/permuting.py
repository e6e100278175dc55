"""The compiled loop of `two_groups.permutation_tests`: random divisions of patients into two groups."""

from __future__ import annotations

from typing import Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from ..compiled import compiled, readonly

_TIE: Final = 1e-12
_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX: Final = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def _count_beyond(values: NDArray[np.float64], first: int, draws: int, state: np.uint64) -> NDArray[np.int64]:
    patients, columns = values.shape
    total, of_first, limit = np.zeros(columns), np.zeros(columns), np.zeros(columns)
    beyond = np.zeros(columns - 1, np.int64)
    order = np.arange(patients)
    for i in range(patients):
        for k in range(columns):
            total[k] += values[i, k]
            if i < first:
                of_first[k] += values[i, k]
    for k in range(1, columns):
        limit[k] = abs(of_first[k] / of_first[0] - (total[k] - of_first[k]) / (total[0] - of_first[0])) - _TIE
    for _ in range(draws):
        for k in range(columns):
            of_first[k] = 0.0
        # The first places of a shuffle; it goes on from the order before, which is as good as any.
        for i in range(first):
            state += _STEP
            word = state
            word = (word ^ (word >> np.uint64(30))) * _MIX[0]
            word = (word ^ (word >> np.uint64(27))) * _MIX[1]
            word = (word ^ (word >> np.uint64(31))) >> np.uint64(32)
            j = i + np.int64((word * np.uint64(patients - i)) >> np.uint64(32))
            taken = order[j]
            order[j] = order[i]
            order[i] = taken
            for k in range(columns):
                of_first[k] += values[taken, k]
        for k in range(1, columns):
            if abs(of_first[k] / of_first[0] - (total[k] - of_first[k]) / (total[0] - of_first[0])) >= limit[k]:
                beyond[k - 1] += 1
    return beyond


count_beyond = compiled(
    _count_beyond,
    types.int64[::1](readonly(types.float64, 2), types.int64, types.int64, types.uint64),
)
"""values float64 [G, 1 + K]: of each patient the number of pairs, then their sums, the patients of the first group
before the others; first: how many these are; draws; state: of the generator (splitmix64). Returns int64 [K]: how many
of the random divisions differ at least as much as that of `first`."""
