"""Collects answers, in the order of the file, into columns in the order of the dataset."""

from __future__ import annotations

from array import array
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .answered import BoxAnswers, State, Written
from .fitting import FittedAnswer
from .questions import Place, Questions
from .words.class_answers import WordsAnswer, WordState

CHECKED: Final = 4096
"""Answers whose boxes are kept as they were written, for the check of the frame."""

_OF_ANSWER: Final = dict.fromkeys(("illegal", "outside", "clipped", "duplicates"), "i") | dict.fromkeys(
    ("truncated", "over_limit", "cropped"), "b"
)
_NUMBERS: Final = {"line": "q", "state": "b", "boxes": "b", "width": "i", "height": "i", **_OF_ANSWER}
_BOX: Final = 4
_AXES: Final = 6


class Columns:
    """The answers for pairs of one kind, positive or negative: about 45 bytes each, and 32 a box, 40 with its score."""

    def __init__(self) -> None:
        self._places = array("q")
        self._numbers = {name: array(typecode) for name, typecode in _NUMBERS.items()}
        self._boxes, self._scores = array("d"), array("d")
        self._written = {name: array("d") for name in ("boxes", "axes")}
        self._written_of, self._written_counts = array("q"), array("q")
        self._words = list[WordsAnswer]()

    def add(self, pair_number: Place, line: int, answer: FittedAnswer, *, checked: bool = False) -> None:
        """Adds the answer of a line; `checked`: its written boxes may be kept."""
        if checked and answer.written and len(self._written_of) < CHECKED:
            self._written_of.append(len(self._places))
            self._written_counts.append(len(answer.written))
            self._written["axes"].extend(answer.axes)
            for box in answer.written:
                self._written["boxes"].extend(box)
        self._places.append(pair_number)
        if answer.words is not None:
            self._words.append(answer.words)
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
        self,
        questions: Questions,
        places: NDArray[np.int64] | None,
        absent: State,
        *,
        scored: bool,
        words: bool = False,
    ) -> BoxAnswers:
        """The columns for the pairs at `places`, ascending, else for the answered ones, in the dataset's order.

        absent: the state of a pair without an answer. words: all answers are in words.
        """
        answered = np.array(self._places, np.int64)
        wanted = np.sort(answered) if places is None else places
        rows = np.searchsorted(wanted, answered)
        filled = {name: self._spread(name, rows, len(wanted)) for name in self._numbers}
        state = filled["state"]
        state[np.isin(wanted, answered, invert=True)] = absent
        sizes = np.stack([filled["width"], filled["height"]], axis=1)
        for row in np.flatnonzero(sizes[:, 0] == 0):
            size = questions.case_of(int(wanted[row]))[0].size
            sizes[row] = (size[1], size[0]) if size else (0, 0)
        boxes, scores = np.asarray(self._boxes, np.float64).reshape(-1, _BOX), np.asarray(self._scores, np.float64)
        if (np.diff(rows) < 0).any():
            taken = _taken(np.asarray(self._numbers["boxes"]), np.argsort(rows))
            boxes, scores = boxes[taken], scores[taken] if scored else scores
        return BoxAnswers(
            places=wanted,
            pair_of=questions.pair,
            boxes=boxes,
            offsets=np.cumsum(np.append(0, filled["boxes"]), dtype=np.int64),
            scores=scores if scored else None,
            state=state,
            sizes=sizes,
            lines=filled["line"],
            illegal=filled["illegal"],
            outside=filled["outside"],
            clipped=filled["clipped"],
            duplicates=filled["duplicates"],
            truncated=filled["truncated"] > 0,
            over_limit=filled["over_limit"] > 0,
            cropped=filled["cropped"] > 0,
            words=self._words_of(rows, len(wanted)) if words else None,
        )

    def _words_of(self, rows: NDArray[np.intp], count: int) -> tuple[WordsAnswer, ...]:
        column = [WordsAnswer(WordState.MISSING)] * count
        for row, answer in zip(rows.tolist(), self._words, strict=True):
            column[row] = answer
        return tuple(column)

    def written(self, places: NDArray[np.int64]) -> Written:
        """The boxes as they were written; `places` as for `answers`."""
        kept = np.asarray(self._written_of)
        sizes = np.stack([np.asarray(self._numbers[name])[kept] for name in ("width", "height")], axis=1)
        return Written(
            pairs=np.searchsorted(places, np.asarray(self._places)[kept]),
            offsets=np.concatenate([[0], np.cumsum(np.asarray(self._written_counts))]).astype(np.int64),
            boxes=np.asarray(self._written["boxes"], np.float64).reshape(-1, _BOX),
            axes=np.asarray(self._written["axes"], np.float64).reshape(-1, _AXES),
            sizes=sizes.astype(np.int64),
        )

    def _spread(self, name: str, rows: NDArray[np.intp], count: int) -> NDArray[Any]:
        values = np.asarray(self._numbers[name])
        column = np.zeros(count, values.dtype)
        column[rows] = values
        return column


def _taken(counts: NDArray[np.int8], order: NDArray[np.intp]) -> NDArray[np.int64]:
    """int64 [N]: the positions of the boxes of the file, with its answers in another order."""
    starts = np.cumsum(counts, dtype=np.int64) - counts
    sizes = counts[order]
    within = np.arange(sizes.sum(dtype=np.int64)) - np.repeat(np.cumsum(sizes, dtype=np.int64) - sizes, sizes)
    return np.asarray(np.repeat(starts[order], sizes) + within, np.int64)
