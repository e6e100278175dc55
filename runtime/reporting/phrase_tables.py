"""CNR and mean IoU of maps, as BioViL's evaluation of phrase grounding computes them (docs/metrics.md §16)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...engines.manifest import OFFICIAL_MAP, known_smoothing
from ...metrics_gpu.grounding.phrases import (
    IOU_THRESHOLDS,
    SIGMA,
    PhraseMeans,
    PhraseScores,
    phrase_means,
    scores_on_grid,
)
from ...metrics_gpu.statistics.class_means import class_means
from ...metrics_gpu.statistics.intervals import Interval, mean_interval, shares
from ...metrics_gpu.sweep.masks import unpack_masks
from ..results.load_rows import StoredRun
from ..results.numbers.run_numbers import Results
from ..results.schema import GRID
from ..results.selected_pairs import Patients
from ..results.stored_maps import MapRows, load_maps
from .notes import interval_notes
from .printed_cells import interval_text
from .tables.metric_names import plain_number, value_of
from .tables.stamps import cell_stamps
from .tables.table import Cell, Column, Item, Table, ascii_stem

_CNR: Final = 3  # decimals; its intervals have one fewer
_BLOCK = 256  # pairs whose regions are unpacked at once
_IOU: Final = tuple(f"iou@{threshold:.1f}" for threshold in IOU_THRESHOLDS)
_NUMBERS: Final = ("cnr", "cnr_absolute", "miou", *_IOU, "miou_with_unseen")


@dataclass(frozen=True)
class PhraseRow:
    """The numbers of a model on a dataset, for a finding, or (empty) in the mean over findings.

    means: None where the run has no maps. intervals: by number; None where too few patients stand behind it. smoothing:
    sigma, in cells, of the Gaussian by which the model itself smooths its maps, 0 for none.
    """

    model: str
    dataset: str
    finding: str
    means: PhraseMeans | None
    intervals: Mapping[str, Interval | None] = field(default_factory=dict)
    smoothing: float = 0.0

    @property
    def numbers(self) -> dict[str, float | None]:
        """Each number, None where it is not defined."""
        if self.means is None:
            return {}
        told = asdict(self.means) | dict(zip(_IOU, self.means.iou, strict=True))
        return {name: None if math.isnan(told[name]) else told[name] for name in _NUMBERS}


def phrase_rows(run: StoredRun, results: Results) -> list[PhraseRow]:
    """The rows of every result of the protocol biovil, each finding and then their mean. Raises RunError."""
    rows = []
    for dataset in results.datasets:
        for cell in results.column(dataset):
            if cell.protocol == "biovil":
                maps = load_maps(run, cell.model, dataset)
                if maps.saliency is None:
                    rows.append(PhraseRow(cell.model, dataset, "", None))
                    continue
                patients = results.patients[dataset]
                rows += _rows(maps, patients.of_images(cell.rows)[cell.rows.image_of], patients)
    return rows


def phrase_tables(results: Results, found: Sequence[PhraseRow]) -> Iterator[Table]:
    """A table for each dataset; found: as `phrase_rows` gives them."""
    for dataset in dict.fromkeys(row.dataset for row in found if row.means is not None):
        mine = [row for row in found if row.dataset == dataset]
        left_out = ", ".join(row.model for row in mine if row.means is None)
        cells = [cell for cell in results.column(dataset) if cell.protocol == "biovil"]
        notes = (
            *_NOTES,
            *_smoothing_notes(mine),
            *interval_notes(results, cells),
            *([f"without stored maps, left out: {left_out}"] * bool(left_out)),
        )
        title = f"{cells[0].title}: phrase grounding, protocol biovil"
        body = tuple(_row(row, row.means) for row in mine if row.means is not None)
        yield Table(title, _columns(), body, cell_stamps(cells), notes, f"phrases-{ascii_stem(dataset)}")


def phrase_json(found: Sequence[PhraseRow]) -> list[dict[str, Any]]:
    """The same for report.json; an empty finding is the mean over findings."""
    return [
        {
            "model": row.model,
            "dataset": row.dataset,
            "finding": row.finding,
            "smoothing": row.smoothing,
            **{name: getattr(row.means, name) for name in ("pairs", "unseen", "constant")},
            **row.numbers,
            "intervals": {name: [at.low, at.high] for name, at in row.intervals.items() if at is not None},
        }
        for row in found
        if row.means is not None
    ]


_NOTES = (
    f"maps smoothed by a Gaussian of {SIGMA} cells, upsampled bilinearly on the 224 grid, min-max to -1..1 over the "
    "pixels that the model saw; the other pixels leave map and region",
    "CNR: (mean inside - mean outside) / sqrt(sum of both variances); signed as in the code, absolute as in the "
    "formula",
    "IoU in percent of the pixels above 0.1, ..., 0.5 with the region; mIoU: their mean; Mean: over findings",
    "unseen: regions wholly outside what the model saw, left out as in the source, 0 in mIoU with unseen; constant: "
    "maps without a range, 0 in all columns",
)


def _smoothing_notes(rows: Sequence[PhraseRow]) -> Iterator[str]:
    """Which models smooth their maps themselves, and which of them not as the protocol does."""
    found = {row.model: row.smoothing for row in rows if row.means is not None and row.smoothing}
    if found:
        yield f"smoothed by the model itself, so not smoothed again: {', '.join(found)}"
    if other := ", ".join(f"{model} ({sigma:g} cells)" for model, sigma in found.items() if sigma != SIGMA):
        yield f"smoothed by the model with another Gaussian than the protocol's {SIGMA} cells: {other}"


def _columns() -> tuple[Column, ...]:
    names = [("model", ""), ("class", ""), ("n", ""), ("signed", "CNR"), ("absolute", "CNR"), ("mIoU", "")]
    names += [(f"{threshold:.1f}", "IoU at") for threshold in IOU_THRESHOLDS]
    names += [("with unseen", "mIoU"), ("unseen", "pairs"), ("constant", "pairs")]
    return tuple(Column(text, group) if group else Column(text) for text, group in names)


def _row(row: PhraseRow, means: PhraseMeans) -> tuple[Item, ...]:
    cells = []
    for name, value in row.numbers.items():
        at = row.intervals.get(name)
        if name.startswith("cnr"):
            around = f"[{plain_number(at.low, _CNR - 1)}, {plain_number(at.high, _CNR - 1)}]" if at else ""
            cells.append(Cell(plain_number(value, _CNR), around))
        else:
            cells.append(Cell(value_of("iou_fixed", value), interval_text(at, "iou_fixed")))
    counts = [str(number) for number in (means.unseen, means.constant)]
    return (row.model, row.finding or "Mean", str(means.pairs), *cells, *counts)


def _rows(maps: MapRows, of_pair: NDArray[np.intp], patients: Patients) -> Iterator[PhraseRow]:
    """Those of a cell; of_pair: the patient of each pair."""
    smoothing = _smoothing(maps.entry)
    scores, places = _scores(maps, 0.0 if smoothing else SIGMA)
    names = maps.finding
    findings = list(dict.fromkeys(names))
    class_of = np.array([findings.index(names[place]) for place in places], np.intp)
    intervals = _intervals(scores, class_of, of_pair[places], patients) if scores else []
    for place, finding in enumerate(findings):
        mine = [score for score, own in zip(scores, class_of, strict=True) if own == place]
        if mine:
            means = phrase_means(mine, [finding] * len(mine))
            yield PhraseRow(maps.model, maps.dataset, finding, means, intervals[place], smoothing)
    if scores:
        means = phrase_means(scores, [findings[own] for own in class_of])
        yield PhraseRow(maps.model, maps.dataset, "", means, intervals[-1], smoothing)


def _intervals(
    scores: Sequence[PhraseScores], class_of: NDArray[np.intp], of_pair: NDArray[np.intp], patients: Patients
) -> list[dict[str, Interval | None]]:
    """Of each finding, then of their mean: number -> interval; patients are drawn as for all numbers of the dataset."""
    classes = int(class_of.max()) + 1
    found: list[dict[str, Interval | None]] = [{} for _ in range(classes + 1)]
    if patients.draws is None:
        return found
    for name in _NUMBERS:
        values = np.array([_value(score, name) for score in scores])
        known = ~np.isnan(values)
        values, own, patient = values[known], class_of[known], of_pair[known]
        drawn = class_means(values[:, None], own, classes, patients.draws, patient)
        bounds = None if name == "cnr" else (0.0, math.inf) if name == "cnr_absolute" else (0.0, 1.0)
        for place in range(classes + 1):
            whole = place == classes
            kept = np.ones(len(own), np.bool_) if whole else own == place
            parts = shares(values[kept], own[kept], patient[kept], len(patients.number))
            column = drawn.macro[1:, 0] if whole else drawn.classes[1:, place, 0]
            found[place][name] = mean_interval(column, parts, bounds=bounds)
    return found


def _value(score: PhraseScores, name: str) -> float:
    if name == "miou_with_unseen":
        return 0.0 if score.unseen else score.miou
    if name in _IOU:
        return score.iou[_IOU.index(name)]
    return {"cnr": score.cnr, "cnr_absolute": abs(score.cnr), "miou": score.miou}[name]


def _smoothing(entry: Mapping[str, Any]) -> float:
    """Sigma of the Gaussian by which the model of a cell smooths its maps; older versions did not store it."""
    known = known_smoothing(str(entry.get("model_family", "")), str(entry.get("saliency_map", OFFICIAL_MAP)))
    return float(entry.get("smoothing", known))


def _scores(maps: MapRows, sigma: float) -> tuple[list[PhraseScores], list[int]]:
    """The scores and places of the pairs whose region is not empty; sigma: of the protocol's Gaussian, 0 for none."""
    assert maps.saliency is not None
    scores, places = [], []
    for start in range(0, len(maps), _BLOCK):
        regions = unpack_masks(maps.masks[start : start + _BLOCK], GRID)
        for place, region in enumerate(regions, start):
            if np.any(region):
                top, left, bottom, right = maps.frames[place].tolist()
                frame = (top, left, bottom, right)
                scores.append(scores_on_grid(maps.saliency[place], region, frame, sigma=sigma))
                places.append(place)
    return scores, places
