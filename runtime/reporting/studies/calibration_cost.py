"""What `study calibration` will cost, said before it begins."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import numpy as np

from ....metrics_gpu.grounding.best_thresholds import pair_folds
from ....metrics_gpu.grounding.calibration import beta_map, isotonic_map
from ....metrics_gpu.sweep.maps import scaled_map
from ....metrics_gpu.sweep.masks import GRID
from ....metrics_gpu.sweep.quantiles import quantile_counts
from ....metrics_gpu.sweep.sweep_options import LEVELS
from ...host.sizes import format_bytes
from .material import Material

_SAMPLE: Final = 16


def calibration_cost(material: Material, maps: bool) -> str:
    """A sentence on the work and its time, by a sample of made-up maps and fits: those of a run would be read twice."""
    cells = material.paired
    read = sum(cell.n for cell in cells) if maps else 0
    size = sum((material.run.path / cell.rows.entry["file"]).stat().st_size for cell in cells) if maps else 0
    fits = 0
    for cell in cells:
        for folds in pair_folds(cell.patients.folds, cell.class_of, cell.patient_of):
            fits += len(np.unique(np.column_stack([cell.class_of, folds]), axis=0))
    random = np.random.default_rng(0)
    grids = random.random((_SAMPLE, 14, 14)).astype(np.float32)
    inside, pixels = random.random(GRID) < 0.1, random.integers(100, 1000, (_SAMPLE, LEVELS))

    def rank() -> None:
        for grid in grids:
            quantile_counts(scaled_map(grid), inside)

    def fit() -> None:
        isotonic_map(pixels, pixels // 3)
        beta_map(pixels, pixels // 3)

    seconds = read * _each(rank) + fits * _each(fit)
    told = f"{read:,} maps in {format_bytes(size)} of rows, " if read else ""
    return f"calibration: {told}{fits:,} fits of a finding and a fold; about {seconds:.0f} s, then tables and figures"


def _each(sample: Callable[[], None]) -> float:
    """Seconds of one of the `_SAMPLE` in a sample, run once before for what it loads."""
    sample()
    start = time.perf_counter()
    sample()
    return (time.perf_counter() - start) / _SAMPLE
