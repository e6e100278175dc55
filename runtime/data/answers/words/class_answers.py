"""What a text says about one class of a dataset (docs/words.md §3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, IntFlag
from functools import lru_cache
from typing import Final

from ....host.options import UncertainWords
from .lexicon import lexicon
from .place_groups import Places
from .plain_text import EMPTY, FOREIGN
from .sentences import ALL
from .statements import ABSENT, NOT_READ, PRESENT, UNCERTAIN, Statement, WordsReading


class WordState(IntEnum):
    """What a text says about a class. ANSWERED has a place, UNLOCATED has none."""

    ANSWERED = 0
    UNLOCATED = 1
    DENIED = 2
    OTHER = 3
    NOT_READ = 4
    FOREIGN = 5
    EMPTY = 6
    MISSING = 7


class Remark(IntFlag):
    """What is counted of an answer in words (docs/words.md §5)."""

    UNCERTAIN = 1
    CONTRADICTORY = 2
    BY_PARENT = 4
    IMPLIED = 8
    SIDE_UNSTATED = 16
    LEVEL_UNSTATED = 32
    BOX_IN_TEXT = 64
    FRAME_FIXED = 128


NO_REMARK: Final = Remark(0)


@dataclass(frozen=True, slots=True)
class WordsAnswer:
    """The answer for one pair. places: as `places.json` names them. size: 1 to 4, 0 if it is not said. skipped: how
    many findings the text mentions without a statement; of a report only those of the class."""

    state: WordState
    places: Places = field(default_factory=Places)
    remarks: Remark = NO_REMARK
    size: int = 0
    skipped: int = 0

    @property
    def present(self) -> bool:
        """Whether the text says that the finding is there."""
        return self.state in (WordState.ANSWERED, WordState.UNLOCATED)


_UNREAD = {EMPTY: WordState.EMPTY, FOREIGN: WordState.FOREIGN, NOT_READ: WordState.NOT_READ}


def class_answer(
    reading: WordsReading, name: str, *, asked: bool, uncertain: UncertainWords = "present"
) -> WordsAnswer:
    """The answer for a class. asked: the line asks about it; else it is a report, of all classes."""
    if reading.state in _UNREAD:
        return WordsAnswer(_UNREAD[reading.state])
    findings = findings_of(name)
    answer = _answer(reading, findings, asked=asked, uncertain=uncertain)
    skipped = sum(asked or finding in findings for finding in reading.skipped)
    return replace(answer, skipped=skipped) if skipped else answer


def _answer(reading: WordsReading, findings: Sequence[str], *, asked: bool, uncertain: UncertainWords) -> WordsAnswer:
    stated = [statement for statement in reading.statements if statement.finding in findings]
    remarks = NO_REMARK
    if asked and not stated:
        parents = {lexicon().parent_of.get(finding) for finding in findings} - {None}
        stated = [statement for statement in reading.statements if statement.finding in parents]
        remarks |= Remark.BY_PARENT if stated else NO_REMARK
    counted = (PRESENT, UNCERTAIN) if uncertain == "present" else (PRESENT,)
    present = [statement for statement in stated if statement.presence in counted]
    bare = [item for item in reading.bare if item.presence in counted] if asked else []
    if present:
        return _present(stated, present, [item.places for item in bare], remarks)
    if stated:
        return WordsAnswer(WordState.DENIED, remarks=remarks)
    return _not_stated(reading, findings, bare=[item.places for item in bare], asked=asked)


def _present(
    stated: Sequence[Statement],
    present: Sequence[Statement],
    bare: Sequence[Places],
    remarks: Remark,
) -> WordsAnswer:
    places = _sum([statement.places for statement in present])
    places = places if places.names else _sum(bare)
    if any(statement.presence == ABSENT and not statement.places.names for statement in stated):
        remarks |= Remark.CONTRADICTORY
    if all(statement.presence == UNCERTAIN for statement in present):
        remarks |= Remark.UNCERTAIN
    if any(statement.implied for statement in present):
        remarks |= Remark.IMPLIED
    size = next((statement.size for statement in present if statement.size), 0)
    state = WordState.ANSWERED if places.names else WordState.UNLOCATED
    return WordsAnswer(state, places, remarks | unstated(places), size)


def _not_stated(reading: WordsReading, findings: Sequence[str], bare: Sequence[Places], *, asked: bool) -> WordsAnswer:
    """The answer where no statement is about the class."""
    places, remarks = Places(), NO_REMARK
    if asked and bare and reading.answer != "no":
        state, places = WordState.ANSWERED, _sum(bare)
        remarks = unstated(places)
        if all(item.presence == UNCERTAIN for item in reading.bare if item.presence != ABSENT):
            remarks |= Remark.UNCERTAIN
    elif asked and reading.answer == "yes":
        state = WordState.UNLOCATED
    else:
        denied = ALL in reading.denied or not reading.denied.isdisjoint(findings)
        denied = denied or (asked and (reading.answer == "no" or bool(reading.bare)))
        state = WordState.DENIED if denied else WordState.OTHER
    return WordsAnswer(state, places, remarks)


def _sum(places: Sequence[Places]) -> Places:
    result = Places()
    for each in places:
        result = result + each if each.names else result
    return result


def unstated(places: Places) -> Remark:
    """What the places do not say: a side, a level."""
    sides = NO_REMARK if places.sides_stated else Remark.SIDE_UNSTATED
    return sides | (NO_REMARK if places.levels_stated else Remark.LEVEL_UNSTATED)


@lru_cache(maxsize=1024)
def findings_of(name: str) -> tuple[str, ...]:
    """The findings of the lexicon that a class means; none for a class that it does not know."""
    known = lexicon()
    if name in known.lists["classes"]:
        return tuple(known.lists["classes"][name])
    tokens = known.tokens(" ".join(name.lower().replace("_", " ").replace("-", " ").split()))
    return (tokens[0].value,) if len(tokens) == 1 and tokens[0].kind == "finding" else ()
