"""What a trust card is, and the same as plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from ....metrics_gpu.trust.verdicts import Word, worst_of
from ...reporting.studies.writing import clean
from ...reporting.tables.metric_names import NONE, p_value, percent
from .words import CLAIMS, FINDINGS, QUESTIONS, REFERENCES, SECTIONS

if TYPE_CHECKING:
    from ...reporting.studies.study_cell import StudyCell
    from ...reporting.studies.study_outcome import Rows

SCHEMA: Final = 1
"""Of a card as plain data."""

CardWord = Literal["pass", "fail", "cannot tell", "void", "not run", "not applicable", "no verdict"]
WORDS: Final[tuple[CardWord, ...]] = get_args(CardWord)
DESCRIBED: Final = 9
"""The line that lists where the maps fail, and judges nothing."""

_CRITERION: Final = re.compile(r"(above|below) (-?[\d.]+(?:e-\d+)?)(?: by more than ([\d.]+(?:e-\d+)?))?")

Unit = Literal["average precision", "similarity", "ROC AUC", "probability", "share", "pointing", "gap"]
UNITS: Final[tuple[Unit, ...]] = get_args(Unit)

_TESTED: Final = ("low", "high", "pairs", "patients", "p", "p_bound", "p_holm", "family", "criterion")


@dataclass(frozen=True)
class CardNumber:
    """A number of a line.

    what: in words; label: in a few, for the figure. value, low, high: a fraction or a difference of such, with its
    interval; None where there is none. baseline: what it is measured against, in words. pairs, patients: what it rests
    on. p_holm: corrected for the `family` tests that were declared together; p_bound: p is below this value. criterion:
    as a verdict has it; word: None for a number without a verdict. left_out: why -> pairs. degenerate: pairs with a
    degenerate map.
    """

    what: str
    label: str
    unit: Unit
    value: float | None
    low: float | None = None
    high: float | None = None
    baseline: str = ""
    pairs: int | None = None
    patients: int | None = None
    p: float | None = None
    p_bound: bool = False
    p_holm: float | None = None
    family: int | None = None
    criterion: str = ""
    word: Word | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)
    degenerate: int = 0

    @staticmethod
    def of(row: Mapping[str, Any], name: str, **words: Any) -> CardNumber:
        """The number `name` of a row of a study or of trust.json, with its interval and test.

        Their columns are named after `name` (`difference_low`) or not (`low`). words: all other fields, and those that
        the row names otherwise.
        """
        columns = {key: row.get(f"{name}_{key}", row.get(key)) for key in _TESTED}
        tested = {key: value for key, value in columns.items() if value is not None}
        return CardNumber(**{"value": row[name], **tested, **words})

    @property
    def text(self) -> str:
        """The value with its interval, in its unit."""
        if self.value is None:
            return NONE
        values = [each for each in (self.value, self.low, self.high) if each is not None]
        if self.unit in ("share", "pointing", "gap"):
            signed = self.unit == "gap"
            value, *ends = (_percent(each, signed) for each in values)
            unit = " points" if signed else " %"
        else:
            value, *ends = (f"{each:+.3f}" for each in values)
            unit = ""
        around = f" [{ends[0]}, {ends[1]}]" if len(ends) == 2 else ""
        return f"{value}{around}{unit}"

    @property
    def p_text(self) -> str:
        """The corrected p."""
        return p_value(self.p_holm, self.p_bound)

    @property
    def edge(self) -> float | None:
        """What the whole interval must lie beyond by a criterion of `metrics_gpu.trust.verdicts`; None by another."""
        match = _CRITERION.fullmatch(self.criterion)
        return None if match is None else float(match[2]) + float(match[3] or 0) * (1 if match[1] == "above" else -1)


@dataclass(frozen=True)
class CardLine:
    """A question with its answer.

    word: the verdict; text: the same with the number that explains it. finding: a sentence. why: the reason of a line
    without an answer, and command: what gives one. table: where all its numbers are. notes: what else to know.
    """

    number: int
    word: CardWord
    text: str
    finding: str
    numbers: tuple[CardNumber, ...] = ()
    why: str = ""
    command: str = ""
    table: str = ""
    notes: tuple[str, ...] = ()

    @property
    def question(self) -> str:
        return QUESTIONS[self.number]

    @property
    def section(self) -> str:
        return SECTIONS[self.number]

    @property
    def references(self) -> tuple[str, ...]:
        return REFERENCES.get(self.number, ())

    @property
    def left_out(self) -> tuple[str, ...]:
        """How many pairs have no score, and why, each once."""
        reasons = [(count, why) for item in self.numbers for why, count in item.left_out.items() if count]
        return tuple(f"{count} pair{'s' * (count != 1)} ({why})" for count, why in dict.fromkeys(reasons))

    @property
    def disagreements(self) -> tuple[str, ...]:
        """Sentences on numbers whose interval and test, before the correction, answer differently about 0."""
        numbers = [
            item.what
            for item in self.numbers
            if item.low is not None and item.high is not None and item.p is not None and item.word
            if (not item.low <= 0 <= item.high) != (item.p < 0.05)
        ]
        return tuple(f"{what}: the interval and the test answer differently" for what in numbers)


@dataclass(frozen=True)
class Picture:
    """A case that failed. caption: with its id as everywhere in the report. png: None where none can be drawn."""

    caption: str
    png: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class TrustCard:
    """The card of a model on a dataset. head: name -> text; stamps: warnings about all numbers."""

    model: str
    dataset: str
    title: str
    head: Mapping[str, str]
    stamps: tuple[str, ...]
    lines: tuple[CardLine, ...]
    pictures: tuple[Picture, ...] = ()
    facts: tuple[str, ...] = ()

    @property
    def to_json(self) -> dict[str, Any]:
        """The card as plain data: docs/trust-card.md §8 has its keys. Numbers are not rounded."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "dataset": self.dataset,
            "title": self.title,
            "head": dict(self.head),
            "stamps": list(self.stamps),
            "lines": [_line_json(line) for line in self.lines],
            "cases": [picture.caption for picture in self.pictures],
            "not_to_be_claimed": list(CLAIMS),
            "facts": list(self.facts),
        }


