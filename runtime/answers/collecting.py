"""Collects answers, in the order of the file, into columns in the order of the dataset."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .answered import BoxAnswers, State, Written
from .fitting import FittedAnswer
from .questions import Place, Questions

__all__ = ["CHECKED", "Columns"]

CHECKED: Final = 4096
"""Answers whose boxes are kept as they were written, for the check of the frame."""

_OF_ANSWER: Final = ("illegal", "outside", "clipped", "duplicates", "truncated", "over_limit", "cropped")
_BOX: Final = 4
_AXES: Final = 6


class Columns:
    """The answers for pairs of one kind, positive or negative."""

    def __init__(self) -> None:
        self._places: list[Place] = []
        self._numbers = {name: array("q") for name in ("line", "state", "boxes", "width", "height", *_OF_ANSWER)}
        self._boxes, self._scores = array("d"), array("d")
        self._written = {name: array("d") for name in ("boxes", "axes")}
        self._written_of, self._written_counts = array("q"), array("q")

    def add(self, place: Place, line: int, answer: FittedAnswer, *, checked: bool = False) -> None:
        """Adds the answer of a line; `checked`: its written boxes may be kept."""
        if checked and answer.written and len(self._written_of) < CHECKED:
            self._written_of.append(len(self._places))
            self._written_counts.append(len(answer.written))
            self._written["axes"].extend(answer.axes)
            for box in answer.written:
                self._written["boxes"].extend(box)
        self._places.append(place)
        numbers = self._numbers
        numbers["line"].append(line)
        numbers["state"].append(answer.state)
        numbers["boxes"].append(len(answer.boxes))
        numbers["width"].append(answer.size[0])
        numbers["height"].append(answer.size[1])
        for name in _OF_ANSWER:
            numbers[name].append(getattr(answer, name))
        for box in answer.boxes:
            self._boxes.extend(box)
        self._scores.extend(answer.scores or ())

    def answers(
        self, questions: Questions, places: Sequence[Place] | None, absent: State, *, scored: bool
    ) -> BoxAnswers:
        """The columns for the pairs at `places`, in that order, else for the answered ones in the dataset's.

        absent: the state of a pair without an answer.
        """
        wanted = sorted(self._places) if places is None else places
        position = {place: row for row, place in enumerate(wanted)}
        rows = np.array([position[place] for place in self._places], np.int64)
        filled = {name: self._spread(name, rows, len(wanted)) for name in self._numbers}
        state = filled["state"]
        state[np.setdiff1d(np.arange(len(wanted)), rows)] = absent
        offsets = np.concatenate([[0], np.cumsum(filled["boxes"])])
        taken = _taken(np.asarray(self._numbers["boxes"], np.int64), rows, len(wanted))
        sizes = np.stack([filled["width"], filled["height"]], axis=1)
        for row in np.flatnonzero(sizes[:, 0] == 0):
            size = questions.cases[wanted[int(row)][0]].size
            sizes[row] = (size[1], size[0]) if size else (0, 0)
        return BoxAnswers(
            pairs=tuple(questions.pair(place) for place in wanted),
            boxes=np.asarray(self._boxes, np.float64).reshape(-1, _BOX)[taken],
            offsets=offsets.astype(np.int64),
            scores=np.asarray(self._scores, np.float64)[taken] if scored else None,
            state=state.astype(np.int8),
            sizes=sizes,
            lines=filled["line"],
            illegal=filled["illegal"],
            outside=filled["outside"],
            clipped=filled["clipped"],
            duplicates=filled["duplicates"],
            truncated=filled["truncated"] > 0,
            over_limit=filled["over_limit"] > 0,
            cropped=filled["cropped"] > 0,
        )

    def written(self, places: Sequence[Place]) -> Written:
        """The boxes as they were written; `places` as for `answers`."""
        position = {place: row for row, place in enumerate(places)}
        kept = np.asarray(self._written_of, np.int64)
        sizes = np.stack([np.asarray(self._numbers[name], np.int64)[kept] for name in ("width", "height")], axis=1)
        return Written(
            pairs=np.array([position[self._places[row]] for row in kept], np.int64),
            offsets=np.concatenate([[0], np.cumsum(np.asarray(self._written_counts, np.int64))]).astype(np.int64),
            boxes=np.asarray(self._written["boxes"], np.float64).reshape(-1, _BOX),
            axes=np.asarray(self._written["axes"], np.float64).reshape(-1, _AXES),
            sizes=sizes,
        )

    def _spread(self, name: str, rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        found = np.zeros(count, np.int64)
        found[rows] = np.asarray(self._numbers[name], np.int64)
        return found


def _taken(counts: NDArray[np.int64], rows: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """int64 [N]: the positions of the boxes of the file, in the order of the rows that their answers get."""
    starts = np.cumsum(counts) - counts
    answer_of = np.full(length, -1, np.int64)
    answer_of[rows] = np.arange(len(rows))
    order = answer_of[answer_of >= 0]
    sizes = counts[order]
    within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.asarray(np.repeat(starts[order], sizes) + within, np.int64)
