"""What readers said of the images of a finished cell: who names a finding, and how alike the regions of two are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .....metrics_gpu.detection.boxes import BoxLists, Int
from .....metrics_gpu.detection.unions import on_grid, pixel_rectangles, union_counts
from ....results.load_rows import StoredRun
from ....results.stored_boxes import STATES, StoredBoxes, load_boxes
from ..study_cell import StudyCell

_ANSWERED: Final = STATES.index("answered")
_MISSING: Final = STATES.index("missing")
_UNKNOWN: Final = -1


@dataclass(frozen=True, eq=False)
class Extents:
    """Pairs of readers of one image and finding of whom at least one marked it, [N] each.

    class_of: index of the finding; patient_of: of the patient. dice, iou: of the regions of both on the evaluation
    grid, 0 where one of them is silent. both: whether both marked it.
    """

    class_of: NDArray[np.intp]
    patient_of: NDArray[np.intp]
    dice: NDArray[np.float64]
    iou: NDArray[np.float64]
    both: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Ratings:
    """named, readers: int64 [I, C], how many of the readers of I images name each finding, of how many whose answer is
    known; patient_of: intp [I]. extents: see there. negatives: whether findings without a region were asked too."""

    named: Int
    readers: Int
    patient_of: NDArray[np.intp]
    extents: Extents
    negatives: bool


def left_out_reader(case: str) -> tuple[str, str]:
    """The image and the reader of a case that leaves one of three readers out."""
    image, _, reader = case.rpartition("~")
    return image, reader


def ratings_of(run: StoredRun, cell: StudyCell) -> Ratings:
    """The readers of a reader's cell: the three of each image where one is left out, else those of the regions, as one,
    and the reader. Raises RunError when the result file cannot be read."""
    stored = load_boxes(run, cell.rows)
    state = _states(stored)
    patient_of = np.array([cell.patients.number[name] for name in cell.rows.patients], np.intp)
    if cell.rows.entry["boxes"].get("left_out"):
        return _of_three(stored, state, patient_of)
    return _of_two(stored, state, patient_of)


def _states(stored: StoredBoxes) -> NDArray[np.int8]:
    """int8 [cases, C]: the state of each answer, -1 for none."""
    cell = stored.cell
    states = np.full((cell.cases, len(cell.findings)), _UNKNOWN, np.int8)
    states[cell.case_of[cell.image_of], cell.class_of] = stored.state
    states[stored.answers.negative_case, stored.answers.negative_class] = stored.negative_state
    return np.where(states == _MISSING, np.int8(_UNKNOWN), states)


def _of_two(stored: StoredBoxes, state: NDArray[np.int8], patient_of: NDArray[np.intp]) -> Ratings:
    cell = stored.cell
    region = np.zeros(state.shape, np.bool_)
    case_of = cell.case_of[cell.image_of]
    region[case_of, cell.class_of] = True
    known, marked = state != _UNKNOWN, state == _ANSWERED
    area, overlap, size = (
        np.asarray(values, np.int64)
        for values in (cell.counts.area[:, -1], cell.counts.overlap[:, -1], cell.counts.region)
    )
    asked = np.flatnonzero(known[case_of, cell.class_of])
    invented_case, invented_class = np.nonzero(marked & ~region)
    nothing = np.zeros(len(invented_case))
    extents = Extents(
        class_of=np.concatenate([cell.class_of[asked], invented_class]),
        patient_of=patient_of[np.concatenate([case_of[asked], invented_case])],
        dice=np.concatenate([(2 * overlap / (area + size))[asked], nothing]),
        iou=np.concatenate([(overlap / (area + size - overlap))[asked], nothing]),
        both=np.concatenate([(area > 0)[asked], nothing > 0]),
    )
    named = np.where(known, region.astype(np.int64) + marked, 0)
    return Ratings(named, 2 * known.astype(np.int64), patient_of, extents, bool(len(stored.negative_state)))


def _of_three(stored: StoredBoxes, state: NDArray[np.int8], patient_of: NDArray[np.intp]) -> Ratings:
    images: dict[str, list[int]] = {}
    for place, case in enumerate(stored.cell.case_ids):
        images.setdefault(left_out_reader(case)[0], []).append(place)
    whole = np.array([cases for cases in images.values() if len(cases) == 3], np.intp).reshape(-1, 3)
    answers = state[whole]
    known = (answers != _UNKNOWN).all(axis=1)
    marked = (answers == _ANSWERED) & known[:, None]
    return Ratings(
        named=marked.sum(axis=1, dtype=np.int64),
        readers=3 * known.astype(np.int64),
        patient_of=patient_of[whole[:, 0]],
        extents=_extents(stored, whole, marked, patient_of),
        negatives=bool(len(stored.negative_state)),
    )


def _extents(
    stored: StoredBoxes, whole: NDArray[np.intp], marked: NDArray[np.bool_], patient_of: NDArray[np.intp]
) -> Extents:
    """whole: intp [I, 3], the cases of each image. marked: bool [I, 3, C]."""
    answers = stored.answers
    place = np.full((stored.cell.cases, len(stored.cell.findings)), _UNKNOWN, np.intp)
    place[answers.case_of, answers.class_of] = np.arange(len(answers.case_of))
    place[answers.negative_case, answers.negative_class] = len(answers.case_of) + np.arange(len(answers.negative_case))
    lists = _joined([answers.given, answers.negatives])
    size = np.zeros((stored.cell.cases, 2), np.int64)
    for cases, sizes in ((answers.case_of, answers.sizes), (answers.negative_case, stored.negative_sizes)):
        np.maximum.at(size, cases, sizes)
    size[whole] = size[whole].max(axis=1, keepdims=True)
    image, reader, other, finding = [], [], [], []
    for one, two in combinations(range(3), 2):
        rows, columns = np.nonzero(marked[:, one] | marked[:, two])
        image.append(rows)
        finding.append(columns)
        reader.append(whole[rows, one])
        other.append(whole[rows, two])
    rows, columns, first, second = (np.concatenate(each) for each in (image, finding, reader, other))
    sizes = size[first]
    first_regions, second_regions = (
        on_grid(pixel_rectangles(lists.take(place[cases, columns]), sizes), sizes) for cases in (first, second)
    )
    counts = union_counts(first_regions, second_regions)
    return Extents(
        class_of=columns,
        patient_of=patient_of[whole[rows, 0]],
        dice=np.asarray(counts.dice, np.float64),
        iou=np.asarray(counts.iou, np.float64),
        both=(counts.area > 0) & (counts.region > 0),
    )


def _joined(lists: Sequence[BoxLists]) -> BoxLists:
    boxes = np.concatenate([each.boxes for each in lists])
    lengths = np.concatenate([each.lengths for each in lists])
    return BoxLists(boxes, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
