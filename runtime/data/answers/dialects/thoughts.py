"""The part of a text that is the answer: thoughts are left out, and answer tags are followed (docs/boxes.md §4).

Tags in a JSON string, as in `"label": "<think>"`, are words of the answer.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

Tags = tuple[tuple[str, str], ...]
"""Opening and closing tags of thoughts, added to the known ones."""

FINAL_ANSWER: Final = re.compile(r"final[ _]answer\s{0,4}\*{0,2}\s{0,4}:", re.IGNORECASE)
"""What MedGemma 1.5 is asked to write before its answer."""

_NAMES: Final = (
    "think(?:ing)?|thoughts?|reason(?:ing)?|reflect(?:ion)?|analysis|rationale|scratch_?pad|cot|chain_of_thought|"
    "longcat_think|ant_?thinking|inner_monologue"
)
_HEADINGS: Final = "think(?:ing)?|thought"
"""Names in square brackets, which are also headings that nothing closes."""

_ANSWERS: Final = "answer|final|final_?answer|response|solution"
_HINTS: Final = (
    "think", "thought", "reason", "reflect", "analysis", "rationale", "scratch", "cot", "monologue", "<unused9",
    "<|inner_", "<|channel>", "<channel|>", "here is my ", "## final response",
)  # fmt: skip
_ANSWER_HINTS: Final = ("answer", "final", "response", "solution")
"""Pieces of all tags in lower case: without one of them no pattern is searched, which costs 0.5 s a million letters."""

_FLAGS: Final = re.IGNORECASE | re.ASCII
_PAIRS: Final = (
    # MedGemma 1.5, OpenThinker, Command A, Apertus, Gemma 4, Kimi K3 and Granite, as parsers of servers have them.
    ("<unused94>", "<unused95>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|channel>", "<channel|>"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    ("Here is my thought process:", "Here is my response:"),
    ("<|begin_of_thinking|>", "<|end_of_thinking|>"),
    ("<|think_start|>", "<|think_end|>"),
    ("<|begin_think|>", "<|end_think|>"),
    ("&lt;think&gt;", "&lt;/think&gt;"),
    ("## Thinking", "## Final Response"),
)
_ANSWER_PAIRS: Final = (
    ("<|begin_of_solution|>", "<|end_of_solution|>"),
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
)
_STRING: Final = re.compile(r"""[:\[,{]\s*+(["'])((?:(?!\1)[^\\\n]|\\.)*+)\1(?=\s*+[,:}\]])""", re.ASCII)
_CHANNEL: Final = re.compile(
    r"<\|channel\|>\s*+([a-z]*+)[^<]{0,80}+(?:<\|constrain\|>[^<]{0,80}+)?<\|message\|>", re.ASCII
)
_END_OF_MESSAGE: Final = re.compile(r"<\|(?:end|return|call|start|channel)\|>")
_BARE_FINAL: Final = "assistantfinal"
_BARE_ANALYSIS: Final = re.compile(r"\s*+(?:analysis|commentary)(?=\w)", re.ASCII)
_WRAPPERS: Final = (
    "ref", "box", "obj", "object", "phrase", "quad", "polygon", "point", "p", "b", "i", "u", "s", "em", "strong", "li",
    "ul", "ol", "br", "code", "pre", "span", "div", "table", "td", "th", "tr", "h1", "h2", "h3", "grounding", "det",
    "json", "caption", "label", "loc",
)  # fmt: skip
"""Tags of dialects and of HTML, which hold boxes and no thoughts."""

_CLOSING: Final = re.compile(r"(<\|?|\[|◁)\s*/\s*([a-z][\w:.-]{0,40})\s*(?:\|?>|\]|▷)", _FLAGS)
_TRACE: Final = re.compile(r"[\[(]\s*[-+]?[\d.]+\s*,\s*[-+]?[\d.]+|<loc|<box|<\|box|<patch_index", re.IGNORECASE)
_SUSPECTS: Final = 8  # unknown closing tags of an answer that are looked at, the first ones
_DIGITS: Final = r"\s*+[-+]?[\d.]++\s*+"
_COMPLETE: Final = re.compile(
    rf"\[{_DIGITS}(?:,{_DIGITS}){{3}}\]|\({_DIGITS},{_DIGITS}\)\s*+,?\s*+\({_DIGITS},{_DIGITS}\)"
    r"|(?:<loc_?\d++>\s*+){4}|</box>|<\|(?:box_end|/box)\|>",
    re.IGNORECASE | re.ASCII,
)
"""A whole box of the common dialects."""

_END_TOKENS: Final = re.compile(r"(?:\s|</s>|<eos>|<end_of_turn>|<\|[a-z_]{1,40}\|>)*+\Z", _FLAGS)
"""What `skip_special_tokens=False` leaves at the end of a text."""


class _Tag(NamedTuple):
    name: str
    opens: bool
    start: int
    end: int


def answer_part(text: str, more: Tags = ()) -> tuple[str, bool]:
    """The answer in a text, and whether the text ends inside a thought, which is left out too.

    The text before the last closing tag of a thought is left out. more: further tags of thoughts.
    """
    text, cut = _final_channel(text)
    begin, since, before = 0, len(text), ""
    kinds = list[str]()
    for tag in _tags(text, _thought_tags(more), (*_HINTS, *(tag.lower() for pair in more for tag in pair))):
        if tag.opens:
            since = since if kinds else tag.start
            kinds.append(tag.name)
        elif tag.name not in kinds:  # a server left the opening tag out, or another one opened the thought
            before = before + text[begin : since if kinds else tag.start] if begin else ""
            begin, since = tag.end, len(text)
            kinds.clear()
        else:  # an opening tag that is written twice needs one closing tag
            del kinds[kinds.index(tag.name) :]
            if not kinds:
                before += text[begin:since]
                begin, since = tag.end, len(text)
    rest = text[begin:since]
    if not rest.strip():  # thoughts after the answer
        rest = _tagged_answer(before) or rest
    if kinds and (last := _tagged_answer(text[since:], at_end=True)) is not None:
        return last, cut
    answer = _tagged_answer(rest)
    return rest if answer is None else answer, cut or bool(kinds)


def after_last(pattern: re.Pattern[str], text: str) -> str:
    """What follows the last match outside JSON strings; the whole text without one."""
    end = 0
    for match in outside_strings(pattern, text):
        end = match.end()
    return text[end:]


def tag_of_boxes(answer: str) -> str:
    """A closing tag of unknown meaning with traces of boxes both before it and after it, such as `</plan>`; else ""."""
    closing: dict[str, re.Match[str]] = {}
    for match in _CLOSING.finditer(answer):
        if (name := match[2].casefold()) not in _WRAPPERS:
            closing.setdefault(name, match)
    for name, match in list(closing.items())[:_SUSPECTS]:
        opening = re.search(rf"{re.escape(match[1])}\s*{re.escape(name)}\b", answer[: match.start()], _FLAGS)
        inside = answer[opening.end() if opening else 0 : match.start()]
        if _TRACE.search(inside) and _TRACE.search(answer, match.end()):
            return match[0]
    return ""


def _final_channel(text: str) -> tuple[str, bool]:
    """The last message of the channel `final` of OpenAI's harmony format, and whether there is none yet.

    Without its special tokens the format leaves `analysis...assistantfinal...`.
    """
    if "<|channel|>" in text:
        headers = list(_CHANNEL.finditer(text))
        final = [match.end() for match in headers if match[1] == "final"]
        if not final:
            return "", True
        end = _END_OF_MESSAGE.search(text, final[-1])
        return text[final[-1] : end.start() if end else len(text)], False
    position = text.rfind(_BARE_FINAL)
    if position >= 0:
        return text[position + len(_BARE_FINAL) :], False
    return ("", True) if _BARE_ANALYSIS.match(text) else (text, False)


def _tagged_answer(text: str, *, at_end: bool = False) -> str | None:
    """What the last answer tag holds; None without one. at_end: only if the text ends with its closing tag.

    An answer without its closing tag reaches to the end, one without its opening tag from the beginning. After a closed
    answer an unclosed one counts only if it holds a whole box: models mention the tag, and repeat it until their limit.
    """
    opened: int | None = None
    answer: str | None = None
    ends = False
    for tag in _tags(text, _answer_tags(), _ANSWER_HINTS):
        if tag.opens:
            opened, ends = tag.end, False
        elif opened is not None or answer is None:
            answer = text[opened or 0 : tag.start]
            opened, ends = None, _END_TOKENS.match(text, tag.end) is not None
    if opened is not None and (answer is None or _COMPLETE.search(text, opened)):
        answer = text[opened:]
    return answer if ends or not at_end else None


def _tags(text: str, pattern: re.Pattern[str], hints: Iterable[str]) -> Iterator[_Tag]:
    lower = text.lower()
    if not any(hint in lower for hint in hints):
        return
    for match in outside_strings(pattern, text):
        group = match.lastgroup or ""
        if group.startswith("name"):
            tag_name, opens = match[group].casefold(), not match[group.replace("name", "slash")]
        else:
            tag_name, opens = group.removeprefix("open").removeprefix("close"), group.startswith("open")
        yield _Tag(tag_name, opens, match.start(), match.end())


@lru_cache(maxsize=16)
def _thought_tags(more: Tags) -> re.Pattern[str]:
    return _tag_pattern((*more, *_PAIRS), _NAMES, _HEADINGS)


@lru_cache(maxsize=1)
def _answer_tags() -> re.Pattern[str]:
    return _tag_pattern(_ANSWER_PAIRS, _ANSWERS, _ANSWERS)


def _tag_pattern(pairs: Tags, names: str, headings: str) -> re.Pattern[str]:
    """Tags as they are written, and names in brackets of four kinds, with or without a name space or attributes."""
    written = [
        rf"(?P<open{number}>{re.escape(start)})|(?P<close{number}>{re.escape(end)})"
        for number, (start, end) in enumerate(pairs)
    ]
    attribute = r"(?:\s++[a-z]++\s*+=[^<>]{0,200}+)?"
    named = rf"(?:<\|?|◁)\s*+(?P<slash1>/?)\s*+(?:[a-z]++:)?(?P<name1>{names}){attribute}\s*+(?:\|?>|▷)"
    return re.compile("|".join([*written, named, rf"\[(?P<slash2>/?)(?P<name2>{headings})\]"]), _FLAGS)


def outside_strings(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """The matches that do not lie in a JSON string."""
    matches = list(pattern.finditer(text))
    spans = [match.span(2) for match in _STRING.finditer(text)] if matches else []
    starts = [start for start, _ in spans]
    for match in matches:
        index = bisect_right(starts, match.start()) - 1
        if index < 0 or match.start() >= spans[index][1]:
            yield match


def without_strings(text: str) -> str:
    """The text with its JSON strings empty."""
    return _STRING.sub(lambda match: match[0].replace(match[2], "") if match[2] else match[0], text)
