"""What the rows of a file of words hold beside the counts of its boxes (docs/words.md §6, §7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.detection.boxes import BoxLists, Float, Int
from ....metrics_gpu.zones.bounds import BOUNDS, NUMBERS, Inside, statement_scores
from ....metrics_gpu.zones.cells import cells_of
from ....metrics_gpu.zones.thorax_places import ThoraxFrame, rectangles_of
from ...data.answers.answered import BoxAnswers, BoxFile
from ...data.answers.questions import Questions
from ...data.answers.words.class_answers import Remark, WordsAnswer
from .answer_column import float_lists, word_column
from .true_zones import FrameOf, TrueZones, stated_sides

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, eq=False)
class PairRegions:
    """P regions: masks bool [P, 224, 224], and whether pixels of the images lie in them. sizes: int64 [P, 2], width and
    height."""

    masks: NDArray[np.bool_]
    inside: Inside
    sizes: Int


class WordScoring:
    """The words of a file, on the frames of its images. lateral: bool [cases], which are left out."""

    def __init__(self, file: BoxFile, questions: Questions, zones: TrueZones, lateral: NDArray[np.bool_]) -> None:
        assert file.thorax is not None
        self._file, self._questions, self.zones, self.lateral = file, questions, zones, lateral
        self._frame: FrameOf = file.thorax

    def frontal(self, answers: BoxAnswers) -> NDArray[np.bool_]:
        """bool [P]: the pairs of images that are not lateral."""
        return ~self.lateral[answers.places // len(self._questions.classes)]

    @property
    def not_frontal(self) -> int:
        """The pairs with a region and the absent ones with a line that are left out."""
        return sum(int((~self.frontal(answers)).sum()) for answers in (self._file.positives, self._file.negatives))

    @property
    def frame_fixed(self) -> int:
        """The pairs with a region, of frontal images, whose masks of the lungs are missing or poor."""
        frontal = np.flatnonzero(self.frontal(self._file.positives))
        return sum(self._frame(row)[1] for row in self._rows(frontal).tolist())

    def drawn(self, sources: NDArray[np.intp], places: NDArray[np.intp], sizes: Int) -> BoxLists:
        """The boxes of the answers at `sources` on the images of the pairs at `places`."""
        boxes = []
        for answer, frame, size in zip(
            self._answers(self._file.positives, sources), self._frames(places), sizes.tolist(), strict=True
        ):
            drawn = _pixels(answer, frame, (size[0], size[1]))
            boxes.append(np.clip(drawn, 0, np.tile(size, 2)).tolist())
        return BoxLists.of(boxes)

    def column(
        self, rows: Sequence[tuple[BoxAnswers, NDArray[np.intp]]], places: NDArray[np.intp], regions: PairRegions
    ) -> pa.StructArray:
        """The field `words`: of the pairs at `places`, whose answers are the first of `rows`, then of further rows."""
        answers = [answer for part in rows for answer in self._answers(*part)]
        of_pair = answers[: len(places)]
        without = len(answers) - len(places)
        frames = self._frames(places)
        true, usual = self.zones.cells[places], self.zones.usual[places]
        bounds = statement_scores(frames, regions.sizes, regions.masks, regions.inside).bounds(true, usual)
        stated = [
            cells_of(_pixels(answer, frame, (size[0], size[1])), frame, (size[0], size[1]))
            for answer, frame, size in zip(of_pair, frames, regions.sizes.tolist(), strict=True)
        ]
        fixed = [self._frame(int(row))[1] for row in self._rows(places)]
        remarks = [int(answer.remarks & ~Remark.FRAME_FIXED) for answer in answers]
        for pair, is_fixed in enumerate(fixed):
            remarks[pair] |= int(Remark.FRAME_FIXED) * is_fixed
        none: list[Any] = [None] * without
        return word_column(
            {
                "state": [int(answer.state) for answer in answers],
                "remarks": remarks,
                "size": [answer.size for answer in answers],
                "skipped": [answer.skipped for answer in answers],
                "places": [list(answer.places.names) for answer in answers],
                "stated": [*stated, *none],
                "stated_sides": [*map(stated_sides, of_pair), *none],
                "true": [*true.tolist(), *none],
                "true_sides": [*self.zones.sides[places].tolist(), *none],
                "bounds": float_lists([*bounds.reshape(len(places), len(BOUNDS) * len(NUMBERS)), *none]),
            }
        )

    def _answers(self, answers: BoxAnswers, rows: NDArray[np.intp]) -> list[WordsAnswer]:
        assert answers.words is not None
        return [answers.words[row] for row in rows.tolist()]

    def _rows(self, places: NDArray[np.intp]) -> Int:
        """The positions of the cases of pairs."""
        return np.asarray(self._file.positives.places[places] // len(self._questions.classes), np.int64)

    def _frames(self, places: NDArray[np.intp]) -> list[ThoraxFrame]:
        return [self._frame(row)[0] for row in self._rows(places).tolist()]


def _pixels(answer: WordsAnswer, frame: ThoraxFrame, size: tuple[int, int]) -> Float:
    """float64 [n, 4]: the rectangles of an answer on an image."""
    drawn = [frame.pixels(rectangle, size) for rectangle in rectangles_of(answer.places.names)]
    return np.array(drawn, np.float64).reshape(-1, 4)
