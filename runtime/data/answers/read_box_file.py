"""Reads a file of predicted boxes for a dataset (docs/boxes.md)."""

from __future__ import annotations

from pathlib import Path

from .answered import BoxFile
from .bad_line import BadLine
from .box_file import JSON_LINES, FileReading, ReadOptions
from .coco_results import COCO, annotations_given, is_coco_file, read_coco_results
from .grounded_phrases import RADFACT, read_grounded_phrases
from .json_lines import read_json_lines
from .line_keys import LINE_KEYS
from .lines import HashedFile, json_object, opening
from .questions import Questions


def read_boxes(path: Path, questions: Questions, options: ReadOptions | None = None) -> BoxFile:
    """The answers of a file for the pairs of a dataset: JSON Lines, COCO results, or grounded phrases.

    Raises DataError, which names the file, the line, the key and what to do, for what the writer of the file must
    correct. What a model did wrong is counted.
    """
    reading = FileReading(path, questions, options or ReadOptions())
    kind = _kind(path)
    if kind == COCO:
        return reading.finished(read_coco_results(reading))
    if kind == RADFACT:
        return reading.finished(read_grounded_phrases(reading))
    file = HashedFile(path)
    read_json_lines(reading, file)
    return reading.finished(file.sha256)


def _kind(path: Path) -> str:
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
