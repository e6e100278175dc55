"""What the columns of YOLO's lines are: boxes, polygons, key points, confidences and track ids (docs/formats.md §9.4).

A line does not say what it holds, so all lines of a dataset are asked together: 7 columns are a triangle, or a box with
its confidence and a track id; more are a polygon, or a box with key points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Final, Literal

from .....engines.errors import DataError
from ..file_rows import fail
from .shapes import MAX_FRACTION, Place

KINDS: Final = ("auto", "boxes", "poses", "polygons")
"""What the option `lines` can be."""

KeyPoints = tuple[int, int]
"""How many key points a box has, and how many numbers each of them: 2, or 3 with its visibility."""

_ROUNDING: Final = 0.02
"""How far a box of a tool may leave its image, in fractions of it."""
_BESIDE: Final = 0.1
"""How far a key point may lie outside its box, in fractions of the box."""

_MEND: Final = "state it in the option lines (boxes, poses or polygons), or kpt_shape in data.yaml"


@dataclass(frozen=True)
class Line:
    """A line: its class, the numbers behind it, and its file and row."""

    finding: str
    values: tuple[float, ...]
    where: Place


@dataclass(frozen=True)
class Content:
    """What a line says. region: centre and size of a box, or the points of a polygon. unused: the rest of it."""

    region: tuple[float, ...]
    confidence: float | None
    unused: tuple[str, ...]


@dataclass(frozen=True)
class LineColumns:
    """How the lines of a dataset are read. key_points: None if they are not known, or there are none.

    track_ids: the last column is a track id. tracked_polygons: polygons of an odd number of columns end with a
    confidence and a track id. doubt: what else the lines could be.
    """

    form: Literal["boxes", "poses", "polygons"]
    key_points: KeyPoints | None = None
    track_ids: bool = False
    tracked_polygons: bool = False
    doubt: str = ""

    def read(self, line: Line) -> Content:
        """Raises DataError for columns that do not fit."""
        count, stop = len(line.values), self._end(len(line.values))
        if count < 4:
            raise fail(*line.where, f"{count + 1} numbers; a box has 5, a polygon 7 or more")
        tail, unused = line.values[stop:], ["key points"] * (self.form == "poses" and stop > 4)
        if len(tail) > 2:
            raise fail(*line.where, f"{count + 1} columns are not {self._forms()}; {_MEND}")
        if len(tail) == 2 or (tail and self.track_ids):
            unused.append("a track id")
            if not _is_whole(tail[-1]):
                text = (
                    f"{count + 1} columns: the last one is a track id, and {tail[-1]:g} is not a whole number; {_MEND}"
                )
                raise fail(*line.where, text)
            tail = tail[:-1]
        if tail and not 0 <= tail[0] <= 1:
            position = "last" if count == stop + 1 else "last but"
            text = f"{count + 1} numbers, so the {position} one is a confidence, and {tail[0]:g} is not from 0 to 1"
            mend = "; where it is a track id, set the option track_ids" if position == "last" else ""
            raise fail(*line.where, text + mend)
        region = line.values[: stop if self.form == "polygons" else 4]
        if any(abs(value) > MAX_FRACTION for value in region):
            raise fail(*line.where, "a coordinate is more than 2; they are fractions of the image's width and height")
        return Content(region, tail[0] if tail else None, tuple(unused))

    def _end(self, count: int) -> int:
        """Where a region with its key points ends in a line of `count` numbers behind the class."""
        if self.form == "boxes" or count < 6:
            return 4
        if self.form == "poses":
            if self.key_points is None:
                return count
            stop = 4 + self.key_points[0] * self.key_points[1]
            return stop if count >= stop else 4
        if self.track_ids or (self.tracked_polygons and count % 2 == 0):
            return count - 2 + count % 2
        return count - count % 2

    def _forms(self) -> str:
        box = "a box (5; 6 with a confidence; 7 with a track id too)"
        if self.key_points is None:
            return box
        points, numbers = self.key_points
        least = 5 + points * numbers
        return f"{box} or a box with {points} key points of {numbers} numbers ({least} to {least + 2})"


def columns_of(lines: Sequence[Line], form: str, key_points: KeyPoints | None, track_ids: bool) -> LineColumns:
    """The columns of all `lines`. form: one of `KINDS`; key_points: those that data.yaml states.

    Raises DataError where a line of 7 columns, or one with a last number of 0 or 1, can be two things.
    """
    if form == "boxes":
        return LineColumns("boxes", None, track_ids)
    if form == "poses" or (form == "auto" and key_points):
        return LineColumns("poses", key_points or _fitting(lines), track_ids)
    wide = [line for line in lines if len(line.values) >= 6]
    even = [line for line in wide if len(line.values) % 2 == 0]
    tracked = all(_is_whole(line.values[-1]) for line in even) and any(line.values[-1] >= 2 for line in even)
    polygons = LineColumns("polygons", None, track_ids, tracked)
    if form == "polygons" or track_ids or not wide:
        return polygons
    boxes = _as_boxes(wide)
    if not all(_is_polygon(line, tracked) for line in wide):
        return boxes or _refused(wide, polygons)
    if not tracked:
        _refuse_doubtful(wide)
    if boxes and boxes.key_points:
        return _likelier(wide, boxes, polygons)
    return polygons


def _as_boxes(wide: Sequence[Line]) -> LineColumns | None:
    """How all of these lines are boxes with something behind them; None if they cannot be."""
    rest = [line for line in wide if not _is_tracked_box(line.values)]
    if not rest:
        return LineColumns("boxes")
    key_points = _fitting(rest)
    return LineColumns("poses", key_points) if key_points else None


def _refused(wide: Sequence[Line], polygons: LineColumns) -> LineColumns:
    line = next(line for line in wide if not _is_polygon(line, polygons.tracked_polygons))
    polygons.read(line)
    text = f"{len(line.values) + 1} columns are neither a box with a confidence and a track id, nor one with key points"
    raise fail(*line.where, f"{text}, nor a polygon; {_MEND}")


def _refuse_doubtful(wide: Sequence[Line]) -> None:
    """Raises DataError where every last number is 0 or 1: of triangles at the rim, or the first track ids of a film."""
    six = [line for line in wide if len(line.values) == 6]
    longer = [line for line in wide if len(line.values) > 6 and len(line.values) % 2 == 0]
    if six and all(_is_tracked_box(line.values) for line in six):
        line, what, other = six[0], "three points", "box"
    elif longer and all(_ends_with_track(line.values) for line in longer):
        line, what, other = longer[0], f"{len(longer[0].values) // 2} points", "polygon"
    else:
        return
    raise fail(
        *line.where,
        f"{len(line.values) + 1} columns can be a polygon of {what}, or a {other} with its confidence and the track id "
        f"{line.values[-1]:g} in the last column; set the option track_ids, or lines to polygons",
    )


def _ends_with_track(values: Sequence[float]) -> bool:
    # A polygon that touches the rim of its image mostly does so with two points.
    return _is_tail(values[-2:]) and not any(map(_is_whole, values[:-1]))


def _likelier(wide: Sequence[Line], poses: LineColumns, polygons: LineColumns) -> LineColumns:
    """Of lines that can be both, those with key points have whole third numbers, or cross themselves as polygons.

    The second is no more than likely, and so is a polygon that does not cross itself.
    """
    count, numbers = poses.key_points or (0, 0)
    posed = [line for line in wide if not _is_tracked_box(line.values)]
    seen = [point[2] for line in posed for point in _key_points(line.values, count, numbers) if numbers == 3]
    if count > 1 and seen and all(map(_is_whole, seen)) and any(seen):
        return poses
    crossed = 2 * sum(_crosses_itself(polygons.read(line).region) for line in posed) >= len(posed)
    names = ("polygons", f"boxes with {count} key points" if count > 1 else "boxes with a key point")
    columns = " and ".join(map(str, sorted({len(line.values) + 1 for line in posed})))
    doubt = (
        f"lines of {columns} columns: {len(posed)}, read as {names[crossed]}; they can be {names[not crossed]} too, so "
        "set the option lines to poses or polygons"
    )
    return replace(poses if crossed else polygons, doubt=doubt)


def _fitting(lines: Sequence[Line]) -> KeyPoints | None:
    """The key points that fit all lines; those with a visibility first, and with less behind them."""
    longest = max((len(line.values) for line in lines), default=0)
    for tail in range(3):
        for numbers in (3, 2):
            count, rest = divmod(longest - tail - 4, numbers)
            if count > 0 and not rest and all(_is_pose(line.values, count, numbers) for line in lines):
                return count, numbers
    return None


def _is_pose(values: Sequence[float], count: int, numbers: int) -> bool:
    stop = 4 + count * numbers
    if len(values) in (4, 5):
        return True
    if not stop <= len(values) <= stop + 2 or not _is_box(values[:4]) or not _is_tail(values[stop:]):
        return False
    x, y, wide, high = values[:4]
    across, down = wide * (0.5 + _BESIDE), high * (0.5 + _BESIDE)
    for point in _key_points(values, count, numbers):
        if any(point[:2]) and (abs(point[0] - x) > across or abs(point[1] - y) > down):
            return False
        if numbers == 3 and not (0 <= point[2] <= 1 or point[2] == 2):
            return False
    return True


def _key_points(values: Sequence[float], count: int, numbers: int) -> Iterator[Sequence[float]]:
    return (values[start : start + numbers] for start in range(4, 4 + count * numbers, numbers))


def _is_tracked_box(values: Sequence[float]) -> bool:
    return len(values) == 6 and _is_box(values[:4]) and _is_tail(values[4:])


def _is_tail(tail: Sequence[float]) -> bool:
    """Whether this is nothing, a confidence, a track id, or both in this order."""
    if len(tail) == 1:
        return 0 <= tail[0] <= 1 or _is_whole(tail[0])
    return not tail or (0 <= tail[0] <= 1 and _is_whole(tail[1]))


def _is_box(values: Sequence[float]) -> bool:
    x, y, wide, high = values
    inside = all(c - s / 2 >= -_ROUNDING and c + s / 2 <= 1 + _ROUNDING for c, s in ((x, wide), (y, high)))
    return wide > 0 and high > 0 and inside


def _is_polygon(line: Line, tracked: bool) -> bool:
    try:
        region = LineColumns("polygons", None, tracked_polygons=tracked).read(line).region
    except DataError:
        return False
    return len(region) > 4 and all(abs(value) < MAX_FRACTION for value in region)


def _is_whole(value: float) -> bool:
    return value >= 0 and value == int(value)


def _crosses_itself(values: Sequence[float]) -> bool:
    """Whether two sides of a polygon that are no neighbours meet."""
    points = list(dict.fromkeys(zip(values[0::2], values[1::2], strict=True)))  # some tools repeat the first
    sides = list(pairwise([*points, points[0]]))
    last = len(sides) - 1
    pairs = ((a, b) for a, b in combinations(range(len(sides)), 2) if b - a > 1 and (a, b) != (0, last))
    return any(_meet(*sides[a], *sides[b]) for a, b in pairs)


_Point = tuple[float, float]


def _meet(a: _Point, b: _Point, c: _Point, d: _Point) -> bool:
    def side(p: _Point, q: _Point, r: _Point) -> float:
        return (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])

    return side(a, b, c) * side(a, b, d) <= 0 and side(c, d, a) * side(c, d, b) <= 0
