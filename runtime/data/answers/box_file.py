"""One file of boxes while it is read: what every format shares (docs/boxes.md §2)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from ....engines.errors import DataError
from .answered import BoxFile, State
from .bad_line import BadLine, printable
from .box_labels import names_another
from .collecting import Columns
from .coordinate_frames import Corners
from .dialects.dialect_registry import DIALECTS
from .fitting import FittedAnswer
from .questions import Place, Questions
from .words.thorax_frames import ThoraxFrames, WordOptions

JSON_LINES: Final = "jsonl"
UNUSED: Final = ("not_read", "other")
"""States of answers in words whose first texts are shown."""

_TEXTS: Final = 5
_SHOWN: Final = 20  # distinct values of a key of provenance that a run keeps
_UNIT_MOST: Final = 1.5
"""Coordinates in unit above this mean another frame (docs/boxes.md §1). Below, a box may just leave its image."""


@dataclass(frozen=True)
class ReadOptions:
    """How a file is read. count_bad_lines: a line that its writer must correct is rejected instead of stopping.

    coco: the COCO file with `images` and `categories`, for COCO results. mapping: a JSON file {text: finding or
    phrase}, for grounded phrases. words: how answers in words are drawn.
    """

    count_bad_lines: bool = False
    coco: Path | None = None
    mapping: Path | None = None
    words: WordOptions = field(default_factory=WordOptions)


@dataclass
class _FrameSense:
    """Whether a frame is impossible for the whole file.

    pixels: the first line with boxes in pixels; above: whether a coordinate in pixels is above 1. wide: the first line
    of text with a box in unit beyond `_UNIT_MOST`; narrow: whether such a text has a box that is not.
    """

    pixels: int = 0
    above: bool = False
    wide: int = 0
    narrow: bool = False


@dataclass
class FileReading:
    """What was read so far; `word`: the word for an entry of the file in messages, line or entry."""

    path: Path
    questions: Questions
    options: ReadOptions
    file_format: str = JSON_LINES
    word: str = "line"
    lines: int = 0
    rejected: int = 0
    unknown_label: int = 0
    no_region: int = 0
    unmatched: int = 0
    positives: Columns = field(default_factory=Columns)
    negatives: Columns = field(default_factory=Columns)
    conventions: Counter[str] = field(default_factory=Counter)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    tags: Counter[str] = field(default_factory=Counter)
    first_unread: str = ""
    token_counts: dict[str, list[int]] = field(default_factory=dict)
    labelled: int = 0
    other_finding: int = 0
    words: bool | None = None
    unused_texts: dict[str, dict[str, None]] = field(default_factory=dict)
    _values: dict[str, dict[str, Any]] = field(default_factory=dict)
    _scored: bool | None = None
    _sense: _FrameSense = field(default_factory=_FrameSense)

    def __post_init__(self) -> None:
        # A byte for each pair of the dataset, however many lines there are.
        self._regions, self._seen = bytearray(len(self.questions)), bytearray(len(self.questions))
        np.frombuffer(self._regions, np.uint8)[self.questions.positives] = 1
        self.thorax = ThoraxFrames(self.options.words, self.questions)

    def error(self, bad: BadLine, number: int) -> DataError:
        """The error for a line; 0 is the file as a whole."""
        where = f"{self.path}, {self.word} {number}" if number else str(self.path)
        key = f", key '{bad.key}'" if bad.key else ""
        return DataError(printable(f"{where}{key}: {bad.sentence}."))

    def bad(self, error: BadLine, number: int) -> None:
        """Rejects a line, or raises DataError. A wrong frame is never a matter of one line."""
        if not self.options.count_bad_lines or error.key == "frame":
            raise self.error(error, number) from None
        self.rejected += 1

    def add(self, places: Sequence[Place], number: int, answer: FittedAnswer, *, scores: bool = False) -> None:
        """Adds the answer for these pairs; `scores`: its boxes have scores. Raises BadLine."""
        self._check_first(places)
        if answer.written:
            if self._scored not in (None, scores):
                problem = (
                    "has no scores, and lines before do" if self._scored else "has scores, and lines before do not"
                )
                raise BadLine("scores", f"this {self.word} {problem}; write them in all or in none")
            self._scored = scores
        if answer.tag:
            self.tags[answer.tag] += 1
        for pair_number in places:
            self._add(pair_number, number, answer)

    def add_words(self, answers: Sequence[tuple[Place, FittedAnswer]], number: int) -> None:
        """Adds the answers of a line in words, each with its pair. Raises BadLine."""
        self._check_first([place for place, _ in answers])
        for place, answer in answers:
            self._add(place, number, answer)
            state = "" if answer.words is None else answer.words.state.name.lower()
            texts = self.unused_texts.setdefault(state, {}) if state in UNUSED else None
            if texts is not None and len(texts) < _TEXTS:
                texts.setdefault(f"{self.word} {number}: {answer.excerpt}")

    def is_words(self, words: bool, number: int) -> None:
        """Notes whether a line is in words. Raises DataError where the lines before are not alike."""
        if self.words not in (None, words):
            problem = "the file has answers in words and boxes, which share few numbers; write two files"
            raise self.error(BadLine("dialect", problem), number)
        self.words = words

    def _check_first(self, places: Sequence[Place]) -> None:
        for pair_number in places:
            if self._seen[pair_number]:
                pair = self.questions.pair(pair_number)
                raise BadLine("case", f"'{pair.asked}' of '{pair.case_id}' was answered before; keep one of the two")

    def _add(self, pair_number: Place, number: int, answer: FittedAnswer) -> None:
        self._seen[pair_number] = 1
        if answer.state == State.UNPARSABLE and not self.first_unread:
            self.first_unread = f"{self.word} {number}" + f": {answer.excerpt}" * bool(answer.excerpt)
        if self._regions[pair_number]:
            self.positives.add(pair_number, number, answer, checked=True)
        elif (label := self.questions.label(pair_number)) == 0:
            self.negatives.add(pair_number, number, answer)
        elif label is None:
            self.unknown_label += 1
        else:
            self.no_region += 1

    def silence(self, rows: Iterable[int], columns: Iterable[int]) -> None:
        """Makes the positive and negative pairs of these cases and classes silent that were not answered."""
        wanted = list(columns)
        for row in rows:
            for pair_number in (self.questions.pair_number(row, column) for column in wanted):
                if not self._seen[pair_number] and (
                    self._regions[pair_number] or self.questions.label(pair_number) == 0
                ):
                    size = self.questions.cases[row].size
                    self._add(pair_number, 0, FittedAnswer(State.SILENT, (size[1], size[0]) if size else (0, 0)))

    def sense(self, frame: str | None, boxes: Sequence[Corners], number: int, *, text: bool) -> None:
        """Notes the written boxes of a line in one of the frames whose numbers can be impossible. Raises BadLine."""
        seen = self._sense
        if not boxes:
            return
        if frame == "pixels":
            seen.pixels = seen.pixels or number
            seen.above = seen.above or max(map(max, boxes)) > 1
        if frame == "unit":
            beyond = [max(box) > _UNIT_MOST for box in boxes]
            if any(beyond) and not text:
                raise BadLine("frame", f"a coordinate is above {_UNIT_MOST}, and the frame is unit; correct the frame")
            seen.narrow |= text and not all(beyond)
            seen.wide = seen.wide or number * any(beyond)

    def note(self, convention: str, provenance: Mapping[str, Any]) -> None:
        """Counts a line's convention of coordinates, and keeps what it says about its origin."""
        if convention:
            self.conventions[convention] += 1
        for key, value in provenance.items():
            kept = self._values.setdefault(key, {})
            if len(kept) < _SHOWN:
                kept.setdefault(json.dumps(value), value)

    def note_labels(self, labels: Sequence[str], asked: Sequence[str]) -> None:
        """Counts what an answer calls its boxes; empty labels say nothing. asked: finding and phrase of the line."""
        named = [label for label in labels if label]
        self.labelled += len(named)
        self.other_finding += sum(names_another(label, tuple(asked), self.questions.classes) for label in named)

    def note_tokens(self, dialect: str, text: str) -> None:
        """Counts the texts of a dialect of tokens, and those of them that have one."""
        if tokens := DIALECTS[dialect].tokens:
            counts = self.token_counts.setdefault(dialect, [0, 0])
            counts[0] += 1
            counts[1] += any(token in text for token in tokens)

    def check_dataset(self, provenance: Mapping[str, Any]) -> None:
        """Raises BadLine when the file says that it is about another dataset."""
        name = provenance.get("dataset")
        if name is not None and not self.questions.is_named(name):
            problem = f"the file is about the dataset '{name}', and this is '{self.questions.names[0]}'"
            raise BadLine("dataset", f"{problem}; name that one, or correct the key")

    def finished(self, sha256: str) -> BoxFile:
        """The result. Raises DataError for a frame that is impossible for the whole file, and without any line."""
        seen = self._sense
        if not self.lines and self.file_format == JSON_LINES:
            raise self.error(BadLine("", f"it has no {self.word} with an answer; write one a pair"), 0)
        if seen.pixels and not seen.above:
            problem = "no coordinate of the file is above 1, and the frame is pixels"
            raise self.error(BadLine("frame", f"{problem}; correct the frame, such as unit"), seen.pixels)
        if seen.wide and not seen.narrow:
            problem = f"every box of the file has a coordinate above {_UNIT_MOST}, and the frame is unit"
            raise self.error(BadLine("frame", f"{problem}; correct the frame"), seen.wide)
        places = self.questions.positives
        scored, words = bool(self._scored), bool(self.words)
        negatives = self.negatives.answers(self.questions, None, State.MISSING, scored=scored, words=words)
        return BoxFile(
            path=self.path,
            sha256=sha256,
            file_format=self.file_format,
            positives=self.positives.answers(self.questions, places, State.MISSING, scored=scored, words=words),
            negatives=negatives,
            not_asked=self.questions.negatives - len(negatives),
            unknown_label=self.unknown_label,
            no_region=self.no_region,
            rejected=self.rejected,
            lines=self.lines,
            provenance=self.provenance,
            line_provenance={key: tuple(values.values()) for key, values in self._values.items()},
            frames=dict(self.conventions),
            silence="line" if self.file_format == JSON_LINES else "absent",
            unmatched=self.unmatched,
            tags=dict(self.tags),
            first_unread=self.first_unread,
            tokenless={name: count for name, (count, have) in self.token_counts.items() if not have},
            labelled=self.labelled,
            other_finding=self.other_finding,
            thorax=self.thorax.frame if self.words else None,
            unused_texts={state: tuple(texts) for state, texts in self.unused_texts.items()},
            written=self.positives.written(places),
        )
