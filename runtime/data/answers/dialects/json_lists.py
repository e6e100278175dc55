"""Dialects in JSON: Qwen2.5-VL, Qwen3-VL, MedGemma 1.5, and any model's list of boxes (docs/boxes.md §4).

The text is scanned for keys with four numbers, not parsed as a document: quotes of Python, trailing commas, a lone
object, a fence around it and an end that was cut off do not matter.
"""

from __future__ import annotations

import re
from typing import Final

from ..coordinate_frames import Corners, ordered
from .parsed import GAP, NUMBER, Parsed, has_numbers_in_bracket
from .thoughts import FINAL_ANSWER, after_last, outside_strings, without_strings

_NUMBER: Final = rf"{NUMBER}(?:[eE][-+]?\d{{1,3}}+)?"
_COMMA: Final = f"{GAP},{GAP}"
_BOX: Final = rf"\[{GAP}{_COMMA.join([f'({_NUMBER})'] * 4)}{GAP}(?:,{GAP})?\]"
_ONE: Final = re.compile(_BOX, re.ASCII)
_PLAIN: Final = _BOX.replace(f"({_NUMBER})", _NUMBER)
_INNER: Final = r"\[[^\[\]{}:]*+\]"
_EACH: Final = re.compile(_INNER)
_SEVERAL: Final = rf"\[{GAP}{_INNER}(?:{_COMMA}{_INNER})*+"
_NAMED: Final = r"""(?:(?P<quote>["'])(?P<key>[^"'\\]{0,80})(?P=quote)"""
_VALUE: Final = re.compile(rf"""{_NAMED}{GAP}:{GAP})?+(?P<value>{_SEVERAL}|{_PLAIN})""", re.ASCII)
_LABEL: Final = re.compile(
    r"""["'](?:label|name|class|category|finding|object)["']\s*+:\s*+(?:"([^"\\\n]{0,200}+)"|'([^'\\\n]{0,200}+)')""",
    re.IGNORECASE,
)
_OBJECT: Final = 400
"""Characters before and after a box in which its object names it."""

_BEFORE: Final = 400  # characters before a value in which its key is searched
_COLON: Final = re.compile(r":\s*+\Z", re.ASCII)
_QUOTED_KEY: Final = re.compile(r"""["']\s*+:\s*+\Z""", re.ASCII)
_EMPTY: Final = re.compile(rf"\[{GAP}\]", re.ASCII)


def qwen25vl(text: str) -> Parsed:
    """`{"bbox_2d": [x1, y1, x2, y2]}`, or a list of them, in pixels of the resized image; boxes may end outside it."""
    return _keyed(text, "bbox_2d", "xyxy", None)


def qwen3vl(text: str) -> Parsed:
    """`{"bbox_2d": [x1, y1, x2, y2]}`, or a list of them, in thousandths of the image."""
    return _keyed(text, "bbox_2d", "xyxy", 1000)


def medgemma15(text: str) -> Parsed:
    """`{"box_2d": [y1, x1, y2, x2]}` in thousandths of the image padded to a square, after the last `Final Answer:`."""
    return _keyed(after_last(FINAL_ANSWER, text), "box_2d", "yxyx", 1000)


def any_json(text: str, key: str, order: str) -> Parsed:
    """A list of objects with `key`, else of boxes; the key may hold one box or a list of them.

    Boxes without a key count where no list has another key, and never in a string, which explains an answer.
    """
    parsed = _traced(text, key)
    matches = [match for match in _VALUE.finditer(text) if match["key"] == key]
    if not matches and not re.search(rf"""["']{re.escape(key)}["']{GAP}:""", text):
        matches = list(outside_strings(_VALUE, text))
        if any(match["key"] is not None for match in matches):
            matches = []
    for match in matches:
        if match["key"] is not None or not _after_key(text, match.start()):
            _add(parsed, text, match, order, None)
    return parsed


def _after_key(text: str, position: int) -> bool:
    """Whether a value has a key before it, even a malformed one: a quote and a colon, or a colon in an open object. The
    colon of a sentence is none."""
    before = text[max(0, position - _BEFORE) : position]
    in_object = before.rfind("{") > before.rfind("}")
    return bool(_QUOTED_KEY.search(before) or (in_object and _COLON.search(before)))


def _keyed(text: str, key: str, order: str, most: float | None) -> Parsed:
    """The boxes under `key`, one or a list of them, with coordinates from 0 to `most`, if there is a limit."""
    parsed = _traced(text, key)
    for match in _VALUE.finditer(text):
        if match["key"] == key:
            _add(parsed, text, match, order, most)
    return parsed


def _add(parsed: Parsed, text: str, match: re.Match[str], order: str, most: float | None) -> None:
    """A box or a list of boxes; in a list with a box, every other entry that is not an empty list is an illegal box."""
    label = _label(text, match) if match["key"] else ""
    lists = _EACH.findall(match["value"])
    boxes = [_ONE.fullmatch(item) for item in lists]
    parsed.illegal += sum(
        box is None and not _EMPTY.fullmatch(item) for box, item in zip(boxes, lists, strict=True)
    ) * any(boxes)
    for box in boxes:
        if box is None:
            continue
        a, b, c, d = map(float, box.groups())
        values: Corners = (a, b, c, d)
        legal = most is None or (min(values) >= 0 and max(values) <= most)
        parsed.add(ordered(values, order), legal=legal, label=label)


def _label(text: str, match: re.Match[str]) -> str:
    """What the object of a box calls it; empty where it says nothing."""
    before = text[max(0, match.start() - _OBJECT) : match.start()].rpartition("{")[2]
    after = text[match.end() : match.end() + _OBJECT].partition("}")[0]
    named = None if "}" in before else _LABEL.search(before) or _LABEL.search(after)
    return (named[1] or named[2] or "") if named else ""


def _traced(text: str, key: str) -> Parsed:
    """Traces of a box, an empty list, and whether brackets are still open at the end."""
    silent = re.search(rf"""["']{re.escape(key)}["']{GAP}:{GAP}\[{GAP}\]""", text) is not None
    # Numbers in the explanation of an empty list are no boxes.
    meant = has_numbers_in_bracket(without_strings(text) if silent else text)
    rest = text
    if not meant:
        rest = re.sub(rf"""["']{re.escape(key)}["']{GAP}:{GAP}\[{GAP}\]""", "[]", text)
        meant = f'"{key}"' in rest or f"'{key}'" in rest
    depth = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth = depth + 1 if bracket in "[{" else max(0, depth - 1)
    return Parsed(meant=meant, truncated=depth > 0, empty=_EMPTY.search(rest) is not None)
