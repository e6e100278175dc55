"""The places that the words of one part of a sentence name (docs/words.md §2, step 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from .lexicon import Token

SIDES: Final = ("R", "L")
LEVELS: Final = ("upper", "mid", "lower")
HALVES: Final = {"outer half": "'", "inner half": ","}
ENDS: Final = {"apex": "upper", "base": "lower"}
"""Places at which a range may begin: "from the apex to the mid zone"."""

CENTRAL: Final = ("heart", "mediastinum", "aorta", "trachea", "spine")
"""Places without a side."""

NAMING: Final = ("side", "image_side", "level", "zone_code", "place")
"""Kinds of terms of which one alone names, or may name, a place."""

_USUAL_SIDE: Final = {"retrocardiac": "L", "middle_lobe": "R", "lingula": "L"}
_ONE_SIDED: Final = ("middle_lobe", "lingula")
_SIDE_OF: Final = {"right": "R", "left": "L"}
_OTHER: Final = {"R": "L", "L": "R"}


class Places(NamedTuple):
    """Places in the order of the text. sides_stated, levels_stated: whether the text says them, where they count."""

    names: tuple[str, ...] = ()
    sides_stated: bool = True
    levels_stated: bool = True

    def __add__(self, other: Places) -> Places:  # type: ignore[override]
        """Both, each place once."""
        names = tuple(dict.fromkeys((*self.names, *other.names)))
        return Places(names, self.sides_stated and other.sides_stated, self.levels_stated and other.levels_stated)


NOWHERE: Final = Places()


@dataclass(slots=True)
class Group:
    """The words of one place. at: the number of its first word. moved: it stands behind a preposition. denied: it is
    the first behind a negation. apart: it stands behind a comma or "and". kept: its sides are of the group before."""

    at: int
    sides: list[str] = field(default_factory=list)
    levels: list[str] = field(default_factory=list)
    place: str = ""
    half: str = ""
    noun: str = ""
    whole: bool = False
    moved: bool = False
    denied: bool = False
    apart: bool = False
    kept: bool = False

    @property
    def narrow(self) -> bool:
        """Whether it says more than a side."""
        return bool(self.levels or self.place)

    @property
    def full(self) -> bool:
        """Whether another side begins another group."""
        if self.sides:
            return bool(self.narrow or self.noun)
        return bool(self.place or (self.levels and self.noun))

    def places(self, without: Sequence[str] = ()) -> Places:
        """The places of the group; without: sides that are not drawn whole."""
        sides, stated = self._sides()
        if self.place in CENTRAL:
            return Places((self.place,))
        names: list[str] = []
        whole = not self.narrow
        if whole and not self.sides and self.noun != "plural" and not self.whole:
            return Places()
        if self.levels and not (self.sides or self.noun or self.place or self.whole):
            return Places()
        for side in sides:
            if self.place:
                names.append(f"{side}.{self.place}")
            elif not whole or side not in without:
                names += [f"{side}{level[0].upper()}{self.half}" for level in self.levels or LEVELS]
        if not names:
            return Places()
        return Places(tuple(names), stated, not whole)

    def _sides(self) -> tuple[list[str], bool]:
        if self.sides:
            return [side for side in SIDES if side in self.sides], True
        if usual := _USUAL_SIDE.get(self.place):
            return [usual], True
        return list(SIDES), self.noun == "plural" or self.whole


def names_places(tokens: Sequence[Token], *, nouns: bool = True) -> bool:
    """Whether a word of these names a place, or with `nouns` may do so in the plural ("zones")."""
    kinds = (*NAMING, "noun", "whole") if nouns else NAMING
    return any(token.kind in kinds for token in tokens)


def find_groups(tokens: Sequence[Token], *, mirrored: bool = False) -> list[Group]:
    """The groups of a part. mirrored: its words for sides are those of the image, so left is the patient's right."""
    return _Gathering(mirrored).groups(tokens)


def places_of(groups: Sequence[Group]) -> Places:
    """The places of some groups of a part: a side alone is dropped where a narrower place on it is named too."""
    narrow = {side for group in groups if group.narrow for side in group.sides or SIDES if group.place not in CENTRAL}
    result = Places()
    for group in groups:
        result += group.places(() if group.narrow else tuple(narrow))
    return result


