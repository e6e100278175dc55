"""Fits the boxes of one answer to its image: what is dropped, clipped, repeated or too many (docs/boxes.md §2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .answered import State
from .coordinate_frames import AS_THEY_ARE, Axes, Corners, in_pixels

if TYPE_CHECKING:
    from .words.class_answers import WordsAnswer

MOST_BOXES: Final = 100
"""Boxes of an answer that are kept."""

_ROUNDING: Final = 2.0
"""Pixels by which a box may leave its image because of rounding."""


@dataclass(slots=True)
class FittedAnswer:
    """One line, fitted to its image; the fields are a pair's fields in `BoxAnswers`.

    written: x1, y1, x2, y2 of all its boxes before they became pixels by `axes`, for the check of the frame.
    excerpt: the beginning of what the line says, where it cannot be read. tag, labels: as in `Parsed`. words: what an
    answer in words says.
    """

    state: State
    size: tuple[int, int] = (0, 0)
    boxes: list[Corners] = field(default_factory=list)
    scores: list[float] | None = None
    illegal: int = 0
    outside: int = 0
    clipped: int = 0
    duplicates: int = 0
    truncated: bool = False
    over_limit: bool = False
    cropped: bool = False
    excerpt: str = ""
    tag: str = ""
    labels: Sequence[str] = ()
    written: Sequence[Corners] = ()
    axes: Axes = AS_THEY_ARE
    words: WordsAnswer | None = None


def fit(
    answer: FittedAnswer, boxes: Sequence[Corners], scores: Sequence[float] | None, *, truncate: bool = False
) -> None:
    """Enters the boxes x1, y1, x2, y2 of an answer whose `size` and `axes` are known.

    truncate: to whole pixels, see `Dialect.whole_pixels`. A box that ends before it begins is illegal, one wholly
    outside the image is dropped, and one partly outside is clipped. Of more than `MOST_BOXES` the surest are kept,
    without scores the first. The state is not changed.
    """
    width, height = answer.size
    answer.written = boxes
    kept: list[tuple[Corners, Corners, int]] = []
    for number, box in enumerate(boxes):
        if not (box[0] < box[2] and box[1] < box[3]):
            answer.illegal += 1
            continue
        x1, y1, x2, y2 = in_pixels(box, answer.axes)
        if truncate:
            x1, y1, x2, y2 = float(int(x1)), float(int(y1)), float(int(x2)), float(int(y2))
        if not (x1 < x2 and y1 < y2):
            answer.illegal += 1
        elif x2 <= 0 or y2 <= 0 or x1 >= width or y1 >= height:
            answer.outside += 1
        else:
            kept.append((box, (x1, y1, x2, y2), number))
    if len(kept) > MOST_BOXES:
        answer.over_limit = True
        if scores is not None:
            surest = sorted(range(len(kept)), key=lambda index: -scores[kept[index][2]])
            kept = [kept[index] for index in sorted(surest[:MOST_BOXES])]
        kept = kept[:MOST_BOXES]
    answer.duplicates = len(kept) - len({box for box, _, _ in kept})
    if scores is not None:
        answer.scores = [scores[number] for _, _, number in kept]
    for _, (x1, y1, x2, y2), _ in kept:
        answer.clipped += max(-x1, -y1, x2 - width, y2 - height) > _ROUNDING
        answer.boxes.append((max(x1, 0.0), max(y1, 0.0), min(x2, float(width)), min(y2, float(height))))
