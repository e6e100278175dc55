"""What a dialect finds in a text (docs/boxes.md §4), and what all dialects share: numbers and traces."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from ..coordinate_frames import Corners

GAP: Final = r"\s*+"
"""White space inside brackets; possessive, so that a long run of it is read once."""

NUMBER: Final = r"[-+]?(?:\d{1,40}+(?:\.\d{0,40}+)?|\.\d{1,40}+)"
"""A decimal number with or without a sign."""

_BRACKET: Final = re.compile(r"[\[({]([^\[\](){}]{2,400}+)(?=[\[\](){}]|\Z)", re.ASCII)
_IN_BRACKET: Final = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)", re.ASCII)


@dataclass
class Parsed:
    """The boxes of a text in the dialect's own units, x1, y1, x2, y2, in the order of the text.

    illegal: boxes outside the dialect's range or that end before they begin; they are not in `boxes`. truncated: the
    text ends inside a box or a list. meant: there is a trace of a box. empty: the text holds an empty list.
    labels: what the text calls each of `boxes`, empty where it says nothing. tag: as `thoughts.tag_of_boxes`.
    """

    boxes: list[Corners] = field(default_factory=list)
    illegal: int = 0
    truncated: bool = False
    meant: bool = False
    empty: bool = False
    labels: list[str] = field(default_factory=list)
    tag: str = ""

    def add(self, box: Corners, *, legal: bool, label: str = "") -> None:
        """Adds a box, or counts it as illegal."""
        if legal and box[0] < box[2] and box[1] < box[3]:
            self.boxes.append(box)
            self.labels.append(label)
        else:
            self.illegal += 1


def has_numbers_in_bracket(text: str) -> bool:
    """Whether the text has a bracket with two or more numbers."""
    return any(len(_IN_BRACKET.findall(bracket[1])) > 1 for bracket in _BRACKET.finditer(text))
