"""The dialect `zones`: codes of zones, such as RUZ (docs/words.md §1)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from .place_groups import Places

_WORDS: Final = re.compile(r"[^\W_]+")
_SIDES: Final = {"right": ("RU", "RM", "RL"), "left": ("LU", "LM", "LL")}
_NAMES: Final = {f"{zone}Z".lower(): (zone,) for zones in _SIDES.values() for zone in zones} | _SIDES
_CODES: Final = _NAMES | {"bilateral": _SIDES["right"] + _SIDES["left"]}
_OTHER: Final = str.maketrans("RL", "LR")
_NONE: Final = "none"


class ZoneCodes(NamedTuple):
    """The zones of an answer. illegal: words that are no code. none: it says that there is no zone. given: any text."""

    places: Places
    illegal: int
    none: bool
    given: bool


def read_zones(answer: str, *, mirrored: bool = False) -> ZoneCodes:
    """The zones of an answer without thoughts, each once. mirrored: as for `grammar.read_words`.

    Beside a word that is no code, right, left and bilateral are words of a sentence and no codes either.
    """
    words = _WORDS.findall(answer.lower())
    strange = [word for word in words if word not in _CODES and word != _NONE]
    codes = [word for word in words if word in _CODES and not (strange and not word.endswith("z"))]
    illegal = sum(word != _NONE and word not in codes for word in words)
    names = tuple(dict.fromkeys(zone for word in codes for zone in _CODES[word]))
    whole = any(word in _SIDES or word == "bilateral" for word in codes)
    if mirrored:
        names = tuple(name[0].translate(_OTHER) + name[1:] for name in names)
    none = not codes and not illegal and (_NONE in words or bool(re.search(r"\[\s*\]", answer)))
    return ZoneCodes(Places(names, True, not whole), illegal, none, bool(answer.strip()))
