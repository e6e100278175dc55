"""The true zones and sides of the pairs of a dataset on the frame of the thorax, and what they say of a file of words
(docs/words.md §6, §7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.detection.boxes import Float, Int, part_boxes
from ....metrics_gpu.zones.cells import cells_of, sides_of_boxes
from ....metrics_gpu.zones.thorax_places import ThoraxFrame, sides_of
from ....metrics_gpu.zones.usual_zones import usual_cells
from ...data.answers.answered import BoxFile
from ...data.answers.questions import Questions
from ...data.answers.words.class_answers import Remark, WordsAnswer
from ...data.datasets.dataset import Region
from ...data.datasets.region_boxes import Boxes
from ...results.schema import GRID

_SWAPPED_LEAST: Final = 0.6
_SWAPPED_TIMES: Final = 2.0

FrameOf = Callable[[int], tuple[ThoraxFrame, bool]]


@dataclass(frozen=True, eq=False)
class TrueZones:
    """Of the pairs with a region, in the order of `Questions.positives`: cells and sides, int64 [P], 0 where the size
    of the image is not known; class_of and patient_of, int64 [P]."""

    cells: Int
    sides: Int
    class_of: Int
    patient_of: Int

    @staticmethod
    def of(questions: Questions, frame: FrameOf) -> TrueZones:
        """Raises DataError for masks of lungs that cannot be read."""
        rows, classes = np.divmod(questions.positives, len(questions.classes))
        _, patients = np.unique(np.array([case.patient for case in questions.cases], np.str_), return_inverse=True)
        cells, sides = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        for pair, (row, column) in enumerate(zip(rows.tolist(), classes.tolist(), strict=True)):
            if (size := questions.size(row)) is None:
                continue
            boxes = region_boxes(questions.cases[row].regions[questions.classes[column]], size)
            cells[pair] = cells_of(boxes, frame(row)[0], size)
            sides[pair] = sides_of_boxes(boxes, frame(row)[0], size)
        return TrueZones(cells, sides, classes, patients[rows])

    @cached_property
    def usual(self) -> Int:
        """int64 [P]: the commonest cells of the class in other patients, 0 where there is none."""
        known = np.flatnonzero(self.cells)
        result = np.zeros(len(self.cells), np.int64)
        result[known] = usual_cells(self.cells[known], self.class_of[known], self.patient_of[known])
        return result


def region_boxes(region: Region, size: tuple[int, int]) -> Float:
    """float64 [n, 4]: the boxes of a region, or those around its connected parts on the grid of 224, in pixels of the
    image. size: width and height."""
    width, height = size
    if isinstance(region, Boxes):
        boxes = region.clipped(height, width)
        return np.asarray(boxes[(boxes[:, 2:] > boxes[:, :2]).all(axis=1)])
    mask = region.mask(height, width)
    small = mask[np.arange(GRID) * height // GRID][:, np.arange(GRID) * width // GRID]
    if small.any():
        return np.asarray(part_boxes(small)[0] * np.array([width, height, width, height]) / GRID)
    return part_boxes(mask)[0]


def stated_sides(answer: WordsAnswer) -> int:
    """1 right, 2 left, 3 both; 0 where nothing, a central place or no side is stated."""
    return 0 if answer.remarks & Remark.SIDE_UNSTATED else sides_of(answer.places.names)


def side_check(file: BoxFile, zones: TrueZones, counted: NDArray[np.bool_]) -> str:
    """One sentence if left and right seem to be those of the image: over pairs with one true side, at least 0.6 of the
    answers would be right with swapped sides, and more than twice as many as are. counted: bool [P]."""
    one_sided = np.flatnonzero(np.isin(zones.sides, (1, 2)) & counted)
    answers = file.positives.words or ()
    stated = np.array([stated_sides(answers[pair]) for pair in one_sided.tolist()], np.int64)
    if not len(stated):
        return ""
    declared = float((stated == zones.sides[one_sided]).mean())
    swapped = float((stated == 3 - zones.sides[one_sided]).mean())
    if swapped < _SWAPPED_LEAST or swapped <= _SWAPPED_TIMES * declared:
        return ""
    return (
        f"{file.path.name}: the sides seem to be those of the image ({swapped:.1%} of {len(stated)} one-sided answers "
        f"would be right with left and right swapped, {declared:.1%} are); they were read as the file says, so check "
        "its key sides"
    )
