"""Dialects that write corners as lists of numbers: InternVL, DeepSeek-VL2, MedRegA (docs/boxes.md §4)."""

from __future__ import annotations

import re
from typing import Final

from .parsed import NUMBER, Parsed, has_numbers_in_bracket

_INNERMOST: Final = re.compile(r"\[([^\[\]]*+)\]")
_DECIMAL: Final = re.compile(NUMBER, re.ASCII)
_WHOLE: Final = re.compile(r"[-+]?\d{1,40}+", re.ASCII)
_BRACKET: Final = re.compile(r"[\[\]]")
_CUT_TAG: Final = re.compile(r"<[/|a-z]*+\Z", re.ASCII)
_CUT: Final = re.compile(r"[\s\d.,+\[\]-]*+\Z", re.ASCII)
_PLAIN_TAGS: Final = ("<ref>", "</ref>", "<box>", "</box>")
_DEEPSEEK_TAGS: Final = ("<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>")
_NAME: Final = 80  # characters before the first box of a tag in which its name is searched


def internvl(text: str) -> Parsed:
    """`<ref>name</ref><box>[[x1, y1, x2, y2], ...]</box>`, or the lists alone, in thousandths of the image."""
    return _lists(text, _PLAIN_TAGS, _DECIMAL, 1000)


def deepseekvl2(text: str) -> Parsed:
    """`<|ref|>name<|/ref|><|det|>[[x1, y1, x2, y2], ...]<|/det|>`, or the lists alone: whole numbers, edge 999."""
    return _lists(text, _DEEPSEEK_TAGS, _WHOLE, 999)


def medrega(text: str) -> Parsed:
    """As `internvl`, with 999 at the edge of the image."""
    return _lists(text, _PLAIN_TAGS, _DECIMAL, 999)


def _lists(text: str, tags: tuple[str, str, str, str], number: re.Pattern[str], most: int) -> Parsed:
    """A box for each innermost list of four numbers from 0 to `most`; one of another length is an illegal box."""
    ref, ref_end, start, end = tags
    parsed = Parsed(meant=has_numbers_in_bracket(text) or start in text or end in text)
    for match in _INNERMOST.finditer(text):
        items = [item.strip() for item in match[1].split(",")]
        if not match[1].strip():
            parsed.empty = True
        elif all(_DECIMAL.fullmatch(item) for item in items):
            x1, y1, x2, y2 = map(float, items) if len(items) == 4 else (0.0,) * 4
            legal = min(x1, y1, x2, y2) >= 0 and max(x1, y1, x2, y2) <= most and all(map(number.fullmatch, items))
            parsed.add((x1, y1, x2, y2), legal=legal, label=_label(text, match.start(), ref, ref_end))
    depth = 0
    for bracket in _BRACKET.findall(text):
        depth = depth + 1 if bracket == "[" else max(0, depth - 1)
    opened = text.rfind(start)
    unclosed = opened > text.rfind(end) and _CUT.match(text, opened + len(start)) is not None
    parsed.truncated = depth > 0 or unclosed or text.rfind(ref) > text.rfind(ref_end) or bool(_CUT_TAG.search(text))
    return parsed


def _label(text: str, position: int, ref: str, ref_end: str) -> str:
    """The name in the tags before a list; the boxes of one tag share it."""
    closed = text.rfind(ref_end, 0, position)
    return text[max(0, closed - _NAME) : closed].rpartition(ref)[2] if closed >= 0 else ""
