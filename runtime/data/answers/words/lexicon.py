"""The words that the grammar knows, `terms.json`, and the words of a sentence (docs/words.md §2)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

BREAK: Final = "\x02"
"""A character that ends a clause."""

DOUBT: Final = "\x03"
"""A question mark before a word: "? nodule"."""

_LISTS: Final = (
    "side", "noun", "image_side", "level", "zone_code", "place", "whole", "part_of_side", "negation_before",
    "negation_after", "or", "uncertain_before", "uncertain_after", "no_negation", "not_a_statement", "break", "and",
    "with", "to", "present", "preposition", "filler", "size", "no_place_beside",
)  # fmt: skip
_MARKS: Final = {
    ",": "comma", "(": "comma", ")": "comma", "[": "comma", "]": "comma", "{": "comma", "}": "comma", "/": "comma",
    BREAK: "break",
}  # fmt: skip
_WORDS: Final = re.compile(rf"\w+|[,()\[\]{{}}/&{BREAK}{DOUBT}]")


class Token(NamedTuple):
    """A term of the lexicon, a mark, or a word that it does not have.

    kind: a list of `terms.json`, "comma", or "word". value: what the list says of it, e.g. a finding.
    """

    kind: str
    value: Any
    text: str


class Lexicon:
    """The lists of `terms.json`; `lists` has them as they are written."""

    def __init__(self, lists: Mapping[str, Any]) -> None:
        self.lists = lists
        self._terms: dict[tuple[str, ...], Token] = {}
        for finding, texts in lists["finding"].items():
            for text in texts:
                self._add("finding", finding, text)
        for name in _LISTS:
            for text in lists[name]:
                self._add(name, lists[name][text] if isinstance(lists[name], dict) else text, text)
        self._longest: dict[str, int] = {}
        for words in self._terms:
            self._longest[words[0]] = max(len(words), self._longest.get(words[0], 0))
        self.denials = [
            (name, re.compile(rf"(?:{pattern})(?!(?<=clear) of\b)"))  # "clear of consolidation" denies that alone
            for name, pattern in lists["denied_by_patterns"].items()
        ]
        self.parent_of = {child: parent for parent, children in lists["parents"].items() for child in children}

    def _add(self, kind: str, value: Any, text: str) -> None:
        words = (DOUBT,) if text == "?" else tuple(text.split())
        self._terms.setdefault(words, Token(kind, value, text))

    def tokens(self, sentence: str) -> list[Token]:
        """The longest terms of a sentence in lower case, from left to right."""
        words = _WORDS.findall(sentence)
        found: list[Token] = []
        at, end = 0, len(words)
        while at < end:
            word = words[at]
            for length in range(min(self._longest.get(word, 0), end - at), 0, -1):
                if term := self._terms.get(tuple(words[at : at + length])):
                    found.append(term)
                    at += length
                    break
            else:
                found.append(Token(_MARKS.get(word, "word"), None, word))
                at += 1
        return found


@lru_cache(maxsize=1)
def lexicon() -> Lexicon:
    """The lexicon of the project; read once."""
    return Lexicon(json.loads(files(__package__).joinpath("terms.json").read_text(encoding="utf-8")))
