"""Dialects that write coordinates as tokens of bins: MAIRA-2, Florence-2, PaliGemma, Kosmos-2 (docs/boxes.md §4)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from .parsed import GAP, Parsed, has_numbers_in_bracket

_MAIRA: Final = re.compile(
    rf"<box>{GAP}<x(\d{{1,40}}+)>{GAP}<y(\d{{1,40}}+)>{GAP}<x(\d{{1,40}}+)>{GAP}<y(\d{{1,40}}+)>{GAP}</box>",
    re.ASCII,
)
_MAIRA_TOKEN: Final = re.compile(r"</?box>|<[xy]\d+>", re.ASCII)
_MAIRA_CUT: Final = re.compile(r"(?:\s*+<[xy]\d++>)*+\s*+(?:<[xy/]?[\dbox]*+)?\Z", re.ASCII)
_FLORENCE: Final = re.compile(r"<loc_(\d{1,40})>", re.ASCII)
_PALIGEMMA: Final = re.compile(r"<loc(\d{4})>", re.ASCII)
_CUT_TOKEN: Final = re.compile(r"<(?:l(?:oc?)?_?|loc_?\d*+)?\Z", re.ASCII)
_KOSMOS: Final = re.compile(rf"{GAP}<patch_index_(\d{{4}})>{GAP}<patch_index_(\d{{4}})>{GAP}", re.ASCII)
_KOSMOS_TOKENS: Final = ("<object>", "</object>", "<phrase>", "</phrase>", "<patch_index_", "</delimiter_of_multi_")
_KOSMOS_CUT: Final = re.compile(rf"{GAP}(?:<patch_index_\d{{4}}>{GAP}){{0,2}}(?:<[/a-z_\d]*+)?\Z", re.ASCII)
_NEXT, _CLOSE = "</delimiter_of_multi_objects/>", "</object>"
_CELLS: Final = 32  # cells a side of the grid of Kosmos-2, whose tokens number its cells


def maira2(text: str) -> Parsed:
    """`<box><xA><yB><xC><yD></box>` with bins 0 to 99; fractions of the centre square, at the bins' centres."""
    parsed = Parsed(meant=has_numbers_in_bracket(text) or _MAIRA_TOKEN.search(text) is not None)
    for match in _MAIRA.finditer(text):
        bins = [int(group) for group in match.groups()]
        x1, y1, x2, y2 = ((value + 0.5) / 100 for value in bins)
        parsed.add((x1, y1, x2, y2), legal=max(bins) <= 99)
    start = text.rfind("<box>")
    parsed.truncated = (
        (start > text.rfind("</box>") and _MAIRA_CUT.match(text, start + len("<box>")) is not None)
        or text.rfind("<obj>") > text.rfind("</obj>")
        or re.search(r"<(?:/?[a-z]*+)?\Z", text) is not None
    )
    return parsed


def florence2(text: str) -> Parsed:
    """`<loc_a><loc_b><loc_c><loc_d>`, x first, bins 0 to 999; fractions of the image, at the bins' centres."""
    parsed = _located(text)
    for bins in _fours(text, _FLORENCE, parsed):
        x1, y1, x2, y2 = ((value + 0.5) / 1000 for value in bins)
        parsed.add((x1, y1, x2, y2), legal=max(bins) <= 999)
    return parsed


def paligemma(text: str) -> Parsed:
    """`<locYYYY><locXXXX><locYYYY><locXXXX>`, y first, 0 to 1023; fractions of the image, 1023 is its edge."""
    return _paligemma(text, 1023)


def paligemma1024(text: str) -> Parsed:
    """As `paligemma`, divided by 1024, which much code of users does."""
    return _paligemma(text, 1024)


def kosmos2(text: str) -> Parsed:
    """`<object><patch_index_UUUU><patch_index_LLLL></object>`: cells of a grid of 32 x 32, as fractions of the image.

    Corners are the centres of cells; a box in one row or column of cells has their outer edges.
    """
    parsed = Parsed(meant=has_numbers_in_bracket(text) or any(token in text for token in _KOSMOS_TOKENS))
    start = text.find("<object>")
    while start >= 0:
        end, closed = start + len("<object>"), False
        while not closed and (match := _KOSMOS.match(text, end)):
            end = match.end()
            closed = text.startswith(_CLOSE, end)
            if not closed and not text.startswith(_NEXT, end):
                break
            _add_cells(parsed, int(match[1]), int(match[2]))
            end += 0 if closed else len(_NEXT)
        parsed.truncated |= not closed and _KOSMOS_CUT.match(text, end) is not None
        start = text.find("<object>", end)
    return parsed


def _add_cells(parsed: Parsed, upper: int, lower: int) -> None:
    (top, left), (bottom, right) = divmod(upper, _CELLS), divmod(lower, _CELLS)
    near, far = (0.0, 1.0) if top == bottom or left == right else (0.5, 0.5)
    x1, y1, x2, y2 = (value / _CELLS for value in (left + near, top + near, right + far, bottom + far))
    legal = max(upper, lower) < _CELLS * _CELLS and left <= right and top <= bottom
    parsed.add((x1, y1, x2, y2), legal=legal)


def _paligemma(text: str, parts: int) -> Parsed:
    parsed = _located(text)
    for bins in _fours(text, _PALIGEMMA, parsed):
        y1, x1, y2, x2 = (value / parts for value in bins)
        parsed.add((x1, y1, x2, y2), legal=max(bins) <= 1023)
    return parsed


def _located(text: str) -> Parsed:
    """Whether a text of location tokens means a box, and whether it ends inside a token."""
    meant = has_numbers_in_bracket(text) or "<loc" in text
    return Parsed(meant=meant, truncated=_CUT_TOKEN.search(text) is not None)


def _fours(text: str, token: re.Pattern[str], parsed: Parsed) -> Iterator[list[int]]:
    """Groups of four tokens that follow one another; a rest at the end of the text is truncated."""
    run: list[int] = []
    end = -1
    for match in token.finditer(text):
        if text[end : match.start()].strip():
            run = []
        run.append(int(match[1]))
        end = match.end()
        if len(run) == 4:
            yield run
            run = []
    if run and not _CUT_TOKEN.sub("", text[end:]).strip():
        parsed.truncated = True
