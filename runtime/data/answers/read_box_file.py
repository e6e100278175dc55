"""Reads a file of predicted boxes for a dataset (docs/boxes.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from .answered import BoxFile
from .bad_line import BadLine
from .box_file import JSON_LINES, FileReading, ReadOptions
from .coco_results import COCO, annotations_given, is_coco_file, read_coco_results
from .dialects.dialect_registry import DIALECTS, JSON
from .entry import asked_by, convention, read_answer
from .grounded_phrases import RADFACT, read_grounded_phrases
from .line_keys import HEADER, LINE_KEYS, Settings, header_settings, line_settings
from .lines import HashedFile, json_object, opening
from .questions import Questions
from .words.word_line import word_answers

_WORDS: Final = ("text", "dialect")
"""Keys that make a line one of words, where its dialect is: a header's dialect says nothing of a line with boxes."""


def read_boxes(path: Path, questions: Questions, options: ReadOptions | None = None) -> BoxFile:
    """The answers of a file for the pairs of a dataset: JSON Lines, COCO results, or grounded phrases.

    Raises DataError, which names the file, the line, the key and what to do, for what the writer of the file must
    correct. What a model did wrong is counted.
    """
    reading = FileReading(path, questions, options or ReadOptions())
    file_format = _format_of(path)
    if file_format == COCO:
        return reading.finished(read_coco_results(reading))
    if file_format == RADFACT:
        return reading.finished(read_grounded_phrases(reading))
    file = HashedFile(path)
    _read_json_lines(reading, file)
    return reading.finished(file.sha256)


def _format_of(path: Path) -> str:
    """The format of a file by its beginning, and where that says nothing, by its name."""
    if opening(path) == b"[":  # its line can be of any length
        return COCO
    _, line = next(HashedFile(path).lines(), (0, b""))
    try:
        first = json_object(line)
    except BadLine:
        # A document over several lines; or JSON Lines with an error in the first one.
        return RADFACT if path.suffix.lower() == ".json" else JSON_LINES
    if is_coco_file(first):
        raise annotations_given(path)
    studies = bool(first) and first.keys().isdisjoint(LINE_KEYS) and all(isinstance(v, list) for v in first.values())
    return RADFACT if studies else JSON_LINES


def _read_json_lines(reading: FileReading, file: HashedFile) -> None:
    """Adds every line of the file. Raises DataError."""
    header = Settings()
    first = True
    for number, content in file.lines():
        try:
            line = json_object(content)
        except BadLine as error:
            reading.lines += 1
            reading.bad(_of_another_format(content, error) if first else error, number)
        else:
            if first and HEADER in line:
                header = _header(reading, line, number)
            else:
                reading.lines += 1
                try:
                    _answer(reading, line, header, number)
                except BadLine as error:
                    reading.bad(error, number)
        first = False


def _of_another_format(content: bytes | None, error: BadLine) -> BadLine:
    """The error for a first line; where that begins as no JSON object does, with the formats that are read."""
    if content is None or content.startswith(b"{"):
        return error
    formats = "a file of boxes is JSON Lines, COCO results or RadFact's grounded phrases (docs/boxes.md)"
    return BadLine("", f"{error.text.partition(';')[0]}; {formats}, so convert the file")


def _header(reading: FileReading, line: dict[str, Any], number: int) -> Settings:
    try:
        header = header_settings(line)
        reading.check_dataset(header.provenance)
    except BadLine as error:
        raise reading.error(error, number) from None
    reading.provenance = header.provenance
    return header


def _answer(reading: FileReading, line: dict[str, Any], header: Settings, number: int) -> None:
    settings = line_settings(line, header)
    reading.check_dataset(settings.provenance)
    words = settings.dialect is not None and DIALECTS[settings.dialect].words
    words = words and ("boxes" not in line or not line.keys().isdisjoint(_WORDS))
    reading.is_words(words, number)
    if words:
        asked_one, answers = word_answers(line, settings, reading.questions, reading.thorax)
        reading.add_words(answers, number)
        reading.no_region += asked_one and not answers
        reading.note(settings.dialect or "", settings.provenance)
        return
    row, places = asked_by(line, reading.questions)
    answer = read_answer(line, settings, row, reading.questions)
    text = "text" in line
    if not text or settings.dialect == JSON:
        reading.sense(settings.frame, answer.written, number, text=text)
    reading.add(places, number, answer, scores="scores" in line)
    if text and settings.dialect is not None:
        reading.note_tokens(settings.dialect, line["text"])
    asked = [line[key] for key in ("finding", "phrase") if key in line]
    asked += [reading.questions.pair(pair_number).asked for pair_number in places]
    reading.note_labels(answer.labels, asked)
    reading.no_region += not places
    reading.note(convention(line, settings), settings.provenance)
