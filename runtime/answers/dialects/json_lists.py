"""Dialects in JSON: Qwen2.5-VL, Qwen3-VL, MedGemma 1.5, and any model's list of boxes (docs/boxes.md §4).

The text is scanned for keys with four numbers, not parsed as a document: quotes of Python, trailing commas, a lone
object, a fence around it and an end that was cut off do not matter.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from ..frames import Corners, ordered
from .parsed import GAP, NUMBER, Parsed, has_numbers_in_bracket

__all__ = ["any_json", "medgemma15", "qwen3vl", "qwen25vl"]

_NUMBER: Final = rf"{NUMBER}(?:[eE][-+]?\d{{1,3}}+)?"
_COMMA: Final = f"{GAP},{GAP}"
_BOX: Final = rf"\[{GAP}{_COMMA.join([f'({_NUMBER})'] * 4)}{GAP}(?:,{GAP})?\]"
_ONE: Final = re.compile(_BOX, re.ASCII)
_PLAIN: Final = _BOX.replace(f"({_NUMBER})", _NUMBER)
_SEVERAL: Final = rf"\[{GAP}{_PLAIN}(?:{_COMMA}{_PLAIN})*+"
_NAMED: Final = r"""(?:(?P<quote>["'])(?P<key>[^"'\\]{0,80})(?P=quote)"""
_VALUE: Final = re.compile(rf"""{_NAMED}{GAP}:{GAP})?+(?P<value>{_SEVERAL}|{_PLAIN})""", re.ASCII)
_BEFORE: Final = 40
_COLON: Final = re.compile(r":\s*+\Z", re.ASCII)
_EMPTY: Final = re.compile(rf"\[{GAP}\]", re.ASCII)


def qwen25vl(text: str) -> Parsed:
    """`{"bbox_2d": [x1, y1, x2, y2]}` in pixels of the resized image, which a box may leave."""
    return _keyed(text, "bbox_2d", "xyxy", None)


def qwen3vl(text: str) -> Parsed:
    """`{"bbox_2d": [x1, y1, x2, y2]}` in thousandths of the image."""
    return _keyed(text, "bbox_2d", "xyxy", 1000)


def medgemma15(text: str) -> Parsed:
    """`{"box_2d": [y1, x1, y2, x2]}` in thousandths of the image padded to a square."""
    return _keyed(text, "box_2d", "yxyx", 1000)


def any_json(text: str, key: str, order: str) -> Parsed:
    """A list of objects with `key`, else of boxes; the key may hold one box or a list of them."""
    found = _traced(text, key)
    matches = list(_VALUE.finditer(text))
    mine = [match for match in matches if match["key"] == key]
    for match in mine or (match for match in matches if match["key"] is None and not _after_colon(text, match.start())):
        for numbers in _ONE.findall(match["value"]):
            _add(found, numbers, order, None)
    return found


def _after_colon(text: str, place: int) -> bool:
    """Whether a value has a colon before it, and so a key, even if that is malformed."""
    return _COLON.search(text[max(0, place - _BEFORE) : place]) is not None


def _keyed(text: str, key: str, order: str, most: float | None) -> Parsed:
    """The boxes under `key`, with coordinates from 0 to `most`, if there is a limit."""
    found = _traced(text, key)
    for match in _keyed_box(key).finditer(text):
        _add(found, match.groups(), order, most)
    return found


@cache
def _keyed_box(key: str) -> re.Pattern[str]:
    return re.compile(rf"""(?:"{key}"|'{key}'){GAP}:{GAP}{_BOX}""", re.ASCII)


def _add(found: Parsed, numbers: tuple[str, ...], order: str, most: float | None) -> None:
    a, b, c, d = map(float, numbers)
    values: Corners = (a, b, c, d)
    found.add(ordered(values, order), legal=most is None or (min(values) >= 0 and max(values) <= most))


def _traced(text: str, key: str) -> Parsed:
    """Traces of a box, an empty list, and whether brackets are still open at the end."""
    meant = has_numbers_in_bracket(text)
    rest = text
    if not meant:
        rest = re.sub(rf"""["']{re.escape(key)}["']{GAP}:{GAP}\[{GAP}\]""", "[]", text)
        meant = f'"{key}"' in rest or f"'{key}'" in rest
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
    return Parsed(meant=meant, truncated=depth > 0, empty=_EMPTY.search(rest) is not None)
