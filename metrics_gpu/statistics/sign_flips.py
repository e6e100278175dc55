"""Sign flips by patient: the test of a difference between two results on the same patients (docs/metrics.md §8.4).

If two models do not differ, exchanging their labels within a patient changes nothing but the sign of what the patient
adds to the difference. p is the share of sign patterns whose sum is at least as far from 0 as the one that was found:
of all patterns for few patients, else of a sample of patterns that contains the one found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .bootstrap import SEED, named_stream
from .products import product

Float = NDArray[np.float64]

EXACT_PATIENTS: Final = 15
"""The largest number of patients whose sign patterns are all counted: 32,768, about as many as a sample has."""
LEAST_DRAWS: Final = 19_999
_TIE: Final = 1e-12
_NOTHING: Final = 1e-15  # what rounding leaves of equal values
_CHUNK: Final = 256  # patterns at once, whole bytes of bits; all as float64 would be 160 kB for each patient


@dataclass(frozen=True)
class Tested:
    """A two-sided p value. bound: p is the smallest that the draws can give, so that the true one is below it."""

    p: float
    bound: bool = False


def draws_for(family: int) -> int:
    """How many patterns are drawn for a family of tests, so that one of them can reach 0.005 after the correction."""
    return max(LEAST_DRAWS, math.ceil(family / 0.005) - 1)


def sign_patterns(patients: Sequence[str], draws: int, seed: int = SEED) -> NDArray[np.uint8]:
    """Bits uint8 [G, ceil(draws / 8)]: whether each pattern flips each patient (Philox, keyed by seed and patient).

    A patient's bits do not depend on the others, so that one question has one answer wherever it is asked.
    """
    words = -(-draws // 64)
    bits = np.empty((len(patients), words), "<u8")
    for row, name in zip(bits, patients, strict=True):
        row[:] = named_stream(f"{seed} {name}").random_raw(words)
    return bits.view(np.uint8)[:, : -(-draws // 8)]


def sign_flip_tests(added: Float, patients: Sequence[str], draws: int = LEAST_DRAWS, seed: int = SEED) -> list[Tested]:
    """The tests of M differences on the same patients.

    added: float64 [G, M], what each patient adds to each difference. Raises ValueError if a value is not finite or
    there is not one name per patient.
    """
    if added.ndim != 2 or len(patients) != len(added):
        raise ValueError(f"{len(patients)} patients do not fit values of shape {added.shape}")
    if not np.isfinite(added).all():
        raise ValueError("what a patient adds to a difference must be finite")
    differs = np.abs(added) > _NOTHING
    few = differs.sum(axis=0) <= EXACT_PATIENTS
    tests = [_exact(added[differs[:, m], m]) if few[m] else None for m in range(added.shape[1])]
    many = np.flatnonzero(~few)
    if len(many):
        rows = np.flatnonzero(differs[:, many].any(axis=1))
        values = added[np.ix_(rows, many)]
        bits = sign_patterns([patients[row] for row in rows.tolist()], draws, seed)
        beyond = _beyond(values, bits, draws)
        for column, count in zip(many, beyond, strict=True):
            tests[column] = Tested((1 + int(count)) / (draws + 1), bound=not count)
    return [item for item in tests if item is not None]


def _beyond(values: Float, bits: NDArray[np.uint8], draws: int) -> NDArray[np.int64]:
    """How many of the patterns are at least as extreme as the values [P, M] without any flip, int64 [M]."""
    total = values.sum(axis=0)
    beyond = np.zeros(values.shape[1], np.int64)
    for first in range(0, draws, _CHUNK):
        last = min(first + _CHUNK, draws)
        flipped = np.unpackbits(bits[:, first // 8 : -(-last // 8)], axis=1, count=last - first, bitorder="little")
        sums = total - 2.0 * product(flipped.T.astype(np.float64), values)
        beyond += (np.abs(sums) >= np.abs(total) - _TIE).sum(axis=0)
    return beyond


def _exact(values: Float) -> Tested:
    """All 2^P patterns of P values."""
    patterns = np.arange(2 ** len(values))[:, None] >> np.arange(len(values)) & 1
    sums = product(1.0 - 2.0 * patterns, values)
    return Tested(float((np.abs(sums) >= abs(values.sum()) - _TIE).mean()))
