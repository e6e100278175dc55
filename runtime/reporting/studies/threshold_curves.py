"""The numbers of the study of thresholds: curves with bands, the range near the best, peakedness, reliability."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.grounding.best_thresholds import FIXED
from ....metrics_gpu.grounding.curve_shape import LEVEL_VALUES, level_histogram, map_entropy, near_best
from ....metrics_gpu.grounding.protocols import Unit
from ....metrics_gpu.grounding.scores import Grounding
from ....metrics_gpu.statistics.class_means import ClassMeans, band, class_means
from ....metrics_gpu.statistics.intervals import MANY_PATIENTS, percentile_interval
from ....metrics_gpu.statistics.measured_numbers import Measured
from ....metrics_gpu.sweep.counts import dice_curves, iou_curves
from ....metrics_gpu.sweep.sweep_options import LEVELS
from ...results.numbers.fields import Sample, number_of
from .columns import measured
from .estimates import over_datasets
from .study_cell import PIXELS, StudyCell

Float = NDArray[np.float64]

SEARCHES: tuple[tuple[str, Unit | None], ...] = (("best", None), ("cross_fitted", "cross_fit"))
"""Column names of the two searches for a threshold, and their units; None: that of the protocol."""

_AREA, _ENTROPY = 0, 1
_FIRST = 2  # columns ahead of the curves
DICE, IOU, _PIXELS, _INSIDE = (slice(_FIRST + i * LEVELS, _FIRST + (i + 1) * LEVELS) for i in range(4))


@dataclass(frozen=True, eq=False)
class CellCurves:
    """One cell's curves and scores.

    means: of K columns, in row 0, and their replicates; the columns are area at 0.5, entropy, and per level
    Dice, IoU, pixels and pixels inside. `histogram`: whether the last two, and the entropy, are known. scores: by
    search, `best` and `cross_fitted`. sample: what they rest on; limits stand from 10 patients.
    """

    cell: StudyCell
    means: ClassMeans
    histogram: bool
    scores: dict[str, Grounding]
    sample: Sample
    level: float

    @property
    def names(self) -> tuple[str, ...]:
        """`mean`, then the classes that have pairs."""
        return ("mean", *(self.cell.classes[index] for index in np.unique(self.cell.class_of)))

    def mean(self, name: str) -> Float:
        """float64 [K] of a class, or of `mean`, the mean over classes."""
        values: Float = self._rows(name)[0]
        return values

    def drawn(self, name: str) -> Float:
        """float64 [B, K]: replicates of `mean(name)`; NaN where there are too few patients for the bootstrap."""
        pairs = self.sample.pairs_of("" if name == "mean" else name)
        replicates = self._rows(name)[1:]
        enough = len(np.unique(self.sample.pair_patient[pairs])) >= MANY_PATIENTS
        return replicates if enough else np.full_like(replicates, np.nan)

    def _rows(self, name: str) -> Float:
        return self.means.macro if name == "mean" else self.means.classes[:, self.cell.classes.index(name)]

    def number(self, search: str, field: str, name: str) -> Measured:
        """A number of a class by `best` or `cross_fitted`, or of `mean`."""
        return number_of(self.scores[search], field, "" if name == "mean" else name, self.sample, self.level)

    def key(self, name: str) -> dict[str, Any]:
        """The leading columns of every row."""
        return {
            "model": self.cell.model,
            "dataset": self.cell.dataset,
            "class": name,
            "n": self.scores["best"].count("n", "" if name == "mean" else name),
        }

    def curve_rows(self) -> Iterator[dict[str, Any]]:
        """Dice and IoU at every threshold with pointwise limits."""
        for name in self.names:
            mean = self.mean(name)
            columns: dict[str, Float] = {}
            for field, part in (("dice", DICE), ("iou", IOU)):
                columns[field] = mean[part]
                columns[f"{field}_low"], columns[f"{field}_high"] = band(self.drawn(name)[:, part], self.level)
            key = self.key(name)
            for k in range(LEVELS):
                yield {
                    **key,
                    "tau": k / 100,
                    **{field: float(column[k]) for field, column in columns.items()},
                }

    def reliability_rows(self) -> Iterator[dict[str, Any]]:
        """Share of pixels inside the region by normalised saliency; `mean` gives every class the same weight."""
        for name in self.names if self.histogram else ():
            mean, sample = self.mean(name), self.drawn(name)
            with np.errstate(invalid="ignore", divide="ignore"):
                share = mean[_INSIDE] / mean[_PIXELS]
                low, high = band(sample[:, _INSIDE] / sample[:, _PIXELS], self.level)
            key = self.key(name)
            for k in range(LEVELS):
                yield {
                    **key,
                    "saliency": float(LEVEL_VALUES[k]),
                    "pixels": float(mean[_PIXELS][k] / PIXELS),
                    "inside": float(share[k]),
                    "inside_low": float(low[k]),
                    "inside_high": float(high[k]),
                }

    def sensitivity_row(self, name: str, within: float) -> dict[str, Any]:
        """How much a wrong threshold costs, how wide the range of good ones is, and how peaked the maps are.

        tau_best, near_low, near_high, near_width: of the mean curve, one threshold for all; delta columns are in
        percentage points. calibration_error: mean distance, over pixels, of the normalised saliency from the share of
        pixels inside the region.
        """
        mean, sample = self.mean(name), self.drawn(name)
        tau_from = self.cell.options().tau_from
        near = near_best(mean[DICE], within, tau_from)
        drawn_near = near_best(sample[:, DICE], within, tau_from)
        best, group = self.scores["best"], "" if name == "mean" else name
        row: dict[str, Any] = {
            **self.key(name),
            "degenerate": best.count("degenerate", group),
            **measured("dice_fixed", self.number("best", "dice_fixed", name)),
            "floor": best.value("floor_dice", group or "macro"),
        }
        for mark, _ in SEARCHES:
            row |= measured(f"dice_{mark}", self.number(mark, "dice_best", name))
            row |= measured(f"delta_{mark}_points", self.number(mark, "delta_dice", name))
        apart = np.abs(LEVEL_VALUES * mean[_PIXELS] - mean[_INSIDE])
        row |= {
            "tau_best": int(near.best) / 100,
            "near_low": int(near.low) / 100,
            "near_high": int(near.high) / 100,
            **measured("near_width", Measured(float(near.width), percentile_interval(drawn_near.width, self.level))),
            **measured("area_fixed", Measured(float(mean[_AREA]), percentile_interval(sample[:, _AREA], self.level))),
            "region": best.value("chance", group or "macro"),
            "entropy": float(mean[_ENTROPY]) if self.histogram else None,
            "calibration_error": float(apart.sum() / mean[_PIXELS].sum()) if self.histogram else None,
        }
        return row


def cell_curves(cell: StudyCell, level: float) -> CellCurves:
    """The curves and scores of one cell that has pairs."""
    counts = cell.counts
    try:
        pixels, inside = level_histogram(counts)
        entropy, histogram = map_entropy(counts), True
    except ValueError:  # counts of another protocol do not hold the values below the first threshold
        pixels = inside = np.zeros((cell.n, LEVELS), np.int64)
        entropy, histogram = np.zeros(cell.n), False
    columns = [counts.area[:, FIXED] / PIXELS, entropy, dice_curves(counts), iou_curves(counts), pixels, inside]
    table = np.column_stack(columns).astype(np.float64)
    scores = {mark: cell.drawn_scores(unit) for mark, unit in SEARCHES}
    return CellCurves(
        cell=cell,
        means=class_means(table, cell.class_of, len(cell.classes), cell.draws, cell.patient_of),
        histogram=histogram,
        scores=scores,
        sample=cell.sample,
        level=level,
    )


def model_deltas(model: str, cells: list[CellCurves], level: float) -> dict[str, Any]:
    """Delta Dice of a model, mean over its datasets that have pairs (docs/metrics.md §4)."""
    row: dict[str, Any] = {"model": model, "datasets": len(cells), "n": sum(item.cell.n for item in cells)}
    for mark, _ in SEARCHES:
        whole = over_datasets(
            (number_of(item.scores[mark], "delta_dice", "", item.sample, level) for item in cells), level
        )
        row |= measured(f"delta_{mark}_points", whole)
    return row
