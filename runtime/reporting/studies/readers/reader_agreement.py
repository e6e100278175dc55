"""Agreement of readers as rows: about presence, about extent, where they point, and each reader alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .....metrics_gpu.detection.boxes import BoxLists, centres, pointed
from .....metrics_gpu.detection.unions import pixel_rectangles
from .....metrics_gpu.statistics.intervals import MANY_PATIENTS, Interval, percentile_interval
from .....metrics_gpu.statistics.measured_numbers import Measured
from .....metrics_gpu.sweep.counts import dice_curves
from .....metrics_gpu.trust.agreement import presence_agreement
from .....metrics_gpu.trust.verdicts import Judged, PairGroups, effects_of
from ....results.load_rows import StoredRun
from ....results.numbers.fields import number_of
from ....results.stored_boxes import load_boxes
from ..columns import measured
from ..study_cell import StudyCell
from ..writing import clean, limits
from .ratings import Ratings, left_out_reader

Row = dict[str, Any]

COEFFICIENTS: Final = ("prevalence", "observed", "gwet_ac1", "fleiss_kappa", "krippendorff_alpha")
LEAST_IMAGES: Final = 20
"""The images that one reader must have read for a row of the reader's own."""
MEAN: Final = "mean"


def presence_rows(cell: StudyCell, ratings: Ratings, level: float) -> Iterator[Row]:
    """A row for each finding that a reader names."""
    for place, name in enumerate(cell.classes):
        named, readers = ratings.named[:, place], ratings.readers[:, place]
        if not named.any():
            continue
        agreement = presence_agreement(named, readers, cell.draws, ratings.patient_of)
        patients = len(np.unique(ratings.patient_of[readers > 1]))
        row = {**_start(cell, name), "images": int((readers > 1).sum()), "patients": patients}
        for key in COEFFICIENTS:
            values = getattr(agreement, key)
            value = clean(float(values[0]))
            enough = patients >= MANY_PATIENTS and value is not None
            row |= measured(key, Measured(value, percentile_interval(values[1:], level) if enough else None))
        yield row


def extent_rows(cell: StudyCell, ratings: Ratings, level: float) -> Iterator[Row]:
    """A row for each finding that two readers, or one of two, marked, and their mean: Dice and IoU of two readers."""
    extents = ratings.extents
    both = np.column_stack([extents.dice, extents.iou])
    values = np.column_stack([np.where(extents.both[:, None], both, np.nan), both])
    names = ("dice_both", "iou_both", "dice_any", "iou_any")
    yield from _rows(cell, values, names, (extents.class_of, extents.patient_of), level)


def pointing_rows(run: StoredRun, cell: StudyCell, level: float) -> Iterator[Row]:
    """A row for each finding and their mean: the share of pairs where the reader points into the region, and of boxes
    whose centre lies in it. Raises RunError when the result file cannot be read."""
    hits = list(_rows(cell, cell.hits[:, None], ("pointing",), (cell.class_of, cell.patient_of), level))
    inside: list[Row] = []
    answers = load_boxes(run, cell.rows).answers
    if len(answers.given.boxes):
        owner = answers.given.owner
        single = BoxLists(answers.given.boxes, np.arange(len(owner) + 1, dtype=np.int64))
        sizes = answers.sizes[owner]
        share = pointed(centres(single, sizes), pixel_rectangles(answers.truth.take(owner), sizes)).astype(np.float64)
        patients = np.array([cell.patients.number[name] for name in cell.rows.patients], np.intp)
        groups = answers.class_of[owner], patients[answers.case_of[owner]]
        inside = list(_rows(cell, share[:, None], ("centres_inside",), groups, level))
    row_of = {row["finding"]: row for row in inside}
    scores, sample = cell.drawn_scores(), cell.sample
    empty = {**measured("centres_inside", Measured()), "centres_inside_n": 0}
    for row in hits:
        centres_row, name = row_of.get(row["finding"], empty), row["finding"] if row["finding"] != MEAN else ""
        row |= limits("pointing", number_of(scores, "pointing", name, sample, level).interval)
        yield {**row, **{key: centres_row[key] for key in empty}}


def reader_rows(cell: StudyCell, level: float) -> Iterator[Row]:
    """A row for each reader who is left out of at least `LEAST_IMAGES` images: Dice and pointing on them."""
    of_case = [left_out_reader(case)[1] for case in cell.rows.case_ids]
    of_pair = np.array([left_out_reader(case)[1] for case in cell.case_ids])
    values = np.column_stack([dice_curves(cell.counts)[:, -1], cell.hits])
    for reader in sorted(set(of_case)):
        pairs = np.flatnonzero(of_pair == reader)
        images = of_case.count(reader)
        if images < LEAST_IMAGES or not len(pairs):
            continue
        groups = cell.class_of[pairs], cell.patient_of[pairs]
        (mean, *_) = _rows(cell, values[pairs], ("dice_fixed", "pointing"), groups, level)
        yield {
            "dataset": cell.title,
            "reader": reader,
            "images": images,
            **{key: value for key, value in mean.items() if key not in ("dataset", "reader", "finding")},
        }


def _rows(
    cell: StudyCell,
    values: NDArray[np.float64],
    names: Sequence[str],
    groups: tuple[NDArray[np.intp], NDArray[np.intp]],
    level: float,
) -> Iterator[Row]:
    """The mean over findings, then each finding: means of columns, which are NaN where an item does not count.

    groups: the finding and the patient of each item.
    """
    class_of, patient_of = groups
    if not len(values):
        return
    pairs = PairGroups(class_of, patient_of, tuple(cell.patients.number), cell.draws, level)
    effects = effects_of(values, pairs, [{} for _ in names], np.zeros(values.shape, np.bool_))
    columns: list[dict[str, Judged]] = []
    for column, (mean, *each) in zip(values.T, effects, strict=True):
        classes = np.unique(class_of[~np.isnan(column)]).tolist()
        columns.append({MEAN: mean, **{cell.classes[place]: item for place, item in zip(classes, each, strict=True)}})
    for finding in dict.fromkeys([MEAN, *(name for name in cell.classes if any(name in found for found in columns))]):
        row = _start(cell, finding)
        row["patients"] = max(found[finding].patients for found in columns if finding in found)
        for name, found in zip(names, columns, strict=True):
            item = found.get(finding)
            row |= measured(name, Measured() if item is None else replace(item, interval=_in_range(item.interval)))
            row[f"{name}_n"] = 0 if item is None else item.n
        yield row


def _in_range(interval: Interval | None) -> Interval | None:
    """Student's interval of few patients within the range of the values."""
    return interval and replace(interval, low=max(interval.low, 0.0), high=min(interval.high, 1.0))


def _start(cell: StudyCell, finding: str) -> Row:
    return {"dataset": cell.title, "reader": cell.model, "finding": finding}
