"""Whether the boxes of a file fit the truth much better when they are read in another way (docs/boxes.md §5).

The check looks at the truth, so it is a diagnosis of the file and no score: it says one sentence and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..datasets.region_boxes import Boxes
from .answered import BoxAnswers, BoxFile, Written
from .coordinate_frames import Budget, smart_resize
from .dialects.dialect_registry import GRID
from .questions import Questions

Float = NDArray[np.float64]
# The rule of docs/boxes.md: another reading is named if its mean best IoU is more than `_BETTER` times the declared
# frame's and at least `_AT_LEAST`. Below, every reading is poor and the comparison says little.
_BETTER: Final = 2.0
_AT_LEAST: Final = 0.2
_VIEWS: Final = (224, 336, 384, 448, 512, 518, 640, 768, 896, 1024)  # usual sides of square inputs
# Of Qwen2-VL's code, in squares of 28 pixels: at least 4, at most 1,280 or 16,384.
_BUDGETS: Final = (Budget(3136, 1_003_520), Budget(3136, 12_845_056))


def frame_check(file: BoxFile, questions: Questions) -> str:
    """One sentence if another frame gives a mean best IoU of at least 0.2 and more than twice the declared one's.

    The mean is over the answers of `file.written` whose pair has true boxes.
    """
    pairs = file.written.pairs.tolist()
    table = _Table(file.written, [_true_boxes(questions, file.positives, pair) for pair in pairs])
    if not table.pairs or set(file.frames) == {GRID}:  # a cell is a small part of a region in any frame
        return ""
    declared = table.mean(lambda boxes, axes, size: _placed(boxes, axes))
    name, best = max(((name, table.mean(read)) for name, read in _others()), key=lambda item: item[1])
    if best < _AT_LEAST or best <= _BETTER * declared:
        return ""
    return (
        f"{file.path.name}: read as {name}, the boxes would fit the truth better (mean best IoU {best:.2f} instead of "
        f"{declared:.2f} in {table.pairs} answers); they were read as the file says, so check its frame and order"
    )


def out_of_view(answers: BoxAnswers, questions: Questions) -> NDArray[np.bool_]:
    """bool [P]: more than half of the true boxes' area lies outside the centre square that the model saw."""
    outside = np.zeros(len(answers), np.bool_)
    for pair in np.flatnonzero(answers.cropped).tolist():
        width, height = answers.sizes[pair].tolist()
        side, truth = min(width, height), _true_boxes(questions, answers, pair)
        left, top = (width - side) // 2, (height - side) // 2
        inside = np.clip(truth, (left, top, left, top), (left + side, top + side, left + side, top + side))
        outside[pair] = _area(inside).sum() < 0.5 * _area(truth).sum()
    return outside


def _true_boxes(questions: Questions, answers: BoxAnswers, pair: int) -> Float:
    """float64 [t, 4]: the true boxes of a pair in pixels; none where its region is no union of boxes."""
    case, name = questions.case_of(int(answers.places[pair]))
    region, (width, height) = case.regions.get(name), answers.sizes[pair].tolist()
    return region.clipped(height, width) if isinstance(region, Boxes) and width else np.zeros((0, 4))


Read = Callable[[Float, Float, Float], Float]
"""(boxes as written [m, 4], axes [m, 6], width and height [m, 2]) -> pixels [m, 4]."""


