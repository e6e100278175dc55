"""Lists of boxes, given and true ones, one list per (image, class) pair; and the pixel that a list points to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
        order = np.arange(len(self.boxes)) if self.scores is None else np.lexsort((-self.scores, self.owner))
        return np.where(self.lengths > 0, np.append(order, -1)[self.offsets[:-1]], -1)

    @staticmethod
    def of(lists: Sequence[Sequence[Sequence[float]]], scores: Sequence[Sequence[float]] | None = None) -> BoxLists:
        """From nested sequences: boxes of each list, and their scores."""
        boxes = np.array([*chain.from_iterable(lists)], np.float64).reshape(-1, 4)
        flat = None if scores is None else np.array([*chain.from_iterable(scores)], np.float64)
        return BoxLists(boxes, offsets_of([len(boxes) for boxes in lists]), flat)

    def take(self, lists: NDArray[np.intp]) -> BoxLists:
        """The lists at these positions."""
        lengths = self.lengths[lists]
        offsets = offsets_of(lengths)
        rows = np.arange(offsets[-1]) + np.repeat(self.offsets[:-1][lists] - offsets[:-1], lengths)
        return BoxLists(self.boxes[rows], offsets, None if self.scores is None else self.scores[rows])

    def keep(self, boxes: NDArray[np.bool_]) -> BoxLists:
        """The boxes of bool [N], in lists that may become empty."""
        offsets = offsets_of(boxes)[self.offsets]
        return BoxLists(self.boxes[boxes], offsets, None if self.scores is None else self.scores[boxes])

    def by_score(self) -> BoxLists:
        """The boxes of each list, surest first; as they are without scores."""
        if self.scores is None:
            return self
        order = np.lexsort((-self.scores, self.owner))
        return BoxLists(self.boxes[order], self.offsets, self.scores[order])

    def followed_by(self, other: BoxLists) -> BoxLists:
        """These lists and then the lists of `other`, whose boxes have score 0 where it has no scores."""
        scores = None
        if self.scores is not None:
            scores = np.append(self.scores, np.zeros(len(other.boxes)) if other.scores is None else other.scores)
        ends = np.append(self.offsets, self.offsets[-1] + other.offsets[1:])
        return BoxLists(np.concatenate([self.boxes, other.boxes]), ends, scores)

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

    @property
    def owner(self) -> Int:
        """int64 [N]: the list of each rectangle."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


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


def offsets_of(lengths: ArrayLike) -> Int:
    """int64 [P + 1]: the offsets of P lists of these lengths."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def centres(given: BoxLists, sizes: Int) -> Int:
    """int64 [P, 2]: column and row of the centre pixel of the best box, -1 in an empty list.

    The best has the highest score, or is the first. sizes: int64 [P, 2], width and height.
    """
    best = given.first
    answered = best >= 0
    pixels = np.full((len(best), 2), -1, np.int64)
    boxes = given.boxes[best[answered]]
    pixels[answered] = np.minimum(((boxes[:, :2] + boxes[:, 2:]) / 2).astype(np.int64), sizes[answered] - 1)
    return pixels


def pointed(centre: Int, truth: Rectangles) -> NDArray[np.bool_]:
    """bool [P]: the pixel lies in the region, given by its native pixels as `unions.pixel_rectangles` does."""
    owner = truth.owner
    inside = ((truth.spans[:, :2] <= centre[owner]) & (centre[owner] < truth.spans[:, 2:])).all(axis=1)
    return np.bincount(owner, inside, len(centre)) > 0


def part_boxes(mask: NDArray[np.bool_], values: NDArray[np.float32] | None = None) -> tuple[Float, Float]:
    """The box of each connected part of bool [H, W], float64 [N, 4], corners in pixels, and the largest of `values` in
    it, float64 [N]; 1 without values (docs/detection.md §2).

    Pixels are connected by their sides. Parts are in the order of their first pixels, row by row.
    """
    from scipy import ndimage

    labels, count = ndimage.label(mask)
    spans = ndimage.find_objects(labels)
    boxes = np.array([[x.start, y.start, x.stop, y.stop] for y, x in spans], np.float64).reshape(-1, 4)
    if values is None or not count:
        return boxes, np.ones(count)
    return boxes, np.asarray(ndimage.maximum(values, labels, np.arange(1, count + 1)), np.float64)
