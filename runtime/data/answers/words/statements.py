"""What a text in words says: findings, whether they are present, and where (docs/words.md §2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from .place_groups import NOWHERE, Places

PRESENT: Final = "present"
UNCERTAIN: Final = "uncertain"
ABSENT: Final = "absent"

NOT_READ: Final = "not_read"
READ: Final = "read"


@dataclass(slots=True)
class Statement:
    """One finding. presence: `PRESENT`, `UNCERTAIN` or `ABSENT`. size: 1 to 4, 0 if it is not said.

    implied: the place is the finding's own, such as the heart for cardiomegaly.
    """

    finding: str
    presence: str
    places: Places = NOWHERE
    size: int = 0
    implied: bool = False


@dataclass(slots=True)
class Bare:
    """Places without a finding."""

    places: Places
    presence: str


@dataclass
class WordsReading:
    """What a text says. state: `READ`, `NOT_READ`, `EMPTY` or `FOREIGN`. denied: findings, or `ALL`.

    answer: "yes", "no" or "", what it begins with. skipped: findings about which nothing is said ("to exclude").
    cut: it ends inside a thought.
    """

    state: str = READ
    statements: list[Statement] = field(default_factory=list)
    bare: list[Bare] = field(default_factory=list)
    denied: frozenset[str] = frozenset()
    answer: str = ""
    skipped: list[str] = field(default_factory=list)
    cut: bool = False