class _Table:
    """Every written box with every true box of its pair, and the image they are in; truths: of each answer."""

    def __init__(self, written: Written, truths: Sequence[Float]) -> None:
        counts, true_boxes = np.diff(written.offsets), truths
        true_counts = np.array([len(boxes) for boxes in true_boxes], np.int64)
        kept = np.repeat(true_counts > 0, counts)
        row = np.repeat(np.arange(len(counts)), counts)[kept]
        self.pairs = int(np.count_nonzero(true_counts))
        self._boxes, self._row = written.boxes[kept], row
        self._axes, self._sizes = written.axes[row], written.sizes[row].astype(np.float64)
        self._all = np.concatenate([np.zeros((0, 4)), *true_boxes])
        starts = np.cumsum(true_counts) - true_counts
        times = true_counts[row]
        self._box_of = np.repeat(np.arange(len(row)), times)
        within = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        self._true_of = np.repeat(starts[row], times) + within
        self._rows = len(counts)

    def mean(self, read: Read) -> float:
        """The mean over pairs of the best IoU, if boxes are read this way."""
        with np.errstate(all="ignore"):  # numbers of any size
            pixels = read(self._boxes, self._axes, self._sizes)
            limits = np.concatenate([self._sizes, self._sizes], axis=1)
            boxes = np.clip(np.nan_to_num(pixels), 0, limits)[self._box_of]
            truth = self._all[self._true_of]
            low, high = np.maximum(boxes[:, :2], truth[:, :2]), np.minimum(boxes[:, 2:], truth[:, 2:])
            shared = np.prod(np.clip(high - low, 0, None), axis=1)
            union = _area(boxes) + _area(truth) - shared
            values = np.where(union > 0, shared / union, 0.0)
        best = np.zeros(self._rows)
        np.maximum.at(best, self._row[self._box_of], values)
        return float(best.sum() / self.pairs)


def _others() -> Iterator[tuple[str, Read]]:
    """(name, how boxes would be read)."""
    yield "frame pixels", lambda boxes, axes, size: boxes
    for name, parts in (("unit", 1), ("percent", 100), ("permille", 1000)):
        yield f"frame {name}", partial(_parts, parts=parts)
    yield "swapped axes (y before x)", lambda boxes, axes, size: _placed(boxes[:, [1, 0, 3, 2]], axes)
    yield "mirrored (x from the right)", _mirrored
    yield "order xywh", lambda boxes, axes, size: _placed(_sums(boxes, 1), axes)
    yield "order xyxy", lambda boxes, axes, size: _placed(_sums(boxes, -1), axes)
    for side in _VIEWS:
        yield f"frame resized with view [{side}, {side}]", partial(_parts, parts=side)
    for budget in _BUDGETS:
        name = f"frame resized with view {{min_pixels: {budget.min_pixels}, max_pixels: {budget.max_pixels}}}"
        yield name, partial(_from_budget, budget=budget)


def _parts(boxes: Float, axes: Float, size: Float, parts: int) -> Float:
    return np.asarray(boxes * np.tile(size / parts, 2))


def _from_budget(boxes: Float, axes: Float, size: Float, budget: Budget) -> Float:
    return np.asarray(boxes * np.tile(size / _resized(size, budget), 2))


def _resized(size: Float, budget: Budget) -> Float:
    """What Qwen's image processor makes of each size; infinite where it refuses."""
    distinct, inverse = np.unique(size, axis=0, return_inverse=True)
    resized = np.full(distinct.shape, np.inf)
    for row, (width, height) in enumerate(distinct.astype(np.int64).tolist()):
        if max(width, height) <= 200 * min(width, height):
            resized[row] = smart_resize(height, width, budget)[::-1]
    return np.asarray(resized[inverse.reshape(-1)])


def _mirrored(boxes: Float, axes: Float, size: Float) -> Float:
    pixels = _placed(boxes, axes)
    return np.stack([size[:, 0] - pixels[:, 2], pixels[:, 1], size[:, 0] - pixels[:, 0], pixels[:, 3]], axis=1)


def _sums(boxes: Float, sign: int) -> Float:
    """Corners whose second is the sum of both, or their difference: xywh that was read as xyxy, and the reverse."""
    return np.concatenate([boxes[:, :2], boxes[:, 2:] + sign * boxes[:, :2]], axis=1)


def _placed(boxes: Float, axes: Float) -> Float:
    factor, divisor, offset = (axes[:, [axis, axis + 3] * 2] for axis in range(3))
    return np.asarray(boxes * factor / divisor + offset)


def _area(boxes: Float) -> Float:
    return np.asarray(np.prod(np.clip(boxes[:, 2:] - boxes[:, :2], 0, None), axis=1))
