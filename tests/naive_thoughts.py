"""A slow second reader of the answer in a text, written from docs/boxes.md without code of the project.

Only tags of one word in `<>` or `<||>`, with a name space or without, and MedGemma's are known here.
"""

from __future__ import annotations

BLANK = " \t\n\r\v\f"
THOUGHTS = (
    "think", "thinking", "thought", "thoughts", "reason", "reasoning", "reflect", "reflection", "analysis", "rationale",
)  # fmt: skip
ANSWERS = ("answer", "final", "finalanswer", "final_answer", "response", "solution")
Event = tuple[int, int, bool, str]


def naive_answer(text: str) -> str:
    """The answer in a text."""
    outside, open_ = [""], list[str]()
    last = 0
    for start, end, opens, name in [*_events(text, THOUGHTS), (len(text), len(text), False, "")]:
        if not open_:
            outside[-1] += text[last:start]
        last = end
        if opens:
            open_.append(name)
        elif name in open_:
            open_ = open_[: open_.index(name)]
            if not open_:
                outside.append("")
        elif name:
            outside, open_ = (["".join(outside), ""] if len(outside) > 1 else ["", ""]), []
    answer, before = outside[-1], "".join(outside[:-1])
    if not answer.strip():
        answer = _inside(before) or answer
    inside = _inside(answer)
    return answer if inside is None else inside


def _inside(text: str) -> str | None:
    """What the last answer tag holds."""
    events = _events(text, ANSWERS)
    openings = [end for _, end, opens, _ in events if opens]
    closings = [start for start, _, opens, _ in events if not opens and start >= (openings or [0])[-1]]
    if not openings and not closings:
        return None
    if openings and not closings and not _has_box(text[openings[-1] :]):
        begin = next(start for start, end, opens, _ in events if opens and end == openings[-1])
        if any(not opens for *_, opens, _ in events):
            return _inside(text[:begin])
    return text[(openings or [0])[-1] : closings[0] if closings else len(text)]


def _has_box(text: str) -> bool:
    """Whether there is a bracket with four numbers, two brackets with two, four places of PaliGemma, or the end of a
    box."""
    low = text.lower()
    if any(tag in low for tag in ("</box>", "<|box_end|>", "<|/box|>")):
        return True
    for start, sign in enumerate(text):
        inner, bracket, rest = text[start + 1 :].partition("]" if sign == "[" else ")")
        if sign == "[" and bracket and len(inner.split(",")) == 4 and all(map(_is_digits, inner.split(","))):
            return True
        second = rest.lstrip(BLANK).removeprefix(",").lstrip(BLANK)
        two = second[1:].partition(")")
        pairs = [inner.split(","), two[0].split(",")]
        if (
            sign == "("
            and second.startswith("(")
            and two[1]
            and all(len(pair) == 2 and all(map(_is_digits, pair)) for pair in pairs)
        ):
            return True
        places, found = low[start:], 0
        while places.startswith("<loc"):
            number, close, after = places[4:].removeprefix("_").partition(">")
            if not (close and number.isascii() and number.isdigit()):
                break
            places, found = after.lstrip(BLANK), found + 1
        if found >= 4:
            return True
    return False


def _is_digits(text: str) -> bool:
    inner = text.strip(BLANK)
    inner = inner[1:] if inner[:1] in ("-", "+") else inner
    return bool(inner) and not set(inner) - set("0123456789.")


def _events(text: str, names: tuple[str, ...]) -> list[Event]:
    quoted = _quoted(text)
    found = [event for start in range(len(text)) if not quoted[start] and (event := _tag(text, start, names))]
    return [event for place, event in enumerate(found) if place == 0 or event[0] >= found[place - 1][1]]


def _tag(text: str, start: int, names: tuple[str, ...]) -> Event | None:
    for tag, opens in (("<unused94>", True), ("<unused95>", False)):
        if names is THOUGHTS and text[start : start + len(tag)].lower() == tag:
            return start, start + len(tag), opens, "unused"
    if text[start] != "<":
        return None
    end = text.find(">", start)
    if end < 0:
        return None
    inner = text[start + 1 : end].removeprefix("|").strip(BLANK).removesuffix("|").rstrip(BLANK)
    opens = not inner.startswith("/")
    name = inner.removeprefix("/").lstrip(BLANK).lower()
    space, colon, rest = name.partition(":")
    name = rest if colon and space.isalpha() else name
    return (start, end + 1, opens, name) if name in names else None


def _quoted(text: str) -> list[bool]:
    """Whether each place lies in a JSON string: quotes after one of [{:, and before one of ,:]} in one line."""
    found, place = [False] * len(text), 0
    while place < len(text):
        first = place + 1
        while text[place] in ":[,{" and first < len(text) and text[first] in BLANK:
            first += 1
        if text[place] in ":[,{" and first < len(text) and text[first] in "\"'":
            last = first + 1
            while last < len(text) and text[last] not in (text[first], "\n"):
                last += 2 if text[last] == "\\" and text[last + 1 : last + 2] not in ("", "\n") else 1
                if text[last - 1 : last] == "\\":
                    break
            if text[last : last + 1] == text[first] and text[last + 1 :].lstrip(BLANK)[:1] in tuple(",:}]"):
                found[first + 1 : last] = [True] * (last - first - 1)
                place = last
        place += 1
    return found
