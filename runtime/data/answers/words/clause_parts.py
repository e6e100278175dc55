"""A clause -> its parts, each with findings (docs/words.md §2, steps 6, 7 and 9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from .lexicon import Token, lexicon
from .place_groups import NOWHERE, Group, Places, find_groups, names_places, places_of
from .statements import ABSENT, PRESENT, UNCERTAIN, Statement

_SKIPPED: Final = "skipped"
_CUES: Final = ("negation_before", "uncertain_before", "not_a_statement")
_BEHIND: Final = ("negation_after", "uncertain_after")
_CUTS: Final = ("comma", "and", "or", "with")
_SIZED: Final = "size"
_JOINS: Final = ("consistent with", "compatible with")
_CLOSING: Final = ("none", "no", "resolved")
"""Negations that at the end of a part deny what stands before them: "effusion, none"."""


@dataclass(slots=True)
class _Unit:
    """The words between two cuts. cuts: the kinds of terms before it."""

    tokens: list[Token] = field(default_factory=list)
    cuts: set[str] = field(default_factory=set)

    @property
    def finding(self) -> int:
        """The position of its first finding, -1 without one."""
        return next((at for at, token in enumerate(self.tokens) if token.kind == "finding"), -1)

    @property
    def placed_before(self) -> bool:
        """Whether a place stands before its finding."""
        return names_places(self.tokens[: max(self.finding, 0)], nouns=False)

    @property
    def open(self) -> bool:
        """Whether it has a side or a level that lacks its noun, such as "right upper"."""
        kinds = {token.kind for token in self.tokens}
        return bool(kinds & {"side", "level"}) and not kinds & {"noun", "place", "finding", "zone_code"}

    @property
    def says_clear(self) -> bool:
        """Whether it says that a place is clear, and so is no place of a finding: "right lung clear", "normal hila"."""
        if self.finding >= 0 or not names_places(self.tokens):
            return False
        clear = next((at for at, token in enumerate(self.tokens) if token.kind == "no_place_beside"), len(self.tokens))
        behind = self.tokens[clear + 1 :]
        return clear < len(self.tokens) and (names_places(behind[:1]) or not names_places(behind))


@dataclass(slots=True)
class ClausePart:
    """A part of a clause: words with at least one finding, and what is said of them.

    findings: (position, finding) of each. presences: of each finding; own: places of the part itself; denied: places
    behind a negation that follows the findings. places: with those that it takes from its neighbours. reached:
    a presence that a cue behind findings gave to them -> how many they are.
    """

    tokens: list[Token]
    cuts: set[str]
    findings: list[tuple[int, str]]
    presences: list[str] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    own: Places = NOWHERE
    denied: Places = NOWHERE
    denies_there: bool = False
    places: Places = NOWHERE
    reached: dict[str, int] = field(default_factory=dict)

    @property
    def begins_with(self) -> str:
        """The kind of its first term that is no filler."""
        return next((token.kind for token in self.tokens if token.kind != "filler"), "")

    @property
    def cue(self) -> Token | None:
        """The first cue before its first finding. "There is" is none."""
        for at, token in enumerate(self.tokens[: self.findings[0][0]]):
            if token.kind in _CUES or token.text in _JOINS or (token.kind in _BEHIND and _says_next(self, at)):
                return token
        return None

    def all_before(self) -> bool:
        return all(group.at < self.findings[0][0] for group in self.groups)

    def all_behind(self) -> bool:
        return all(group.at > self.findings[-1][0] for group in self.groups)


def clause_parts(tokens: Sequence[Token], *, mirrored: bool) -> list[ClausePart]:
    """The parts of a clause, none without a finding."""
    parts = _joined([unit for unit in _units(tokens) if not unit.says_clear])
    presence = PRESENT
    for number, part in enumerate(parts):
        _find_places(part, mirrored=mirrored)
        presence = _find_presences(parts, number, presence)
    _run_on(parts)
    return parts


def part_statements(part: ClausePart) -> tuple[list[Statement], list[str]]:
    """The statements of a part, and the findings about which nothing is said."""
    own_place = lexicon().lists["own_place"]
    size = next((token.value for token in part.tokens if token.kind == _SIZED), 0)
    statements: list[Statement] = []
    skipped: list[str] = []
    for (_, finding), presence in zip(part.findings, part.presences, strict=True):
        if presence == _SKIPPED:
            skipped.append(finding)
            continue
        implied = own_place.get(finding)
        places = Places((implied,)) if implied else part.places
        last = finding == part.findings[-1][1]
        if part.denies_there and last and not implied:
            if places.names:
                statements.append(Statement(finding, presence, places, size))
            statements.append(Statement(finding, ABSENT, part.denied, size))
        else:
            statements.append(Statement(finding, presence, places, size, bool(implied)))
    return statements, skipped


def denies_before(tokens: Sequence[Token]) -> bool:
    """Whether a clause without findings denies those of the clause before: "consolidation - none"."""
    return all(token.kind in ("negation_after", "filler") or token.text in _CLOSING for token in tokens)


def _units(tokens: Sequence[Token]) -> list[_Unit]:
    units = [_Unit()]
    found = False
    for token in tokens:
        if token.kind in _CUTS or (token.kind in _CUES and found):
            if units[-1].tokens:
                units.append(_Unit())
                found = False
            units[-1].cuts.add(token.kind)
            if token.kind in _CUTS:
                continue
        found = found or token.kind == "finding"
        units[-1].tokens.append(token)
    return [unit for unit in units if unit.tokens]


def _joined(units: Sequence[_Unit]) -> list[ClausePart]:
    """Units without a finding joined with the part before, or with the next."""
    leads = [False] * (len(units) + 1)
    for number in range(len(units) - 2, -1, -1):
        following = units[number + 1]
        leads[number] = units[number].open and (following.placed_before or leads[number + 1])
    parts: list[ClausePart] = []
    waiting: list[_Unit] = []
    for number, unit in enumerate(units):
        if unit.finding < 0 and (not parts or leads[number]):
            waiting.append(unit)
        elif unit.finding < 0:
            parts[-1].tokens += [_COMMA, *unit.tokens]
        else:
            joined = [*waiting, unit]
            waiting = []
            tokens = [token for each in joined for token in (*each.tokens, _COMMA)][:-1]
            findings = [(at, token.value) for at, token in enumerate(tokens) if token.kind == "finding"]
            parts.append(ClausePart(tokens, joined[0].cuts, findings))
    if waiting and parts:
        parts[-1].tokens += [token for unit in waiting for token in (_COMMA, *unit.tokens)]
    return parts


_COMMA: Final = Token("comma", None, ",")


def _find_places(part: ClausePart, *, mirrored: bool) -> None:
    if not names_places(part.tokens):
        return
    part.groups = find_groups(part.tokens, mirrored=mirrored)
    last = part.findings[-1][0]
    negation = next(
        (at for at in range(last + 1, len(part.tokens)) if part.tokens[at].kind == "negation_before"), len(part.tokens)
    )
    part.own = part.places = places_of([group for group in part.groups if group.at < negation])
    part.denied = places_of([group for group in part.groups if group.at > negation])
    part.denies_there = bool(part.denied.names)
    part.groups = [group for group in part.groups if group.places().names]


def _find_presences(parts: Sequence[ClausePart], number: int, presence: str) -> str:
    """Fills the presences of a part; returns that after it."""
    part = parts[number]
    if number and "with" in part.cuts:
        presence = PRESENT
    elif number and "or" not in part.cuts and part.begins_with not in _CUES:
        said = any(token.kind == "present" for token in part.tokens)
        presence = PRESENT if said or part.own.names else presence
    last = part.findings[-1][0]
    for at, token in enumerate(part.tokens):
        kind = token.kind
        if kind == "finding":
            part.presences.append(presence)
        elif kind == "negation_before" and at < last:
            presence = ABSENT
        elif kind == "uncertain_before" and presence != ABSENT:
            presence = UNCERTAIN
        elif kind == "no_negation":
            presence = PRESENT
        elif kind == "not_a_statement":
            presence = _SKIPPED
        elif kind in _BEHIND or _closes(part, at):
            said_of = UNCERTAIN if kind == "uncertain_after" else ABSENT
            if part.presences:
                _reach(parts, number, said_of)
            if presence in (PRESENT, UNCERTAIN) and _says_next(part, at):
                presence = said_of
    return presence


def _says_next(part: ClausePart, at: int) -> bool:
    """Whether a cue of findings before it stands right before another: "absent effusion", "is likely edema"."""
    for token in part.tokens[at + 1 :]:
        if token.kind == "finding":
            return True
        if token.kind in (*_CUES, *_BEHIND, "comma"):
            return False
    return False


def _closes(part: ClausePart, at: int) -> bool:
    """Whether the word at the end denies the findings before it. In "left small, right none" it denies a place."""
    negated = at > 0 and part.tokens[at - 1].kind == "negation_before"  # "has not resolved"
    if at < len(part.tokens) - 1 or negated or part.tokens[at].text not in _CLOSING:
        return False
    start = max((number for number in range(at) if part.tokens[number].kind == "comma"), default=-1)
    return part.findings[-1][0] > start or not names_places(part.tokens[start + 1 :])


def _reach(parts: Sequence[ClausePart], number: int, presence: str) -> None:
    """A cue behind findings: those of its part, and of the parts before that have no place of their own.

    What the same cue reached before is not entered again, which would take the square of the time.
    """
    for at in range(number, -1, -1):
        part = parts[at]
        if at < number and (part.own.names or part.denied.names or presence in part.reached):
            break
        for index in range(part.reached.get(presence, 0), len(part.presences)):
            old = part.presences[index]
            if old != _SKIPPED and not (presence == UNCERTAIN and old == ABSENT):
                part.presences[index] = presence
    parts[number].reached[presence] = len(parts[number].presences)


def _run_on(parts: Sequence[ClausePart]) -> None:
    """Gives parts without places those of the part before or after (step 9)."""
    for before, part in pairwise(parts):
        if _takes(part, before):
            cue = part.cue
            joined = cue is not None and (cue.kind.startswith("uncertain") or cue.text in _JOINS)
            if joined or before.all_before():
                part.places = before.places
    for number in range(len(parts) - 2, -1, -1):
        part, after = parts[number], parts[number + 1]
        if _takes(part, after) and after.all_behind():
            part.places = after.places


def _takes(part: ClausePart, giver: ClausePart) -> bool:
    own_place = lexicon().lists["own_place"]
    if part.places.names or part.denies_there or not giver.places.names or not part.presences or not giver.presences:
        return False
    if all(finding in own_place for _, finding in giver.findings):
        return False
    cue = part.cue
    if cue is not None and cue.kind in ("negation_before", "negation_after", "not_a_statement"):
        return False
    return giver.presences[-1] != ABSENT or part.presences[0] == ABSENT