class _Gathering:
    def __init__(self, mirrored: bool) -> None:
        self._mirrored = mirrored
        self._groups: list[Group] = []
        self._group: Group | None = None
        self._last = ""  # the kind of the last word of a place
        self._last_at = -1
        self._range = ""  # the level before "to"
        self._preposition = False
        self._negation = False
        self._cut = False  # a comma or "and" stands behind the last word of a place

    def groups(self, tokens: Sequence[Token]) -> list[Group]:
        for number, token in enumerate(tokens):
            following = tokens[number + 1].kind if number + 1 < len(tokens) else ""
            self._take(number, token, following)
        self._sides_behind()
        return self._groups

    def _take(self, number: int, token: Token, following: str) -> None:
        kind, value = token.kind, token.value
        if kind == "zone_code":
            side, level = value
            self._side(number, side, swapped=self._mirrored)
            self._level(number, level, "")
            self._noun(number, "single")
        elif kind in ("side", "image_side"):
            self._side(number, value, swapped=self._mirrored and kind == "side")
        elif kind == "level":
            self._level(number, value, following)
        elif kind == "place":
            self._place(number, value)
        elif kind == "noun":
            self._noun(number, value)
        elif kind == "whole":
            self._open(number).whole = True
        elif kind == "part_of_side":
            self._half(number, HALVES[value])
        elif kind == "negation_before":  # what follows is another place
            self._group, self._last, self._negation = None, "", True
        elif token.text.startswith("lung ") and self._last_at == number - 1 and self._last == "level":
            self._noun(number, "single")  # a finding: "lower lung nodules"
        elif kind == "to":
            self._range = self._level_before()
        if kind in NAMING or kind in ("noun", "whole", "part_of_side"):
            self._last, self._last_at, self._cut = kind, number, False
        elif kind == "comma":
            self._cut = True
        if kind not in ("side", "image_side", "preposition", "filler", "to"):
            self._range = ""
        if kind != "filler":
            self._preposition = kind == "preposition"

    def _open(self, number: int) -> Group:
        """The group that is gathered."""
        if self._group is None:
            self._group = Group(number, moved=self._preposition, denied=self._negation, apart=self._cut)
            self._negation = False
            self._groups.append(self._group)
        return self._group

    def _new(self, number: int, sides: Sequence[str] = ()) -> Group:
        self._group = None
        group = self._open(number)
        group.sides, group.kept = list(sides), bool(sides)
        return group

    def _side(self, number: int, value: str, *, swapped: bool) -> None:
        side = _SIDE_OF.get(value, "")
        side = _OTHER[side] if swapped and side else side
        group = self._open(number)
        together = self._last in ("side", "image_side") and not self._range
        together = together or (not group.sides and self._last_at == number - 1)  # "basal bilateral"
        if group.full and not together:
            group = self._new(number)
        if not group.sides and not group.narrow:
            group.moved = group.moved or self._preposition
        group.sides += [side] if side else list(SIDES)

    def _level(self, number: int, level: str, following: str) -> None:
        group = self._open(number)
        apart = following in ("side", "image_side") and bool(group.sides and group.levels)
        if group.place in ENDS and self._range:
            group.place, group.levels = "", [ENDS[group.place]]
        elif group.place or (group.levels and group.noun) or apart or self._is_side_behind():
            group = self._new(number, () if apart else group.sides)
        for each in _between(self._range, level) if self._range else (level,):
            if each not in group.levels:
                group.levels.append(each)

    def _place(self, number: int, value: str) -> None:
        prefix, _, place = value.rpartition(".")
        group = self._open(number)
        if (self._range, place) in (("upper", "base"), ("lower", "apex")):  # the whole side
            group.levels, group.place, group.noun = list(LEVELS), "", "single"
            return
        if group.levels and self._last == "level" and not self._cut:  # "superior mediastinal", "lower thoracic spine"
            group.levels = []
        elif group.place or group.levels or self._is_side_behind():
            group = self._new(number, group.sides)
        if prefix in SIDES:
            swapped = self._mirrored and place not in _ONE_SIDED
            group.sides = [_OTHER[prefix] if swapped else prefix]
        elif prefix == "both" or (prefix == "plural" and not group.sides):
            group.sides = list(SIDES)
        if place in _ONE_SIDED:
            group.sides = [_USUAL_SIDE[place]]
        group.place = place

    def _noun(self, number: int, value: str) -> None:
        self._open(number).noun = value

    def _half(self, number: int, half: str) -> None:
        group = self._open(number)
        if group.half and group.narrow:
            group = self._new(number)
        group.half = half

    def _level_before(self) -> str:
        """The level that a range begins with, if a level stands right before."""
        if self._group is None or self._last not in ("level", "noun", "place"):
            return ""
        levels = self._group.levels[-1:]
        return ENDS.get(self._group.place) or "".join(levels)

    def _is_side_behind(self) -> bool:
        """Whether the group only names the side of the one before, as in "upper zone of the left lung, lower zone"."""
        if not self._cut or len(self._groups) < 2 or self._group is not self._groups[-1]:
            return False
        before, group = self._groups[-2:]
        return bool(group.sides) and not group.narrow and self._lacks_side(before, group)

    def _sides_behind(self) -> None:
        """Gives "of the right lung" and "(right)" to the groups before it that have no side."""
        for number, group in enumerate(self._groups):
            if not number or group.narrow or not group.sides:
                continue
            bare = number
            while bare and not self._groups[bare].denied and self._lacks_side(self._groups[bare - 1], group):
                bare -= 1
                kept = self._groups[bare].kept
                self._groups[bare].sides, self._groups[bare].kept = list(group.sides), False
                if kept:
                    break
            if bare < number:
                group.sides, group.noun = [], ""

    def _lacks_side(self, group: Group, side: Group) -> bool:
        """Whether a group takes the side behind it. "Lower zones, right lung" names both sides before.

        A side that it only kept gives way: "right upper zone and lower zone of the left lung".
        """
        if group.kept:
            return group.narrow and side.moved and not side.apart
        return not group.sides and group.narrow and (side.moved or group.noun != "plural")


def _between(one: str, other: str) -> Sequence[str]:
    first, last = LEVELS.index(one), LEVELS.index(other)
    return LEVELS[first : last + 1] if first <= last else LEVELS[last : first + 1][::-1]
