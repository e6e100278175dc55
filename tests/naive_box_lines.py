"""A slow second reader of one line of a file of boxes, written from docs/boxes.md without any code of the project.

Texts are walked with str.find and str.split, numbers are fractions. `None` is a line that must stop; else the pair, the
kept boxes, and how many were dropped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from naive_thoughts import _quoted, naive_answer

Box = tuple[Fraction, Fraction, Fraction, Fraction]
PROVENANCE = {"model", "prompt", "commit", "dataset", "created", "seed", "attempts", "temperature", "note"}
SETTINGS = {"dialect", "frame", "order", "size", "view", "key", "thoughts"}
FRAMES = ("pixels", "unit", "percent", "permille", "999", "resized", "crop", "pad")
DIGITS, BLANK = set("0123456789"), " \t\n\r\v\f"


class Stop(Exception):
    """The line must stop."""


def need(fine: bool) -> None:
    if not fine:
        raise Stop


def naive(raw: bytes, header: dict[str, Any], labels: dict[str, dict[str, Any]], size: tuple[int, int]) -> Any:
    """(case, finding, boxes, dropped) of a line, or None. labels: case -> finding -> label; size: width and height."""
    try:
        return _read(raw, header, labels, size)
    except Stop:
        return None


def _read(raw: bytes, header: dict[str, Any], labels: dict[str, dict[str, Any]], size: tuple[int, int]) -> Any:
    try:
        line = json.loads(raw.strip().decode(), object_pairs_hook=_once)
    except (ValueError, RecursionError):
        raise Stop from None
    need(isinstance(line, dict))
    need(set(line) <= PROVENANCE | SETTINGS | {"case", "finding", "boxes", "text", "scores"})
    for key in PROVENANCE & set(line):
        need(_finite(line[key]))
    need(line.get("dataset", "small") is not None and str(line.get("dataset", "small")).strip().lower() == "small")
    given = {**header, **line}
    need(given.get("dialect", "json") in PARSERS and isinstance(given.get("dialect", ""), str))
    need(given.get("frame", "pixels") in FRAMES and given.get("order", "xyxy") in ("xyxy", "yxyx", "xywh", "cxcywh"))
    key = given.get("key", "bbox_2d")
    need(isinstance(key, str) and 0 < len(key) <= 80)
    for name in {"size", "view"} & set(line):
        need(_sides(line[name]) or (name == "view" and _budget(line[name])))
    case, finding = line.get("case"), line.get("finding")
    need(isinstance(case, str) and isinstance(finding, str))
    case = case[:-4] if case not in labels and case.endswith(".png") else case
    need(case in labels and finding in labels[case])
    need("size" not in line or line["size"] == list(size))
    need(("boxes" in line) != ("text" in line))
    dropped = 0
    if "boxes" in line:
        need("frame" in given and isinstance(line["boxes"], list))
        frame, view = given["frame"], given.get("view")
        found = [_ordered(_four(box), given.get("order", "xyxy")) for box in line["boxes"]]
        if "scores" in line:
            need(isinstance(line["scores"], list) and len(line["scores"]) == len(found))
            [_number(value) for value in line["scores"]]
        need(frame != "unit" or all(max(box) <= Fraction(3, 2) for box in found))
    else:
        need(isinstance(line["text"], str) and "dialect" in given and "scores" not in line)
        dialect = given["dialect"]
        frame, view, parse = PARSERS[dialect]
        need(not frame or "frame" not in line or line["frame"] == frame)
        need(bool(frame) or "frame" in given)
        frame, view = frame or given["frame"], view or given.get("view")
        text = naive_answer(line["text"])
        every = list(parse(text, key, given.get("order", "xyxy")))
        found = [box for box in every if box is not None and box[0] < box[2] and box[1] < box[3]]
        dropped = len(every) - len(found)
        need(frame != "unit" or dialect != "json" or not found or any(max(box) <= Fraction(3, 2) for box in found))
    need(frame not in ("resized", "crop", "pad") or view is not None)
    need(not isinstance(view, dict) or frame not in ("crop", "pad"))
    own = "boxes" in line or given["dialect"] == "json"
    need(frame != "pixels" or not own or not found or max(map(max, found)) > 1)
    boxes = []
    for box in found:
        placed = _placed(box, frame, view, size)
        if "text" in line and given["dialect"] == "maira2":
            # Truncated as the model's own code does it, in binary numbers: 0.575 * 800 is below 460 there.
            shift = [(length - min(size)) // 2 for length in size]
            placed = [Fraction(int(float(value) * min(size) + shift[place % 2])) for place, value in enumerate(box)]
        x1, y1, x2, y2 = placed
        if float(x1) < float(x2) and float(y1) < float(y2) and x2 > 0 and y2 > 0 and x1 < size[0] and y1 < size[1]:
            boxes.append([float(v) for v in (max(x1, 0), max(y1, 0), min(x2, size[0]), min(y2, size[1]))])
        else:
            dropped += 1
    return case, finding, boxes, dropped


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    need(len({key for key, _ in pairs}) == len(pairs))
    return dict(pairs)


def _finite(value: Any) -> bool:
    if isinstance(value, dict | list):
        return all(map(_finite, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)


def _number(value: Any) -> Fraction:
    need(type(value) in (int, float))
    try:
        need(math.isfinite(float(value)))
    except OverflowError:
        raise Stop from None
    return Fraction(value)


def _four(box: Any) -> Box:
    need(isinstance(box, list) and len(box) == 4)
    a, b, c, d = map(_number, box)
    return a, b, c, d


def _sides(value: Any) -> bool:
    whole = isinstance(value, list) and len(value) == 2 and all(type(side) is int for side in value)
    return whole and all(1 <= side <= 1 << 20 for side in value)


def _budget(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) - {"factor"} != {"min_pixels", "max_pixels"}:
        return False
    fine = all(type(each) is int and 1 <= each <= 1 << 40 for each in value.values())
    return fine and bool(value["min_pixels"] <= value["max_pixels"])


def _ordered(box: Box, order: str) -> Box:
    a, b, c, d = box
    return {
        "xyxy": (a, b, c, d),
        "yxyx": (b, a, d, c),
        "xywh": (a, b, a + c, b + d),
        "cxcywh": (a - c / 2, b - d / 2, a + c / 2, b + d / 2),
    }[order]


def _placed(box: Box, frame: str, view: Any, size: tuple[int, int]) -> list[Fraction]:
    if frame == "pixels":
        return list(box)
    if frame in ("unit", "percent", "permille", "999"):
        parts = {"unit": 1, "percent": 100, "permille": 1000, "999": 999}[frame]
        return [value * size[place % 2] / parts for place, value in enumerate(box)]
    if frame == "resized":
        if isinstance(view, dict):
            view = _qwen(view, size)
        return [value * size[place % 2] / view[place % 2] for place, value in enumerate(box)]
    side = min(size) if frame == "crop" else max(size)
    shift = [(length - side) // 2 if frame == "crop" else -((side - length) // 2) for length in size]
    return [value * side / view[place % 2] + shift[place % 2] for place, value in enumerate(box)]


def _qwen(view: dict[str, int], size: tuple[int, int]) -> list[int]:
    need(max(size) <= 200 * min(size))
    part = view.get("factor", 28)
    sides = [max(part, part * round(Fraction(length, part))) for length in size]
    ratio = Fraction(size[0] * size[1], view["max_pixels"])
    if sides[0] * sides[1] > view["max_pixels"]:
        sides = [max(part, part * math.floor(length / math.sqrt(ratio) / part)) for length in size]
    elif sides[0] * sides[1] < view["min_pixels"]:
        grow = math.sqrt(view["min_pixels"] / (size[0] * size[1]))
        sides = [part * math.ceil(length * grow / part) for length in size]
    return sides


def _decimal(word: str, *, sign: bool = True, point: bool = True, power: bool = False) -> Fraction | None:
    """A number in a text, None if it is none."""
    word = word.strip(BLANK)
    body = word[1:] if sign and word[:1] in ("+", "-") else word
    base, mark, exponent = body.lower().partition("e") if power else (body, "", "")
    if mark and not (0 < len(exponent.lstrip("+-")) <= 3 and set(exponent.lstrip("+-")) <= DIGITS):
        return None
    if mark and len(exponent) - len(exponent.lstrip("+-")) > 1:
        return None
    before, dot, after = base.partition(".")
    if (
        not set(before + after) <= DIGITS
        or not before + after
        or max(len(before), len(after)) > 40
        or (dot and not point)
    ):
        return None
    if dot and not before and not after:
        return None
    try:
        return Fraction(word.rstrip(".") if not mark else word)
    except ValueError:
        return Fraction(float(word))


def _group(inner: str, **rule: Any) -> Box | None:
    """Four numbers between commas."""
    numbers = [_decimal(word, **rule) for word in inner.split(",")]
    if len(numbers) != 4 or None in numbers:
        return None
    a, b, c, d = numbers
    return a, b, c, d  # type: ignore[return-value]


def _radvlm(text: str, key: str, order: str) -> Iterator[Box | None]:
    for piece in text.split("[")[1:]:
        box = _group(piece.partition("]")[0], sign=False) if "]" in piece else None
        if box is not None:
            yield box if max(box) <= 1 else None


def _tags(*pairs: tuple[str, str], most: int, **rule: Any) -> Callable[[str, str, str], Iterator[Box | None]]:
    def parse(text: str, key: str, order: str) -> Iterator[Box | None]:
        if not any(tag in text for pair in pairs for tag in pair):
            yield from _bare(text, most, rule)
        for start, end in pairs:
            for piece in text.split(start)[1:]:
                inner, close, _ = piece.partition(end)
                chain = _chain(inner.strip(BLANK), 0, rule)
                if close and chain and len(chain) % 2 == 0 and chain[-1][0] == len(inner.strip(BLANK)):
                    yield from _paired(chain, most)

    return parse


def _bare(text: str, most: int, rule: dict[str, Any]) -> Iterator[Box | None]:
    """Corners without tags: an even number in a row, or an odd number of which the last is cut off."""
    place = 0
    while place < len(text):
        chain = _chain(text, place, rule)
        if not chain:
            place += 1
            continue
        place = chain[-1][0]
        rest = text[place:].strip(BLANK)
        rest = rest.removeprefix(",").lstrip(BLANK)
        cut = not rest or (rest[0] == "(" and set(rest[1:]) <= DIGITS | set(".,+-" + BLANK))
        if len(chain) % 2 == 0 or cut:
            yield from _paired(chain, most)


def _paired(chain: list[tuple[int, Fraction, Fraction]], most: int) -> Iterator[Box | None]:
    for (_, a, b), (_, c, d) in zip(chain[::2], chain[1::2], strict=False):
        yield (a, b, c, d) if min(a, b, c, d) >= 0 and max(a, b, c, d) <= most else None


def _chain(text: str, place: int, rule: dict[str, Any]) -> list[tuple[int, Fraction, Fraction]]:
    """(end, x, y) of the corners in brackets that begin here and follow one another."""
    chain: list[tuple[int, Fraction, Fraction]] = []
    while text.startswith("(", place) and ")" in text[place:]:
        close = text.index(")", place)
        x, comma, y = text[place + 1 : close].partition(",")
        left, right = _decimal(x, **rule), _decimal(y, **rule)
        if not comma or left is None or right is None:
            break
        chain.append((close + 1, left, right))
        rest = text[close + 1 :].lstrip(BLANK)
        if rest.startswith(","):
            rest = rest[1:].lstrip(BLANK)
        elif len(chain) % 2:
            break
        place = len(text) - len(rest)
    return chain


def _maira2(text: str, key: str, order: str) -> Iterator[Box | None]:
    for piece in text.split("<box>")[1:]:
        words = [word.strip(BLANK) for word in piece.partition("</box>")[0].split("<")]
        bins = [_whole(word[1:-1]) for word in words[1:] if word.endswith(">")]
        named = [word[:1] for word in words[1:]] == ["x", "y", "x", "y"] and not words[0] and "</box>" in piece
        if named and len(bins) == 4 and None not in bins:
            a, b, c, d = ((Fraction(value) + Fraction(1, 2)) / 100 for value in bins)  # type: ignore[arg-type]
            yield (a, b, c, d) if max(bins) <= 99 else None  # type: ignore[type-var, operator]


def _whole(word: str) -> int | None:
    return int(word) if word and set(word) <= DIGITS and len(word) <= 40 else None


def _runs(text: str, mark: str, width: int | None) -> Iterator[list[int]]:
    """Groups of four tokens `mark`N> that follow one another."""
    run: list[int] = []
    rest = text
    while rest:
        rest = rest.lstrip(BLANK + "\x1c\x1d\x1e\x1f\x85\xa0") if run else rest
        value = _whole(rest[len(mark) :].partition(">")[0]) if rest.startswith(mark) and ">" in rest else None
        if value is None or (width and rest.find(">") - len(mark) != width):
            run, rest = [], rest[1:]
            continue
        run.append(value)
        rest = rest.partition(">")[2]
        if len(run) == 4:
            yield run
            run = []


def _florence2(text: str, key: str, order: str) -> Iterator[Box | None]:
    for run in _runs(text, "<loc_", None):
        a, b, c, d = ((Fraction(value) + Fraction(1, 2)) / 1000 for value in run)
        yield (a, b, c, d) if max(run) <= 999 else None


def _paligemma(parts: int) -> Callable[[str, str, str], Iterator[Box | None]]:
    def parse(text: str, key: str, order: str) -> Iterator[Box | None]:
        for run in _runs(text, "<loc", 4):
            b, a, d, c = (Fraction(value, parts) for value in run)
            yield (a, b, c, d) if max(run) <= 1023 else None

    return parse


def _kosmos2(text: str, key: str, order: str) -> Iterator[Box | None]:
    mark, after = "<patch_index_", "</delimiter_of_multi_objects/>"
    for piece in text.split("<object>")[1:]:
        inner, close, _ = piece.partition("</object>")
        parts = inner.split(after)
        for place, part in enumerate(parts):
            words = part.strip(BLANK).split(mark)
            cells = [
                _whole(word.rstrip(BLANK)[:-1]) if word.rstrip(BLANK).endswith(">") else None for word in words[1:]
            ]
            sized = all(len(word.rstrip(BLANK)) == 5 for word in words[1:])
            if words[0] or len(cells) != 2 or None in cells or not sized or (place == len(parts) - 1 and not close):
                break
            (top, left), (bottom, right) = (divmod(cell or 0, 32) for cell in cells)
            edge = Fraction(0) if top == bottom or left == right else Fraction(1, 2)
            box = (left + edge) / 32, (top + edge) / 32, (right + 1 - edge) / 32, (bottom + 1 - edge) / 32
            legal = max(cell or 0 for cell in cells) < 1024 and left <= right and top <= bottom
            yield box if legal else None


def _keyed(name: str, order: str, most: int | None) -> Callable[[str, str, str], Iterator[Box | None]]:
    def parse(text: str, key: str, given: str) -> Iterator[Box | None]:
        if name == "box_2d":  # MedGemma 1.5
            quoted = _quoted(text)
            ends = (end for end in range(1, len(text) + 1) if not quoted[end - 1] and _is_final_answer(text[:end]))
            text = text[max(ends, default=0) :]
        for own, box, _ in _lists(text):
            if own == name:
                legal = box is not None and (most is None or (min(box) >= 0 and max(box) <= most))
                yield _ordered(box, order) if box is not None and legal else None

    return parse


def _is_final_answer(before: str) -> bool:
    return before.lower().endswith(("final answer:", "final answer:**", "final answer**:"))


def _any_json(text: str, key: str, order: str) -> Iterator[Box | None]:
    """The boxes under the key; without it and any other, every list of four numbers that is in no string and under no
    malformed key, alone or in a list."""
    found = list(_lists(text))
    keyed = [box for own, box, _ in found if own == key]
    if not keyed and not _has_key(text, key):
        quoted = _quoted(text)
        free = [(own, box, place) for own, box, place in found if not quoted[place]]
        if not any(own for own, _, _ in free):
            keyed = [box for _, box, place in free if not _after_key(text[max(0, place - 400) : place])]
    for box in keyed:
        yield None if box is None else _ordered(box, order)


def _has_key(text: str, key: str) -> bool:
    parts = [rest for quote in "\"'" for rest in text.split(f"{quote}{key}{quote}")[1:]]
    return any(rest.lstrip(BLANK).startswith(":") for rest in parts)


def _after_key(before: str) -> bool:
    """Whether a colon ends the text, after a quote or in an open object."""
    stem = before.rstrip(BLANK)
    in_object = before.rfind("{") > before.rfind("}")
    return stem.endswith(":") and (in_object or stem[:-1].rstrip(BLANK).endswith(("'", '"')))


def _lists(text: str) -> Iterator[tuple[str | None, Box | None, int]]:
    """(the key before it, box, where it begins) of every list of four numbers, and of each list of lists that has one.

    In a list of lists, another list that is not empty gives None.
    """
    place = 0
    while place < len(text):
        if text[place] != "[":
            place += 1
            continue
        members = _members(text, place)
        end, inner = members[-1] if members else (text.find("]", place) + 1, text[place + 1 :].partition("]")[0])
        every = [each for _, each in members] if members else [inner]
        boxes = [_group(each.rstrip(BLANK).removesuffix(","), power=True) for each in every]
        taken = bool(members) or (end > 0 and boxes[0] is not None)
        if taken and any(boxes) and not _in_key(text, place, end - 1):
            own = _key_before(text[:place].rstrip(BLANK))
            yield from ((own, box, place) for box, each in zip(boxes, every, strict=True) if box or each.strip(BLANK))
        place = end if taken else place + 1


def _members(text: str, start: int) -> list[tuple[int, str]]:
    """(end, what is inside) of each list in the list that begins here."""
    found: list[tuple[int, str]] = []
    rest = text[start + 1 :].lstrip(BLANK)
    while rest.startswith("[") and "]" in rest:
        inner = rest[1:].partition("]")[0]
        if set(inner) & set("[{}:"):
            break
        rest = rest[len(inner) + 2 :]
        found.append((len(text) - len(rest), inner))
        rest = rest.lstrip(BLANK)
        rest = rest[1:].lstrip(BLANK) if rest.startswith(",") else ""
    return found


def _in_key(text: str, start: int, close: int) -> bool:
    """Whether a place lies in a quoted text with a colon behind it."""
    for quote in "\"'":
        first, last = text.rfind(quote, 0, start), text.find(quote, close)
        name = text[first + 1 : last]
        quoted = first >= 0 and last >= 0 and len(name) <= 80 and not set(name) & set("\"'\\")
        quoted = quoted and not name.lstrip(BLANK).startswith(":")  # the first quote closes a key
        if quoted and text[last + 1 :].lstrip(BLANK).startswith(":"):
            return True
    return False


def _key_before(text: str) -> str | None:
    if not text.endswith(":"):
        return None
    text = text[:-1].rstrip(BLANK)
    quote = text[-1:]
    if quote not in ("'", '"'):
        return ""
    place = text.rfind(quote, 0, len(text) - 1)
    name = text[place + 1 : -1]
    fine = place >= 0 and len(name) <= 80 and "\\" not in name and "'" not in name and '"' not in name
    return name if fine else ""


PARSERS: dict[Any, Any] = {
    "maira2": ("crop", [1, 1], _maira2),
    "radvlm": ("unit", None, _radvlm),
    "chexagent2": ("percent", None, _tags(("<|box|>", "<|/box|>"), most=100, point=False)),
    "qwen2vl": ("permille", None, _tags(("<|box_start|>", "<|box_end|>"), ("<box>", "</box>"), most=1000)),
    "qwen25vl": ("resized", None, _keyed("bbox_2d", "xyxy", None)),
    "qwen3vl": ("permille", None, _keyed("bbox_2d", "xyxy", 1000)),
    "florence2": ("unit", None, _florence2),
    "paligemma": ("unit", None, _paligemma(1023)),
    "paligemma1024": ("unit", None, _paligemma(1024)),
    "medgemma15": ("pad", [1000, 1000], _keyed("box_2d", "yxyx", 1000)),
    "kosmos2": ("unit", None, _kosmos2),
    "json": ("", None, _any_json),
}
