"""Draws and folds of a dataset's patients, the same for all models, so that differences between models are paired."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...metrics_gpu.grounding.best_thresholds import patient_folds
from ...metrics_gpu.statistics.bootstrap import REPLICATES, SEED, Draws, draw_patients
from .load import CellRows

__all__ = ["Patients", "Resampling", "dataset_patients", "unnamed_lines"]


@dataclass(frozen=True)
class Resampling:
    """How intervals are made: bootstrap replicates over patients (0 for none), the generator's seed, the level."""

    replicates: int = REPLICATES
    seed: int = SEED
    level: float = 0.95

    @property
    def fact(self) -> str:
        """A line that describes the intervals."""
        return f"[{100 * self.level:g} % intervals]: {self.replicates} bootstrap draws of patients, seed {self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Patients:
    """dataset: its name; number: patient's name -> 0..G-1; draws: None for no resampling; folds: intp [R, G], of each
    patient in each repeat of cross-fitting."""

    dataset: str
    number: Mapping[str, int]
    draws: Draws | None
    folds: NDArray[np.intp]

    def of_images(self, cell: CellRows) -> NDArray[np.intp]:
        """intp [N]: the patient of each readable image."""
        return np.array([self.number[cell.patients[case]] for case in cell.case_of], np.intp)


def unnamed_lines(datasets: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """A line about datasets of which images stand for patients; `datasets`: titles, and cases without a patient."""
    titles = dict.fromkeys(title for title, unnamed in datasets if unnamed)
    if not titles:
        return ()
    return (
        f"{', '.join(titles)}: images stand for patients, because none are named; intervals and p are too small where "
        "a patient has several images; the reader option patients=FILE names them",
    )


def dataset_patients(dataset: str, cells: Sequence[CellRows], replicates: int, seed: int) -> Patients:
    """Patients of all `cells` of a dataset, in the order of their names: draws and folds are the same for any models.

    Each dataset has its own seed, made from `seed` and its name: datasets are resampled independently. The folds follow
    the truth of all cases, whether their images were read or not, and have a seed of their own.
    """
    names = sorted({name for cell in cells for name in cell.patients})
    own = int.from_bytes(hashlib.sha256(f"{seed} {dataset}".encode()).digest()[:8], "big")
    draws = draw_patients(len(names), replicates, own) if replicates and names else None
    number = {name: place for place, name in enumerate(names)}
    findings = sorted({name for cell in cells for name in cell.findings})
    has = np.zeros((len(names), len(findings)), np.bool_)
    for cell in cells:
        cases, columns = np.nonzero(cell.positive)
        of_case = np.array([number[name] for name in cell.patients], np.intp)
        has[of_case[cases], np.searchsorted(findings, cell.findings)[columns]] = True
    return Patients(dataset, number, draws, patient_folds(has))
