"""Plain lines -> the sentences that are read: sections, headings and questions (docs/words.md §2, steps 3 to 5)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from .lexicon import BREAK, DOUBT, Lexicon, lexicon
from .place_groups import names_places

ALL: Final = "all others"
"""What a phrase such as "normal chest" denies."""

_NAMES_OF_DENIED: Final = {
    "CLEARLUNGS": "lungs clear",
    "NORMALCM": "cardiomediastinal silhouette normal",
    "NORMALHEART": "heart normal",
    "CLEARCPA": "costophrenic angles clear",
}
_ORGANS: Final = ("lungs", "heart", "chest")
_SIDE_WORDS: Final = r"(?:the )?(?:left|right)(?: side| lung| hemithorax)?"
_COMPARED: Final = (
    r"(?:larger|greater|bigger|smaller|less|more|worse|worst)"
    r"(?: (?:prominent|pronounced|marked|severe|extensive|evident|dense|conspicuous))?"
)
_MORE_ON: Final = re.compile(
    rf"\b{_COMPARED} (?:on|in|at) {_SIDE_WORDS}(?: (?:than|compared (?:with|to)) (?:on |in |at )?{_SIDE_WORDS})?"
    rf"(?= ?(?:$|[,()\[\]{BREAK}]|and\b|with\b|but\b))"
)
_MORE_THAN: Final = re.compile(rf"\b(?:left|right)(?: side)? (?:is )?{_COMPARED} than (?:the )?(?:left|right)\b")
_OF_DENIED: Final = re.compile(
    rf"\b(?:(?:the|both|bilateral) )+(?= ?{BREAK})"
    rf"|(?<={BREAK} ) ?(?:bilaterally|throughout|on both sides|(?:in|on|within) (?:(?:the|both|either|left|right) )+"
    r"(?:lungs?|lung fields?|chest|thorax|hemithorax|sides?)\b)"
)
"""Words for sides of what a phrase denies: "both costophrenic angles are clear", "the lungs are clear bilaterally"."""

_DOUBT: Final = re.compile(r"(?:(?<=[ ,()\[\]])|^)\? ?(?=\w)")
_ENDS: Final = re.compile(r"[.;!?:]")


@dataclass
class Sentences:
    """The sentences of a text, without what denies; denied: findings, or `ALL`. answer: "yes", "no" or ""."""

    texts: list[str] = field(default_factory=list)
    denied: set[str] = field(default_factory=set)
    answer: str = ""


def read_sentences(lines: list[str]) -> Sentences:
    """The sentences of a text, in order."""
    known = lexicon()
    result = Sentences()
    for line in _sections(lines):
        line = _DOUBT.sub(DOUBT + " ", _patterns()[1].sub(lambda match: match[1], line))
        for sentence in _headed(_split(line), known):
            text = " ".join(sentence.split())
            if text and not result.texts and not result.answer:
                result.answer, text = _answer(text)
            if not text and not result.texts:
                continue
            result.texts.append(_without_denials(_without_comparisons(text), known, result.denied))
    return result


def _sections(lines: list[str]) -> list[str]:
    """The lines, without their headings and without what stands under those that are not read."""
    heading, not_read = _patterns()[0], set(lexicon().lists["sections"]["not_read"])
    kept: list[str] = []
    reads = True
    for line in lines:
        at = 0
        for match in heading.finditer(line):
            if reads:
                kept.append(line[at : match.start()])
            reads, at = match[1] not in not_read, match.end()
        if reads:
            kept.append(line[at:])
    return [line for line in kept if line.strip()]


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Headings of sections, questions, and words before a stop that ends no sentence."""
    lists = lexicon().lists
    names = sorted((*lists["sections"]["read"], *lists["sections"]["not_read"]), key=len, reverse=True)
    heading = re.compile(rf"(?:^|(?<=[.;])) ?({'|'.join(names)}) ?:")
    question = re.compile(rf"((?:^|(?<=[.;!?:])) ?)(?:{'|'.join(lists['question_words'])})\b(?:[^.;!?:]|\.(?=\d))*+\?")
    short = re.compile(rf"(?:^|(?<=\W))(?:{'|'.join(map(re.escape, lists['abbreviations']))})$")
    return heading, question, short


