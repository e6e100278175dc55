"""Means over classes (docs/metrics.md §8), and the bootstrap over patients (§8.2): draws and replicates.

A replicate is a row of weights, how often each patient was drawn; a sum over the drawn pairs is then a product of the
weights with sums per patient, and all replicates of all cells are a few matrix products instead of loops. The estimate
is the row in which every patient counts once, so that one function gives a metric and its replicates. All classes,
images and models of one dataset share the weights: they are resampled together, and differences between two models are
paired.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .exact_sums import exact_values
from .products import product

REPLICATES: Final = 1000
SEED: Final = 20251022
"""Default seed of every resampling, so that a report can be repeated to the last digit."""


@dataclass(frozen=True, eq=False)
class Draws:
    """How often each patient was drawn: counts uint8 [B, G], or uint16 where one was drawn more than 255 times, every
    row adding up to G. seed: the generator's."""

    counts: NDArray[np.uint8] | NDArray[np.uint16]
    seed: int

    @property
    def replicates(self) -> int:
        """B."""
        return int(self.counts.shape[0])

    @property
    def patients(self) -> int:
        """G."""
        return int(self.counts.shape[1])

    @property
    def weights(self) -> NDArray[np.uint16]:
        """uint16 [1 + B, G]: how often each patient counts, in the estimate (once) and in each replicate."""
        found: NDArray[np.uint16] = np.vstack([np.ones((1, self.patients), np.uint16), self.counts])
        return found

    def sums(self, patient_of: NDArray[np.intp], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weighted sums of `values`: float64 [1 + B, K], over all items and over those drawn in each replicate.

        patient_of: integers [N], the patient of each item, 0..G-1. values: float64 [N, K], rounded by `exact_values`
        before they are summed, so that the sums do not depend on the order of the items, the number of threads or the
        BLAS. Raises ValueError if they do not fit together or a patient is out of range.
        """
        patient_of, values = self.check(patient_of, len(values)), exact_values(values)
        out = np.zeros((1 + self.replicates, values.shape[1]))
        if len(values) == 0:
            return out
        out[0] = values.sum(axis=0)
        if self.replicates == 0:
            return out
        used, position = np.unique(patient_of, return_inverse=True)
        if len(used) < len(patient_of):
            order = np.argsort(position, kind="stable")
            starts = np.searchsorted(position[order], np.arange(len(used)))
            per_patient = np.add.reduceat(values[order], starts, axis=0)
        else:
            per_patient = values[np.argsort(position, kind="stable")]
        for first in range(0, self.replicates, 128):  # bounds the float64 copy of the count matrix
            part = self.counts[first : first + 128]
            out[1 + first : 1 + first + len(part)] = product(part[:, used].astype(np.float64), per_patient)
        return out

    def check(self, patient_of: NDArray[np.intp], items: int) -> NDArray[np.intp]:
        """`patient_of` as integers [items]; ValueError unless every one is a patient of these draws."""
        index = np.asarray(patient_of)
        if index.shape != (items,):
            raise ValueError(f"patient_of must have shape {(items,)}, got {index.shape}")
        if items and not (index.min() >= 0 and index.max() < self.patients):
            raise ValueError(f"patient_of must lie in 0..{self.patients - 1}, got {index.min()}..{index.max()}")
        return index.astype(np.intp, copy=False)


def named_stream(name: str) -> np.random.Philox:
    """Random bits with a name, independent of what else is drawn; their raw output is the same in every version of
    NumPy."""
    return np.random.Philox(key=np.frombuffer(hashlib.sha256(name.encode()).digest()[:16], "<u8"))


def patient_index(ids: Sequence[Hashable]) -> tuple[NDArray[np.intp], int]:
    """Index of each item's patient, in order of first appearance, intp [N], and the number of patients."""
    number_of: dict[Hashable, int] = {}
    index = [number_of.setdefault(name, len(number_of)) for name in ids]
    return np.array(index, np.intp), len(number_of)


def draw_patients(patients: int, replicates: int = REPLICATES, seed: int = SEED) -> Draws:
    """`replicates` resamples of `patients` patients with replacement (PCG64).

    Raises ValueError unless there is at least one patient (and at most 65,535 draws of one can be counted) and one
    replicate.
    """
    if patients < 1 or replicates < 1:
        raise ValueError(f"resampling needs patients and replicates, got {patients} and {replicates}")
    generator = np.random.Generator(np.random.PCG64(seed))
    counts: NDArray[Any] = np.empty((replicates, patients), np.uint8)
    small, large = (int(np.iinfo(dtype).max) for dtype in (np.uint8, np.uint16))
    for row in range(replicates):
        drawn = np.bincount(generator.integers(0, patients, patients), minlength=patients)
        most = int(drawn.max())
        if most > large:
            raise ValueError(f"one of {patients} patients was drawn {most} times, more than can be counted")
        if most > small:
            counts = counts.astype(np.uint16)
        counts[row] = drawn
    return Draws(counts, seed)


def drawn_or_not(
    draws: Draws | None, patient_of: NDArray[np.intp] | None, items: int
) -> tuple[Draws, NDArray[np.intp]]:
    """Checked draws and the patient of each item; without draws, zero replicates and one patient who has all items.

    Raises ValueError for draws without patients, and as `Draws.check`.
    """
    if draws is None:
        return Draws(np.empty((0, 1), np.uint16), SEED), np.zeros(items, np.intp)
    if patient_of is None:
        raise ValueError("draws need patient_of, the patient of each item")
    return draws, draws.check(patient_of, items)


def macro_mean(values: Iterable[float | None]) -> float | None:
    """Unweighted mean of the values that exist; None if none does."""
    defined = [value for value in values if value is not None]
    return math.fsum(defined) / len(defined) if defined else None


def micro_mean(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    """Mean weighted by the number of pairs, over the values that exist with a weight above 0; None if none does."""
    counted = [(value, n) for value, n in zip(values, weights, strict=True) if value is not None and n > 0]
    return math.fsum(value * n for value, n in counted) / sum(n for _, n in counted) if counted else None


def macro_curve(curves: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Unweighted mean over the classes whose curve is defined; NaN where none is."""
    stack = np.stack(curves)
    defined = ~np.isnan(stack)
    count = defined.sum(axis=0)
    total = np.where(defined, stack, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def mean_over_classes(values: NDArray[np.float64], weights: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """float64 [R]: mean of [R, C] over the classes whose value is defined, NaN where none is.

    weights: float64 [R, C], pairs of each class; without them all classes have equal weight. Row 0 is the estimate,
    which is printed: it is `macro_mean` or `micro_mean`, summed without rounding, so that ties at the last digit stay
    ties.
    """
    rows, classes = values.shape
    if not classes:
        return np.full(rows, np.nan)
    estimate = [None if math.isnan(value) else value for value in values[0].tolist()]
    if weights is None:
        means, first = macro_curve(list(values.T)), macro_mean(estimate)
    else:
        with np.errstate(invalid="ignore", divide="ignore"):
            means = np.nansum(values * weights, axis=1) / (weights * ~np.isnan(values)).sum(axis=1)
        first = micro_mean(estimate, weights[0].tolist())
    means[0] = math.nan if first is None else first
    return means
