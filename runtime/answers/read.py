"""Reads a file of predicted boxes for a dataset (docs/boxes.md)."""

from __future__ import annotations

from pathlib import Path

from .answered import BoxFile
from .json_lines import read_json_lines
from .lines import HashedFile
from .questions import Questions
from .reading import FileReading, ReadOptions

__all__ = ["read_boxes"]


def read_boxes(path: Path, questions: Questions, options: ReadOptions | None = None) -> BoxFile:
    """The answers of a file for the pairs of a dataset.

    Raises DataError, which names the file, the line, the key and what to do, for what the writer of the file must
    correct. What a model did wrong is counted.
    """
    reading = FileReading(path, questions, options or ReadOptions())
    file = HashedFile(path)
    read_json_lines(reading, file)
    return reading.finished(file.sha256)
