"""Lists of boxes: those that were given and the true ones, one list per (image, class) pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BoxLists:
    """P lists of boxes. boxes: float64 [N, 4], (x1, y1, x2, y2) in pixels; offsets: int64 [P + 1], list p is
    boxes[offsets[p] : offsets[p + 1]]; scores: float64 [N], higher is surer, or None.

    Raises ValueError if they do not fit together.
    """

    boxes: Float
    offsets: Int
    scores: Float | None = None

    def __post_init__(self) -> None:
        if self.boxes.dtype != np.float64 or self.boxes.ndim != 2 or self.boxes.shape[1] != 4:
            raise ValueError(f"boxes must be float64 [N, 4], got {self.boxes.dtype} {self.boxes.shape}")
        ends = self.offsets
        if ends.dtype != np.int64 or ends.ndim != 1 or not len(ends) or ends[0] != 0 or ends[-1] != len(self.boxes):
            raise ValueError(f"offsets must be int64 from 0 to {len(self.boxes)}")
        if (np.diff(ends) < 0).any():
            raise ValueError("offsets must not decrease")
        if self.scores is not None and (self.scores.dtype != np.float64 or self.scores.shape != (len(self.boxes),)):
            raise ValueError(f"scores must be float64 [{len(self.boxes)}], got {self.scores.dtype} {self.scores.shape}")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int:
        """int64 [P]: boxes in each list."""
        return np.diff(self.offsets)

    @property
    def owner(self) -> Int:
        """int64 [N]: the list of each box."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def first(self) -> Int:
        """int64 [P]: the box with the highest score, of equal ones or without scores the first; -1 in an empty list."""
        found = np.where(self.lengths > 0, self.offsets[:-1], -1)
        if self.scores is None or not len(self.boxes):
            return found
        order = np.lexsort((np.arange(len(self.boxes)), -self.scores, self.owner))
        return np.where(found >= 0, order[np.maximum(found, 0)], -1)

    @staticmethod
    def of(lists: Sequence[Sequence[Sequence[float]]], scores: Sequence[Sequence[float]] | None = None) -> BoxLists:
        """From nested sequences: boxes of each list, and scores alike."""
        offsets = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)
        boxes = np.array([box for each in lists for box in each], np.float64).reshape(-1, 4)
        if scores is None:
            return BoxLists(boxes, offsets)
        return BoxLists(boxes, offsets, np.array([score for each in scores for score in each], np.float64))

    def take(self, lists: NDArray[np.intp]) -> BoxLists:
        """The lists at these positions."""
        rows, offsets = _rows(self.offsets, lists)
        return BoxLists(self.boxes[rows], offsets, None if self.scores is None else self.scores[rows])

    def keep(self, boxes: NDArray[np.bool_]) -> BoxLists:
        """The boxes of bool [N], in lists that may become empty."""
        offsets = np.concatenate([[0], np.cumsum(boxes)]).astype(np.int64)[self.offsets]
        return BoxLists(self.boxes[boxes], offsets, None if self.scores is None else self.scores[boxes])

    def by_score(self) -> BoxLists:
        """The boxes of each list, surest first; as they are without scores."""
        if self.scores is None:
            return self
        order = np.lexsort((np.arange(len(self.boxes)), -self.scores, self.owner))
        return BoxLists(self.boxes[order], self.offsets, self.scores[order])

    def per_side(self, sizes: Int) -> Float:
        """float64 [N, 4]: corners as fractions of each image's sides; sizes: int64 [P, 2], width and height."""
        return self.boxes / np.tile(sizes, 2)[self.owner]


@dataclass(frozen=True, eq=False)
class Rectangles:
    """P lists of pixel rectangles: spans int64 [N, 4], half-open (x0, y0, x1, y1); offsets as in `BoxLists`.

    An empty rectangle covers nothing.
    """

    spans: Int
    offsets: Int


@dataclass(frozen=True, eq=False)
class Answers:
    """The boxes that were given for the P pairs of a dataset with a region, and for negatives that were asked.

    given, truth: P lists; a pair without an answer has an empty list. class_of, case_of: int64 [P]; names: the
    classes. sizes: int64 [P, 2], width and height. cases: the number of images, with those without a pair.
    crowd: bool, of each true box: COCO ignores it, by default none. negatives: lists of boxes given for classes that
    are absent, with their class and case; tried: bool, the answer had a box, kept or not.
    Pairs are in the dataset's order: image by image, the classes of an image in the order of the dataset.
    """

    given: BoxLists
    truth: BoxLists
    class_of: Int
    case_of: Int
    sizes: Int
    names: Sequence[str]
    cases: int
    crowd: NDArray[np.bool_] | None = None
    negatives: BoxLists = field(default_factory=lambda: BoxLists.of([]))
    negative_class: Int = field(default_factory=lambda: np.zeros(0, np.int64))
    negative_case: Int = field(default_factory=lambda: np.zeros(0, np.int64))
    tried: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))

    def __post_init__(self) -> None:
        pairs, asked = len(self.truth), len(self.negatives)
        shapes = {
            "given": (len(self.given), pairs), "class_of": (len(self.class_of), pairs),
            "case_of": (len(self.case_of), pairs), "sizes": (len(self.sizes), pairs),
            "negative_class": (len(self.negative_class), asked), "negative_case": (len(self.negative_case), asked),
            "tried": (len(self.tried), asked),
            "crowd": (len(self.truth.boxes) if self.crowd is None else len(self.crowd), len(self.truth.boxes)),
        }  # fmt: skip
        for name, (have, want) in shapes.items():
            if have != want:
                raise ValueError(f"{name} has {have} entries for {want}")


def _rows(offsets: Int, lists: NDArray[np.intp]) -> tuple[Int, Int]:
    """The boxes of the lists at these positions, and the offsets of the new lists."""
    lengths = np.diff(offsets)[lists]
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return np.arange(ends[-1]) - np.repeat(ends[:-1] - offsets[:-1][lists], lengths), ends
