"""What the study of errors judges: the boxes of a cell, or those around what its maps mark, with the true boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .....metrics_gpu.detection.boxes import Answers, BoxLists, Float, part_boxes
from .....metrics_gpu.grounding.best_thresholds import FIXED, best_levels
from .....metrics_gpu.statistics.bootstrap import macro_curve
from .....metrics_gpu.sweep.counts import dice_curves
from .....metrics_gpu.sweep.maps import scaled_map
from .....metrics_gpu.sweep.masks import GRID, unpack_masks
from ....results.load_rows import StoredRun
from ....results.stored_boxes import load_boxes
from ..kept_maps import kept_maps, map_places
from ..study_cell import StudyCell

BOXES: Final = "boxes"
"""The cut of predicted boxes: they have no threshold."""
BEST: Final = "best*"
FITTED: Final = "cross-fitted"

_WHOLE: Final = (GRID[1], GRID[0])


@dataclass(frozen=True, eq=False)
class JudgedAnswers:
    """P pairs of a cell as lists of boxes.

    cut: `0.5`, `BEST`, `FITTED` or `BOXES`; tau: the threshold, None for boxes and where it is not the same for all
    pairs. places: intp [P], of the pairs among those of the cell. parts: how many have the connected parts of their
    region as true boxes.
    """

    cell: StudyCell
    cut: str
    tau: float | None
    answers: Answers
    places: NDArray[np.intp]
    parts: int


@dataclass(frozen=True, eq=False)
class TrueBoxes:
    """The true boxes that cells of predicted boxes of a run keep; each dataset is read once."""

    run: StoredRun
    _read: dict[tuple[str, str | None], Mapping[tuple[str, str], tuple[Float, tuple[int, int]]]] = field(
        default_factory=dict
    )

    def of(self, cell: StudyCell) -> Mapping[tuple[str, str], tuple[Float, tuple[int, int]]]:
        """(case, class) -> boxes and (width, height) of the image, of the same contents of the dataset."""
        key = (cell.dataset, cell.digest)
        if key not in self._read:
            self._read[key] = self._boxes(cell)
        return self._read[key]

    def _boxes(self, cell: StudyCell) -> Mapping[tuple[str, str], tuple[Float, tuple[int, int]]]:
        boxes_of: dict[tuple[str, str], tuple[Float, tuple[int, int]]] = {}
        for model, dataset in self.run.finished:
            entry = self.run.entry(model, dataset)
            contents = entry["ingredients"].get("dataset")
            if dataset != cell.dataset or entry["weights"] != "boxes" or (contents and str(contents[1])) != cell.digest:
                continue
            rows = self.run.cell(model, dataset)
            answers = load_boxes(self.run, rows).answers
            for pair, (case, name) in enumerate(zip(answers.case_of, answers.class_of, strict=True)):
                true_boxes = slice(answers.truth.offsets[pair], answers.truth.offsets[pair + 1])
                width, height = answers.sizes[pair].tolist()
                boxes_of[rows.case_ids[case], rows.findings[name]] = (answers.truth.boxes[true_boxes], (width, height))
        return boxes_of


def judged(cell: StudyCell, run: StoredRun, true: TrueBoxes) -> list[JudgedAnswers]:
    """The pairs of a cell: as they were answered; of maps, at each cut.

    Raises RunError when the run keeps no maps of the cell, or a file cannot be read.
    """
    return _maps(cell, run, true) if cell.has_thresholds else [_boxes(cell, run)]


def _boxes(cell: StudyCell, run: StoredRun) -> JudgedAnswers:
    """The pairs that count and whose region is a union of boxes."""
    stored = load_boxes(run, cell.rows)
    _, places, judged_rows = np.intersect1d(cell.pairs.places, stored.places, assume_unique=True, return_indices=True)
    answers = stored.answers
    sizes = answers.sizes[judged_rows]
    return JudgedAnswers(
        cell,
        BOXES,
        None,
        _answers(cell, places, answers.given.take(judged_rows), answers.truth.take(judged_rows), sizes),
        places,
        0,
    )


def _maps(cell: StudyCell, run: StoredRun, true: TrueBoxes) -> list[JudgedAnswers]:
    maps, saliency = kept_maps(cell, run)
    stored_boxes, sweeping = true.of(cell), cell.pairs.protocol.sweeping
    cuts = _cuts(cell)
    given: list[list[tuple[Float, Float]]] = [[] for _ in cuts]
    truth: list[Float] = []
    sizes: list[tuple[int, int]] = []
    pairs = [(case, cell.classes[c]) for case, c in zip(cell.case_ids, cell.class_of, strict=True)]
    for at, (pair, index) in enumerate(zip(pairs, map_places(cell, maps), strict=True)):
        y0, x0, y1, x1 = maps.frames[index].tolist()
        values = scaled_map(saliency[index], frame=(y0, x0, y1, x1), sweeping=sweeping)
        stored = stored_boxes.get(pair)
        boxes, size = stored or (part_boxes(unpack_masks(maps.masks[index : index + 1], GRID[1])[0])[0], _WHOLE)
        truth.append(boxes)
        sizes.append(size)
        scale = np.tile(np.array(size) / _WHOLE, 2)
        for (_, levels), lists in zip(cuts, given, strict=True):
            marked, peaks = part_boxes(values >= sweeping.thresholds[levels[at]], values)
            lists.append((marked * scale, peaks))
    places = np.arange(len(pairs), dtype=np.intp)
    answered = [
        _answers(cell, places, _lists(lists), _lists([(boxes, np.ones(0)) for boxes in truth], False), np.array(sizes))
        for lists in given
    ]
    parts = sum(pair not in stored_boxes for pair in pairs)
    return [
        JudgedAnswers(cell, name, None if name == FITTED else int(levels[0]) / 100, answers, places, parts)
        for (name, levels), answers in zip(cuts, answered, strict=True)
    ]


def _cuts(cell: StudyCell) -> list[tuple[str, NDArray[np.intp]]]:
    """The name of each cut and the level of each pair: 0.5 if the protocol has a fixed threshold; the best threshold of
    the dataset; and the best one of the patients of other folds, in their first division, if there are any."""
    dice, levels = dice_curves(cell.counts), np.zeros(cell.n, np.intp)
    every = np.arange(cell.n)
    cuts = [("0.5", levels + FIXED)] if cell.pairs.protocol.fixed_tau is not None else []
    cuts.append((BEST, levels + _best(cell, dice, every)))
    fold_of = cell.patients.folds[0, cell.patient_of]
    if len(names := np.unique(fold_of)) > 1:
        for fold in names:
            levels[fold_of == fold] = _best(cell, dice, every[fold_of != fold])
        cuts.append((FITTED, levels))
    return cuts


def _best(cell: StudyCell, dice: Float, pairs: NDArray[np.intp]) -> int:
    """The best level of these pairs, for the mean over their classes."""
    class_of = cell.class_of[pairs]
    mean = macro_curve([dice[pairs[class_of == c]].mean(axis=0) for c in np.unique(class_of)])
    return int(best_levels([mean], cell.options())[0])


def _lists(lists: Sequence[tuple[Float, Float]], scored: bool = True) -> BoxLists:
    offsets = np.concatenate([[0], np.cumsum([len(boxes) for boxes, _ in lists])]).astype(np.int64)
    boxes = np.concatenate([boxes for boxes, _ in lists])
    return BoxLists(boxes, offsets, np.concatenate([scores for _, scores in lists]) if scored else None)


def _answers(
    cell: StudyCell, places: NDArray[np.intp], given: BoxLists, truth: BoxLists, sizes: NDArray[np.int64]
) -> Answers:
    return Answers(
        given=given,
        truth=truth,
        class_of=cell.class_of[places].astype(np.int64),
        case_of=cell.rows.case_of[cell.pairs.image_of[places]].astype(np.int64),
        sizes=sizes.astype(np.int64),
        names=cell.classes,
        cases=cell.rows.cases,
    )