def _line_json(line: CardLine) -> dict[str, Any]:
    return {
        "line": line.number,
        "question": line.question,
        "verdict": line.word,
        "told": line.text,
        "finding": line.finding,
        "why": line.why,
        "command": line.command,
        "numbers": [{name: clean(value) for name, value in asdict(item).items()} for item in line.numbers],
        "notes": [*line.notes, *line.disagreements],
        "section": line.section,
        "references": list(line.references),
        "table": line.table,
    }


def judged_line(
    number: int, numbers: Sequence[CardNumber], *, table: str, notes: Sequence[str] = (), told: str = ""
) -> CardLine:
    """The line of numbers of which some have a verdict: it passes if each of these passes, and fails if one fails.

    told: the end of the sentence, with the numbers.
    """
    asked = [item for item in numbers if item.word is not None]
    word = worst_of([item.word for item in asked])
    pairs, patients = (_range([getattr(item, name) for item in asked]) for name in ("pairs", "patients"))
    text: str = word
    if word == "cannot tell":
        text = f"cannot tell ({patients} patient{'' if patients == '1' else 's'})"
    if word == "void":
        flagged = max(asked, key=lambda item: item.degenerate)
        text = f"void ({flagged.degenerate} of {flagged.pairs} maps are degenerate)"
    basis = f"On these {pairs} pair{'' if pairs == '1' else 's'} of {patients} patient{'' if patients == '1' else 's'} "
    finding = basis + FINDINGS[number][word] + (f": {told}." if told else ".")
    return CardLine(number, word, text, finding, tuple(numbers), table=table, notes=tuple(notes))


def unjudged_line(number: int, word: CardWord, why: str, *, command: str = "", table: str = "") -> CardLine:
    """A line without an answer. why: the reason."""
    why = why.rstrip(".")
    return CardLine(number, word, word, f"{word.capitalize()}: {why}.", why=why, command=command, table=table)


def rows_of(rows: Rows, cell: StudyCell, **keys: object) -> list[Mapping[str, Any]]:
    """The rows of a study on the model and dataset of a cell, with these values."""
    asked = {"model": cell.model, "dataset": cell.dataset, **keys}
    return [row for row in rows if all(row[name] == value for name, value in asked.items())]


def _range(counts: Sequence[int | None]) -> str:
    known_counts = [count for count in counts if count is not None]
    if not known_counts:
        return "0"
    return (
        str(min(known_counts))
        if min(known_counts) == max(known_counts)
        else f"{min(known_counts)} to {max(known_counts)}"
    )


def _percent(value: float, signed: bool) -> str:
    text = percent(value, 1)
    return f"+{text}" if signed and value > 0 and not text.startswith("-") else text
