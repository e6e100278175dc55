"""Reads a text in words into statements, by a fixed grammar and in linear time (docs/words.md §2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ..dialects.thoughts import Tags, answer_part
from .clause_parts import clause_parts, denies_before, part_statements
from .lexicon import Token, lexicon
from .place_groups import NAMING, Places, find_groups, places_of
from .plain_text import language, plain_lines
from .sentences import read_sentences
from .statements import ABSENT, NOT_READ, PRESENT, READ, UNCERTAIN, Bare, Statement, WordsReading

_KNOWN: Final = (*NAMING, "finding")
_NEGATED: Final = ("negation_before", "negation_after")
_FIRST: Final = re.compile(r"\w+")


def read_words(text: str, thoughts: Tags = (), *, mirrored: bool = False) -> WordsReading:
    """What a text says. mirrored: left and right are those of the image; "left side of the image" always is."""
    answer, cut = answer_part(text, thoughts)
    lines = plain_lines(answer)
    if unreadable := language(lines):
        return WordsReading(unreadable, cut=cut)
    sentences = read_sentences(lines)
    reading = WordsReading(denied=frozenset(sentences.denied), answer=sentences.answer, cut=cut)
    known = bool(reading.denied or reading.answer)
    latest: list[Statement] = []
    for sentence in sentences.texts:
        tokens = lexicon().tokens(sentence)
        known = known or any(token.kind in _KNOWN for token in tokens)
        latest = _sentence(reading, sentence, tokens, latest, mirrored=mirrored)
    reading.state = READ if known or reading.bare else NOT_READ
    return reading


def _sentence(
    reading: WordsReading, sentence: str, tokens: Sequence[Token], latest: list[Statement], *, mirrored: bool
) -> list[Statement]:
    """Adds a sentence; returns the last statements that are not absent."""
    first = _FIRST.search(sentence)
    continues = first is not None and first[0] in lexicon().lists["continues"]
    before: list[Statement] = []  # of the last clause of this sentence that has findings
    for clause in _clauses(tokens):
        parts = clause_parts(clause, mirrored=mirrored)
        if parts:
            before = []
            for part in parts:
                statements, skipped = part_statements(part)
                before += statements
                reading.skipped += skipped
            reading.statements += before
            latest = [statement for statement in before if statement.presence != ABSENT] or latest
            continue
        if denies_before(clause):
            for number, statement in enumerate(reversed(before)):
                if number and statement.places.names:
                    break
                statement.presence = ABSENT
            latest = [statement for statement in latest if statement.presence != ABSENT]
        kinds = {token.kind for token in clause}
        places = places_of(find_groups(clause, mirrored=mirrored))
        if not places.names or kinds & {"no_place_beside", "not_a_statement"}:
            continue
        negated = not kinds.isdisjoint(_NEGATED)
        if before and not negated:
            again = [_again(statement, places) for statement in _last_of_each(before)]
            reading.statements += again
            latest = again
        elif continues and latest and not negated:
            _extend(latest, places)
        else:
            uncertain = not kinds.isdisjoint(("uncertain_before", "uncertain_after"))
            reading.bare.append(Bare(places, ABSENT if negated else UNCERTAIN if uncertain else PRESENT))
    return latest


def _clauses(tokens: Sequence[Token]) -> list[list[Token]]:
    clauses: list[list[Token]] = [[]]
    for token in tokens:
        if token.kind == "break":
            clauses.append([])
        else:
            clauses[-1].append(token)
    return [clause for clause in clauses if clause]


def _last_of_each(statements: Sequence[Statement]) -> list[Statement]:
    return list({statement.finding: statement for statement in statements}.values())


def _again(statement: Statement, places: Places) -> Statement:
    return Statement(
        statement.finding, PRESENT, statement.places if statement.implied else places, 0, statement.implied
    )


def _extend(statements: Sequence[Statement], places: Places) -> None:
    for statement in statements:
        if not statement.implied:
            statement.places = statement.places + places if statement.places.names else places
