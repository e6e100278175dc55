"""Pairs of an image and a phrase, as cases: each finding of a case has its phrase.

A case asks one phrase for a finding. An image with a second phrase of the same finding is a second case, `ID~2`, so
that (case, finding) names one phrase, as it names one row of a result. Phrases are texts of reports: no message, note
or file name holds one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..dataset import Case
from ..region_boxes import Boxes

Corners = tuple[float, float, float, float]
MOST_ROUNDS: Final = 10
"""Cases that one image may be: more than the phrases of one finding that an image of these datasets has."""
_ROUND: Final = re.compile(r"~\d+$")


def phrase_key(text: str) -> str:
    """The form in which phrases are compared: stripped, in lower case, a line break as a space."""
    return one_line(text).lower()


def one_line(text: str) -> str:
    """A phrase as it is asked: stripped, and a line break is a space, since one separates the texts of a query."""
    return " ".join(text.splitlines()).strip()


def image_id(case_id: str) -> str:
    """The id of the image of a case that asks phrases."""
    return _ROUND.sub("", case_id)


def asked(cases: Iterable[Case]) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """(image id, `phrase_key`) -> the (case id, finding) that ask it; several if findings share a phrase."""
    pairs: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for case in cases:
        for finding, phrase in case.phrases.items():
            pairs[image_id(case.case_id), phrase_key(phrase)].append((case.case_id, finding))
    return dict(pairs)


@dataclass
class PhraseImage:
    """One image while its annotation is read: by (finding, `phrase_key`) the first spelling, and the boxes.

    boxless: keys of phrases that are named without a box. attributes: see `Case`.
    """

    image: Path
    split: str
    patient: str | None = None
    size: tuple[int, int] | None = None
    rows: list[int] = field(default_factory=list)
    spellings: dict[tuple[str, str], str] = field(default_factory=dict)
    boxes: dict[tuple[str, str], dict[Corners, None]] = field(default_factory=lambda: defaultdict(dict))
    boxless: set[str] = field(default_factory=set)
    attributes: Mapping[str, str | float] | None = None

    def add(self, finding: str, phrase: str, box: Corners) -> bool:
        """Adds a box of a phrase; false if the phrase has it already."""
        key = finding, phrase_key(phrase)
        self.spellings.setdefault(key, one_line(phrase))
        new = box not in self.boxes[key]
        self.boxes[key][box] = None
        return new

    def cases(self, name: str, classes: Sequence[str], *, fractions: bool = False) -> list[Case]:
        """The cases of the image called `name`, at least one. A finding without a phrase is unknown."""
        rounds: list[dict[str, tuple[str, Boxes]]] = [{}]
        for (finding, key), spelling in self.spellings.items():
            number = sum(finding in earlier for earlier in rounds)
            if number == len(rounds):
                rounds.append({})
            rounds[number][finding] = spelling, Boxes(tuple(self.boxes[finding, key]), fractions=fractions)
        unasked = tuple(sorted(self.boxless.difference(key for _, key in self.spellings)))
        return [
            Case(
                case_id=name if number == 1 else f"{name}~{number}",
                image=self.image,
                labels={finding: 1 if finding in phrases else None for finding in classes},
                regions={finding: phrases[finding][1] for finding in classes if finding in phrases},
                split=self.split,
                patient_id=self.patient,
                rows=tuple(self.rows),
                size=self.size,
                phrases={finding: phrases[finding][0] for finding in classes if finding in phrases},
                unasked=unasked if number == 1 else (),
                attributes=self.attributes,
            )
            for number, phrases in enumerate(rounds, 1)
        ]
