"""Kinds of errors of boxes, and what a score would gain if one kind alone were fixed (docs/detection.md §2).

In the order of score, else of the file, a box that meets a free true box with IoU >= 0.5 is a hit. Each other box is
the first that applies: a duplicate of a hit, too large, too small, poorly placed, on the wrong side, or hallucinated. A
true box that no hit and no such box is about is missed, or silent where the pair has no box.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numba import types
from numpy.typing import NDArray

from ..compiled import compiled, readonly
from .boxes import Answers, BoxLists, Float, Int
from .overlaps import matched, overlaps
from .unions import on_grid, pixel_rectangles, union_counts

KINDS: Final = (
    "hit",
    "duplicate",
    "too_large",
    "too_small",
    "poorly_placed",
    "wrong_side",
    "hallucinated",
    "silent",
    "missed",
)
_HIT, _DUPLICATE, _LARGE, _SMALL, _PLACED, _SIDE, _INVENTED, _SILENT, _MISSED = range(len(KINDS))
# The bounds of docs/detection.md §2: the IoU of a hit, the share of one box that the other covers where it is too large
# or too small, and the IoU of a box that is poorly placed or, mirrored, on the wrong side.
_MET, _COVERED, _NEAR = 0.5, 0.75, 0.1
_F2, _I1 = readonly(types.float64, 2), readonly(types.int64, 1)


@dataclass(frozen=True, eq=False)
class Anatomy:
    """given: the boxes in the order in which they were judged. kind: int8 [N], index into `KINDS`; about: int64 [N],
    the true box that it is about, -1 for a hallucinated one. left: int8 [M], `silent`, `missed` or -1 for each true
    box."""

    given: BoxLists
    kind: NDArray[np.int8]
    about: Int
    left: NDArray[np.int8]

    def counts(self, truth: BoxLists) -> Int:
        """int64 [kinds, P]: the boxes of each kind in each pair; true boxes for silent and missed ones."""
        pairs = len(truth)
        numbers = np.zeros((len(KINDS), pairs), np.int64)
        for k in range(len(KINDS)):
            numbers[k] = np.bincount(self.given.owner[self.kind == k], minlength=pairs)
            numbers[k] += np.bincount(truth.owner[self.left == k], minlength=pairs)
        return numbers


@dataclass(frozen=True, eq=False)
class Fixed:
    """Each pair after a kind was fixed: Dice of the unions at 224, boxes, and tp at IoU 0.5; float64 and int64 [P]."""

    dice: Float
    boxes: Int
    tp: Int

    def f1(self, truth: BoxLists) -> float:
        """2 tp / (given + true boxes) of all pairs."""
        total = int(self.boxes.sum()) + len(truth.boxes)
        return 2 * int(self.tp.sum()) / total if total else float("nan")


def anatomy(answers: Answers) -> Anatomy:
    """The kind of each box of the pairs; boxes of negatives are not among them."""
    given, truth = answers.given.by_score(), answers.truth
    table = overlaps(given, truth)
    boxes, true = ((np.ascontiguousarray(lists.boxes), lists.offsets) for lists in (given, truth))
    width = np.ascontiguousarray(answers.sizes[:, 0])
    return Anatomy(given, *_judge((table.values, table.offsets), boxes, true, width))


def fixed(answers: Answers, errors: Anatomy, error: str | None) -> Fixed:
    """The pairs with one of `KINDS` fixed; None: as they are."""
    given = errors.given if error is None else mended(answers, errors, error)
    tp = matched(overlaps(given, answers.truth), (_MET,))[0]
    sizes = answers.sizes
    given_grid = on_grid(pixel_rectangles(given, sizes), sizes)
    true_grid = on_grid(pixel_rectangles(answers.truth, sizes), sizes)
    return Fixed(union_counts(given_grid, true_grid).dice, given.lengths, tp)


def mended(answers: Answers, errors: Anatomy, error: str) -> BoxLists:
    """The given boxes with one of `KINDS` fixed, without scores.

    A box of a kind that is about a true box becomes that box, or is deleted where the true box is a hit or was fixed
    before; a duplicate or hallucinated box is deleted; a silent or missed true box is added.
    """
    given, truth, code = errors.given, answers.truth, KINDS.index(error)
    if code in (_SILENT, _MISSED):
        added = truth.keep(errors.left == code)
        order = np.argsort(np.append(given.owner, added.owner), kind="stable")  # each list, then what is added to it
        return BoxLists(np.concatenate([given.boxes, added.boxes])[order], given.offsets + added.offsets)
    of_kind = errors.kind == code
    boxes, keep = given.boxes.copy(), ~of_kind
    if code not in (_DUPLICATE, _INVENTED):
        taken = np.zeros(len(truth.boxes), np.bool_)
        taken[errors.about[errors.kind == _HIT]] = True
        rows = np.flatnonzero(of_kind)
        about, first = np.unique(errors.about[rows], return_index=True)
        repaired = rows[first[~taken[about]]]
        boxes[repaired] = truth.boxes[errors.about[repaired]]
        keep[repaired] = True
    return BoxLists(boxes, given.offsets).keep(keep)


def _judge_loop(table: Any, answered: Any, regions: Any, width: Any) -> Any:
    (ious, starts), (given, given_offsets), (truth, truth_offsets) = table, answered, regions
    codes, about = np.zeros(len(given), np.int8), np.full(len(given), -1, np.int64)
    left = np.full(len(truth), -1, np.int8)
    # The order of the tests decides the kind of a box to which several apply (docs/detection.md §2).
    for p in range(len(starts) - 1):
        a, n = given_offsets[p], given_offsets[p + 1] - given_offsets[p]
        c, m = truth_offsets[p], truth_offsets[p + 1] - truth_offsets[p]
        addressed = np.zeros(m, np.bool_)
        for i in range(n):  # hits first: whether a box is a duplicate depends on the hits of all others
            best, at = _MET, -1
            for j in range(m):
                value = ious[starts[p] + i * m + j]
                if not addressed[j] and (value > best or (at < 0 and value >= best)):
                    best, at = value, j
            codes[a + i] = _HIT if at >= 0 else -1
            if at >= 0:
                addressed[at] = True
                about[a + i] = c + at
        for i in range(n):
            if codes[a + i] == _HIT:
                continue
            box = given[a + i]
            area = (box[2] - box[0]) * (box[3] - box[1])
            best, at = -1.0, -1
            # Each bound is met by the value itself, and of equal values the first true box counts.
            cover, large = _COVERED, -1
            lies, small = _COVERED, -1
            other, side = _NEAR, -1
            for j in range(m):
                true = truth[c + j]
                value = ious[starts[p] + i * m + j]
                if value > best:
                    best, at = value, j
                true_area = (true[2] - true[0]) * (true[3] - true[1])
                high = max(min(box[3], true[3]) - max(box[1], true[1]), 0.0)
                both = max(min(box[2], true[2]) - max(box[0], true[0]), 0.0) * high
                if area > true_area > 0 and (both / true_area > cover or (large < 0 and both / true_area >= cover)):
                    cover, large = both / true_area, j
                if 0 < area < true_area and (both / area > lies or (small < 0 and both / area >= lies)):
                    lies, small = both / area, j
                # The overlap with the box mirrored at the middle of the image.
                turned = max(min(width[p] - box[0], true[2]) - max(width[p] - box[2], true[0]), 0.0) * high
                union = area + true_area - turned
                value = turned / union if union > 0 else 0.0
                if value > other or (side < 0 and value >= other):
                    other, side = value, j
            if best >= _MET:
                codes[a + i] = _DUPLICATE
            elif large >= 0:
                codes[a + i], at = _LARGE, large
            elif small >= 0:
                codes[a + i], at = _SMALL, small
            elif best >= _NEAR:
                codes[a + i] = _PLACED
            elif side >= 0:
                codes[a + i], at = _SIDE, side
            else:
                codes[a + i], at = _INVENTED, -1
            if at >= 0:
                addressed[at] = True
                about[a + i] = c + at
        for j in range(m):
            if not addressed[j]:
                left[c + j] = _MISSED if n > 0 else _SILENT
    return codes, about, left


_judge = compiled(
    _judge_loop,
    types.Tuple([types.int8[::1], types.int64[::1], types.int8[::1]])(
        types.Tuple([readonly(types.float64, 1), _I1]), *[types.Tuple([_F2, _I1])] * 2, _I1
    ),
)
"""(IoU, offsets), (given boxes, offsets), (true boxes, offsets) and widths -> kind, about and left of `Anatomy`."""
