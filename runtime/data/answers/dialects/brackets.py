"""Dialects that write corners as numbers in brackets: RadVLM, CheXagent-2, Qwen2-VL (docs/boxes.md §4)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from .parsed import GAP, NUMBER, Parsed, has_numbers_in_bracket

_PLAIN: Final = r"(\d{1,40}+(?:\.\d{0,40}+)?|\.\d{1,40}+)"
_COMMA: Final = f"{GAP},{GAP}"
_RADVLM: Final = re.compile(rf"\[{GAP}{_COMMA.join([_PLAIN] * 4)}{GAP}\]", re.ASCII)
_RADVLM_CUT: Final = re.compile(r"\[[\d.,\s]*+\Z", re.ASCII)
_CUT: Final = re.compile(r"[\s\d().,+-]*+(?:<[|/a-z_]*+)?\Z", re.ASCII)
_CUT_TAG: Final = re.compile(r"<\|[/a-z_]*+\|?\Z", re.ASCII)
_OPEN_CORNER: Final = re.compile(r"\([\s\d.,+-]*+\Z", re.ASCII)
_REST: Final = re.compile(r"\s*+,?\s*+(?:\([\s\d.,+-]*+)?\Z", re.ASCII)
_BETWEEN: Final = re.compile(r"\s*+(,?)\s*+", re.ASCII)
_CHEXAGENT: Final = ("<|ref|>", "<|/ref|>", "<|box|>", "<|/box|>")
_QWEN: Final = (
    ("<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>"),
    ("<ref>", "</ref>", "<box>", "</box>"),  # Qwen-VL, and InternVL's names
)
_NAME: Final = 80  # characters before a box in which its name is searched; names are short, answers may be long
_NAME_BEFORE: Final = re.compile(r"[^\n;:.,()\[\]{}<>|]*\Z")


def radvlm(text: str) -> Parsed:
    """`[x1, y1, x2, y2]` in digits and dots, fractions of the image."""
    parsed = Parsed(meant=has_numbers_in_bracket(text), truncated=_RADVLM_CUT.search(text) is not None)
    for match in _RADVLM.finditer(text):
        x1, y1, x2, y2 = map(float, match.groups())
        parsed.add((x1, y1, x2, y2), legal=max(x1, y1, x2, y2) <= 1)
    return parsed


def chexagent2(text: str) -> Parsed:
    """`<|box|>(x1,y1),(x2,y2)<|/box|>`, whole numbers of percent; a name may stand before it in `<|ref|>`.

    Without special tokens that is `name(x1,y1),(x2,y2)`.
    """
    return _corners(text, (_CHEXAGENT,), r"([-+]?\d{1,40}+)", 100)


def qwen2vl(text: str) -> Parsed:
    """`<|box_start|>(x1,y1),(x2,y2)<|box_end|>`, or Qwen-VL's `<box>(x1,y1),(x2,y2)</box>`, in thousandths.

    A name may stand before it, and a tag may hold several boxes. Without special tokens it is `name(x1,y1),(x2,y2)`.
    """
    return _corners(text, _QWEN, f"({NUMBER})", 1000)


def _corners(text: str, spellings: Sequence[tuple[str, str, str, str]], number: str, most: int) -> Parsed:
    """Boxes of two corners each, with coordinates from 0 to `most`, between the third and the fourth of the tags.

    A text without a tag of boxes is read without tags: a server may leave special tokens out.
    """
    tags = [tag for spelling in spellings for tag in spelling]
    parsed = Parsed(meant=has_numbers_in_bracket(text) or any(tag in text for tag in tags))
    corner = re.compile(rf"\({GAP}{number}{_COMMA}{number}{GAP}\)", re.ASCII)
    if not any(tag in text for spelling in spellings for tag in spelling[2:]):
        _add_bare(parsed, text, corner, most)
    for ref, ref_end, start, end in spellings:
        box = re.compile(rf"{re.escape(start)}{GAP}", re.ASCII)
        closing = re.compile(rf"{GAP}{re.escape(end)}", re.ASCII)
        for opening in box.finditer(text):
            first = corner.match(text, opening.end())
            run = _run(text, first, corner) if first else []
            if run and len(run) % 2 == 0 and closing.match(text, run[-1].end()):
                before = text[max(0, opening.start() - _NAME - len(ref_end)) : opening.start()].rstrip()
                label = before.removesuffix(ref_end).rpartition(ref)[2] if before.endswith(ref_end) else ""
                again = before.endswith(end) and parsed.labels
                _add_run(parsed, run, most, parsed.labels[-1] if again else label)
        last, named = text.rfind(start), text.rfind(ref)
        parsed.truncated |= (
            (last > text.rfind(end) and _CUT.match(text, last + len(start)) is not None)
            or named > max(text.rfind(ref_end), last)
            or _CUT_TAG.search(text) is not None
        )
    return parsed


def _add_bare(parsed: Parsed, text: str, corner: re.Pattern[str], most: int) -> None:
    """The boxes of a text without tags: corners that follow one another, two a box; an odd number is none.

    Of corners at the end of a text that was cut off, the last one may have no partner.
    """
    parsed.truncated |= _OPEN_CORNER.search(text) is not None
    first = corner.search(text)
    while first is not None:
        run = _run(text, first, corner)
        end = run[-1].end()
        cut = len(run) % 2 > 0 and _REST.match(text, end) is not None
        parsed.truncated |= cut
        if len(run) % 2 == 0 or cut:
            name = _NAME_BEFORE.search(text, max(0, first.start() - _NAME), first.start())
            _add_run(parsed, run, most, name[0].strip() if name else "")
        first = corner.search(text, end)


def _run(text: str, first: re.Match[str], corner: re.Pattern[str]) -> list[re.Match[str]]:
    """Corners one after the other: a comma between the two of a box, with or without one between boxes."""
    run = [first]
    while True:
        between = _BETWEEN.match(text, run[-1].end())
        assert between is not None  # it matches anything
        following = corner.match(text, between.end()) if between[1] or len(run) % 2 == 0 else None
        if following is None:
            return run
        run.append(following)


def _add_run(parsed: Parsed, run: Sequence[re.Match[str]], most: int, label: str) -> None:
    for first, second in zip(run[::2], run[1::2], strict=False):  # the last corner may have no partner
        x1, y1, x2, y2 = map(float, (*first.groups(), *second.groups()))
        legal = min(x1, y1, x2, y2) >= 0 and max(x1, y1, x2, y2) <= most
        parsed.add((x1, y1, x2, y2), legal=legal, label=label)
