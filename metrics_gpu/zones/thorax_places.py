"""Places of the thorax as rectangles of a frame, and the frame on an image (docs/words.md §4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

Corners = tuple[float, float, float, float]

CELLS: Final = ("RU", "RM", "RL", "LU", "LM", "LL")
"""The six zones: the patient's right or left; upper, mid or lower. Bit k of a set of cells is cell k."""

ALL_CELLS: Final = (1 << len(CELLS)) - 1
HALVES: Final = ("'", ",")
"""Behind a cell: its outer half, its inner half."""

_SIDES: Final = ("R", "L")
_LEVELS: Final = "UML"
_THIRDS: Final = (0.0, 1 / 3, 2 / 3, 1.0)
_SIDED: Final[MappingProxyType[str, Corners]] = MappingProxyType(
    {
        "apex": (0, 1, 0, 1 / 6),
        "infraclavicular": (0, 1, 1 / 6, 1 / 3),
        "base": (0, 1, 2 / 3, 1),
        "hilum": (0, 1 / 2, 1 / 3, 2 / 3),
        "suprahilar": (0, 1 / 2, 0, 1 / 3),
        "infrahilar": (0, 1 / 2, 1 / 2, 5 / 6),
        "cpa": (1 / 2, 1, 5 / 6, 1),
        "cardiophrenic": (0, 1 / 2, 5 / 6, 1),
        "diaphragm": (0, 1, 5 / 6, 1),
        "retrocardiac": (0, 1 / 2, 1 / 2, 1),
        "lower_lobe": (0, 1, 1 / 2, 1),
        "middle_lobe": (0, 2 / 3, 1 / 2, 5 / 6),
        "lingula": (0, 2 / 3, 1 / 2, 5 / 6),
    }
)
"""Place -> from and to, in parts of a side from the midline, then from the top."""

_LOBES: Final = MappingProxyType({"R": (0, 1, 0, 1 / 2), "L": (0, 1, 0, 2 / 3)})
_CENTRAL: Final[MappingProxyType[str, Corners]] = MappingProxyType(
    {
        "heart": (0.30, 0.40, 0.90, 0.90),
        "mediastinum": (0.35, 0.0, 0.70, 0.90),
        "aorta": (0.45, 0.15, 0.70, 0.45),
        "trachea": (0.44, 0.0, 0.56, 0.35),
        "spine": (0.42, 0.0, 0.58, 1.0),
    }
)
_ONE_SIDED: Final = MappingProxyType({"middle_lobe": "R", "lingula": "L"})
_OTHER_SIDE: Final = str.maketrans("RL", "LR")


@dataclass(frozen=True, slots=True)
class ThoraxFrame:
    """Where the thorax lies: parts of the image's width and height. middle: of the midline, None in the centre."""

    x0: float
    y0: float
    x1: float
    y1: float
    middle: float | None = None

    def across(self, u: float) -> float:
        """The part of the image's width at u of the frame."""
        if self.middle is None:
            return self.x0 + u * (self.x1 - self.x0)
        if u <= 0.5:
            return self.x0 + 2 * u * (self.middle - self.x0)
        return self.middle + (2 * u - 1) * (self.x1 - self.middle)

    def pixels(self, rectangle: Corners, size: tuple[int, int]) -> Corners:
        """u1, v1, u2, v2 of the frame -> x1, y1, x2, y2 in pixels. size: width and height of the image."""
        width, height = size
        u1, v1, u2, v2 = rectangle
        y1, y2 = (self.y0 + v * (self.y1 - self.y0) for v in (v1, v2))
        return self.across(u1) * width, y1 * height, self.across(u2) * width, y2 * height


FIXED: Final = ThoraxFrame(0.14, 0.12, 0.86, 0.82)
"""The medians of the lungs' outline in images of ChestX-Det10's train list with boxes on both lungs, rounded."""

IMAGE: Final = ThoraxFrame(0.0, 0.0, 1.0, 1.0)


def rectangle_of(name: str) -> Corners:
    """u1, v1, u2, v2 of one place, such as RU, RU', L.apex or heart."""
    if name in _CENTRAL:
        return _CENTRAL[name]
    side = name[0]
    if name[1] == ".":
        place = name[2:]
        near, far, top, bottom = _LOBES[side] if place == "upper_lobe" else _SIDED[place]
    else:
        level = _LEVELS.index(name[1])
        near, far = {"'": (0.5, 1.0), ",": (0.0, 0.5)}.get(name[2:], (0.0, 1.0))
        top, bottom = _THIRDS[level], _THIRDS[level + 1]
    if side == "R":
        return 0.5 - far / 2, top, 0.5 - near / 2, bottom
    return 0.5 + near / 2, top, 0.5 + far / 2, bottom


def rectangles_of(names: Iterable[str]) -> list[Corners]:
    """The rectangles of places, in their order: cells of one side and kind in adjoining levels are one rectangle, at
    the place of the first named."""
    places = list(dict.fromkeys(names))
    cells = {name for name in places if name[0] in _SIDES and name[1] != "."}
    drawn: set[str] = set()
    rectangles: list[Corners] = []
    for name in places:
        if name in drawn:
            continue
        if name not in cells:
            rectangles.append(rectangle_of(name))
            continue
        run = _run(name, cells)
        drawn.update(run)
        (u1, top, u2, _), (_, _, _, bottom) = rectangle_of(run[0]), rectangle_of(run[-1])
        rectangles.append((u1, top, u2, bottom))
    return rectangles


def _run(name: str, cells: set[str]) -> list[str]:
    """The cells of the side and kind of `name` that adjoin it, from the top."""
    first = last = _LEVELS.index(name[1])
    named = [f"{name[0]}{level}{name[2:]}" for level in _LEVELS]
    while first and named[first - 1] in cells:
        first -= 1
    while last < len(named) - 1 and named[last + 1] in cells:
        last += 1
    return named[first : last + 1]


def mirrored_place(name: str) -> str:
    """The place on the other side; a central one stays."""
    return name if name in _CENTRAL else name[0].translate(_OTHER_SIDE) + name[1:]


def mirrored_places(names: Iterable[str]) -> tuple[str, ...]:
    """The places on the other sides, right before left as inside one place."""
    return tuple(sorted(map(mirrored_place, names), key=lambda name: sides_of([name]) == 2))


def sides_of(names: Iterable[str]) -> int:
    """The sides of places: 1 right, 2 left, 3 both, 0 for none or central ones."""
    sides = {name[0] for name in names if name not in _CENTRAL}
    return sum(1 << bit for bit, side in enumerate(_SIDES) if side in sides)


def cell_names(cells: int) -> tuple[str, ...]:
    """The names of a set of cells, in the order of `CELLS`."""
    return tuple(name for bit, name in enumerate(CELLS) if cells >> bit & 1)


def single_statements() -> list[Sequence[str]]:
    """The 118 statements whose best is the ceiling: the 63 sets of cells (set s is number s - 1), each other place on
    the right, the left and both sides, the halves of cells, and the central places."""
    statements: list[Sequence[str]] = [cell_names(cells) for cells in range(1, ALL_CELLS + 1)]
    for place in (*_SIDED, "upper_lobe"):
        sides = _ONE_SIDED.get(place, "RL")
        statements += [(f"{side}.{place}",) for side in sides]
        statements += [tuple(f"{side}.{place}" for side in sides)] * (len(sides) > 1)
    statements += [(f"{cell}{half}",) for cell in CELLS for half in HALVES]
    return [*statements, *((place,) for place in _CENTRAL)]
