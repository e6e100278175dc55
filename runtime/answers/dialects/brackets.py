"""Dialects that write corners as numbers in brackets: RadVLM, CheXagent-2, Qwen2-VL (docs/boxes.md §4)."""

from __future__ import annotations

import re
from typing import Final

from .parsed import GAP, NUMBER, Parsed, has_numbers_in_bracket

__all__ = ["chexagent2", "qwen2vl", "radvlm"]

_PLAIN: Final = r"(\d{1,40}+(?:\.\d{0,40}+)?|\.\d{1,40}+)"
_COMMA: Final = f"{GAP},{GAP}"
_RADVLM: Final = re.compile(rf"\[{GAP}{_COMMA.join([_PLAIN] * 4)}{GAP}\]", re.ASCII)
_RADVLM_CUT: Final = re.compile(r"\[[\d.,\s]*+\Z", re.ASCII)
_CUT: Final = re.compile(r"[\s\d().,+-]*+(?:<[|/a-z_]*+)?\Z", re.ASCII)
_CUT_TAG: Final = re.compile(r"<\|[/a-z_]*+\|?\Z", re.ASCII)


def radvlm(text: str) -> Parsed:
    """`[x1, y1, x2, y2]` in digits and dots, fractions of the image."""
    found = Parsed(meant=has_numbers_in_bracket(text), truncated=_RADVLM_CUT.search(text) is not None)
    for match in _RADVLM.finditer(text):
        x1, y1, x2, y2 = map(float, match.groups())
        found.add((x1, y1, x2, y2), legal=max(x1, y1, x2, y2) <= 1)
    return found


def chexagent2(text: str) -> Parsed:
    """`<|box|>(x1,y1),(x2,y2)<|/box|>`, whole numbers of percent; a name may stand before it in `<|ref|>`."""
    return _tagged(text, ("ref", "/ref", "box", "/box"), r"([-+]?\d{1,40}+)", 100)


def qwen2vl(text: str) -> Parsed:
    """`<|box_start|>(x1,y1),(x2,y2)<|box_end|>` in thousandths; a name may stand before it."""
    return _tagged(text, ("object_ref_start", "object_ref_end", "box_start", "box_end"), f"({NUMBER})", 1000)


def _tagged(text: str, names: tuple[str, str, str, str], number: str, most: int) -> Parsed:
    """Boxes between the third and the fourth of the tags, with coordinates from 0 to `most`."""
    ref, ref_end, start, end = (f"<|{name}|>" for name in names)
    found = Parsed(meant=has_numbers_in_bracket(text) or any(tag in text for tag in (ref, ref_end, start, end)))
    corner = rf"\({GAP}{number}{_COMMA}{number}{GAP}\)"
    box = re.compile(rf"{re.escape(start)}{GAP}{corner}{_COMMA}{corner}{GAP}{re.escape(end)}", re.ASCII)
    for match in box.finditer(text):
        x1, y1, x2, y2 = map(float, match.groups())
        found.add((x1, y1, x2, y2), legal=min(x1, y1, x2, y2) >= 0 and max(x1, y1, x2, y2) <= most)
    last, named = text.rfind(start), text.rfind(ref)
    found.truncated = (
        (last > text.rfind(end) and _CUT.match(text, last + len(start)) is not None)
        or named > max(text.rfind(ref_end), last)
        or _CUT_TAG.search(text) is not None
    )
    return found