def _split(line: str) -> list[tuple[str, str]]:
    """(sentence, the mark that ends it) of a line."""
    short = _patterns()[2]
    found: list[tuple[str, str]] = []
    start = 0
    for match in _ENDS.finditer(line):
        at = match.start()
        if match[0] == ".":
            digits = line[max(at - 1, 0) : at].isdigit() and line[at + 1 : at + 2].isdigit()
            dotted = line[at - 1 : at].isalpha() and line[at + 1 : at + 3] in ("g.", "e.")
            if digits or dotted or short.search(line, max(start, at - 8), at):
                continue
        found.append((line[start:at], match[0]))
        start = at + 1
    return [*found, (line[start:], "")]


def _headed(sentences: list[tuple[str, str]], known: Lexicon) -> list[str]:
    """The sentences, a finding, an organ or a place before a colon joined with what stands behind it."""
    texts: list[str] = []
    before = ""
    for text, end in sentences:
        text = text.strip()
        texts += _joined(before, text, known) if before else [text]
        last = texts[-1]
        heads = end == ":" and (last in _ORGANS or _is_heading(last, known) or _is_place(last, known))
        before = texts.pop() if heads else ""
    return [*texts, before] if before else texts


def _joined(before: str, text: str, known: Lexicon) -> list[str]:
    """A heading and the sentence behind it, which are one if the sentence says it of the heading."""
    lists = known.lists
    first = text.split(" ", 1)[0].strip(",()")
    if before in _ORGANS:
        return [f"{before} is {text}"]
    if _is_place(before, known):
        if any(token.kind == "finding" for token in known.tokens(text)):
            return [before, text]
        if _names(text, known):
            return [text]
        clear = any(token.kind == "no_place_beside" for token in known.tokens(text))
        return [f"{before} is {text}"] if clear else [before, text]
    if not first:
        return [before, text]
    if _names(text, known):
        return [text]
    if first in lists["says_absent"]:
        return [f"no {before}"]
    return [before + (text.removeprefix(first) if first in lists["says_present"] else f" {text}")]


def _is_heading(text: str, known: Lexicon) -> bool:
    kinds = [token.kind for token in known.tokens(text)]
    return kinds.count("finding") == 1 and set(kinds) <= {"finding", "size"}


def _is_place(text: str, known: Lexicon) -> bool:
    """Whether a heading names places and says nothing of them: "left lung", "mediastinum"."""
    tokens = known.tokens(text)
    return names_places(tokens) and all(token.kind not in ("finding", "no_place_beside") for token in tokens)


def _names(text: str, known: Lexicon) -> bool:
    return any(token.kind == "finding" for token in known.tokens(text)) or any(
        pattern.search(text) for _, pattern in known.denials
    )


def _answer(text: str) -> tuple[str, str]:
    """A leading yes or no, and the text without it. "No effusion" is no answer."""
    match = re.match(rf"(?:(yes)\b|(no) ?(?=[,{BREAK}]|$)) ?[,{BREAK}]? ?", text)
    return (match[1] or match[2], text[match.end() :]) if match else ("", text)


def _without_comparisons(text: str) -> str:
    return _MORE_THAN.sub("bilateral", _MORE_ON.sub(" ", text))


def _without_denials(text: str, known: Lexicon, denied: set[str]) -> str:
    for name, pattern in known.denials:
        text, count = pattern.subn(f" {BREAK} ", text)
        if count:
            denied.update(known.lists["denied_by"][_NAMES_OF_DENIED[name]] if name in _NAMES_OF_DENIED else [ALL])
            text = _OF_DENIED.sub("", text)
    return text
