"""A raw text -> its plain lines, and whether it can be read at all (docs/words.md §2, steps 1 and 2)."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from .lexicon import BREAK, lexicon

EMPTY: Final = "empty"
FOREIGN: Final = "foreign"

_WRAPPED: Final = 40
"""Letters from which on a line that does not end is a wrapped one."""

_PIECE: Final = 1000
"""Letters that are normalised at once: a long run of combining marks takes the square of its length."""

_LATIN: Final = "\u024f"  # the last letter of Latin Extended-B
_FOREIGN_LETTERS: Final = 0.2
_SHORT: Final = 6
_UNSEEN: Final = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
"""Characters without a width, which may stand inside a word."""

_WRITTEN: Final = (
    (re.compile(r"['\u2018\u2019\u02bc]"), "'"),
    (re.compile(r"\bcan't\b"), "cannot"),
    (re.compile(r"(?<=[a-z])n't\b"), " not"),
    (re.compile(r"'"), ""),
    (re.compile(r"\bb/l\b"), "bilateral"),
    (re.compile(r"\br/o\b"), "rule out"),
    (re.compile(r"\bs/p\b"), "status post"),
    (re.compile(r"(?<=\w)[-\u2010](?=\w)"), " "),
    (re.compile(r"[\u2012-\u2015]|(?<![^ ])[-\u2010](?![^ ])"), f" {BREAK} "),
    (re.compile(r"[*#_>\"`\u201c\u201d-]"), " "),
)
_NUMBER: Final = re.compile(r"^\(?\d{1,2}[.)] ")
"""The number of a line of a list. A hyphen before a line is a mark of a list too, and ends no clause."""

_NUMBERS: Final = re.compile(r"[\[(][\d.+\-eE]++(?:[,;\s]++[\d.+\-eE]++)++[\])]")
_WORDS: Final = re.compile(r"[^\W\d_]+")
_LINE_ENDS: Final = re.compile(r"\r\n|[\n\r\v\f\x85\u2028\u2029]")


def plain_lines(text: str) -> list[str]:
    """The lines of an answer in lower case, wrapped ones joined, without marks of layout and brackets of numbers."""
    if not text.isascii():
        text = "".join(unicodedata.normalize("NFKC", text[at : at + _PIECE]) for at in range(0, len(text), _PIECE))
    text = _UNSEEN.sub("", _NUMBERS.sub(" ", text)).replace(BREAK, " ")
    lines: list[list[str]] = []
    last = ""
    for line in _LINE_ENDS.split(text):
        line = " ".join(line.split())
        if lines and len(last) >= _WRAPPED and last[-1] not in ".;:!?" and line[:1].islower():
            lines[-1].append(line)
        elif line:
            lines.append([line])
        last = line
    return [plain for parts in lines if (plain := _plain(" ".join(parts)))]


def _plain(line: str) -> str:
    line = line.lower()
    for pattern, put in _WRITTEN:
        line = pattern.sub(put, line)
    return _NUMBER.sub("", " ".join(line.split()).strip(f" {BREAK}"))


def language(lines: list[str]) -> str:
    """`EMPTY` without a letter, `FOREIGN` where the text is most likely not English, else ""."""
    letters = [letter for line in lines for letter in line if letter.isalpha()]
    if not letters:
        return EMPTY
    if sum(letter > _LATIN for letter in letters) >= _FOREIGN_LETTERS * len(letters):
        return FOREIGN
    stops = lexicon().lists["stop_words"]
    words = [word for line in lines for word in _WORDS.findall(line)]
    english, other = (sum(map(set(stops[name]).__contains__, words)) for name in ("english", "other"))
    few = other >= 1 and english == 0 and len(words) <= _SHORT
    return FOREIGN if few or (other >= 2 and other > english) else ""
