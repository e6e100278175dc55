"""A note about a problem in a dataset's files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Note"]


@dataclass(frozen=True)
class Note:
    """A problem in a dataset's files that does not stop the reading.

    kind: "unknown_class", "duplicate", "degenerate", "disagreement", "not_annotated", "no_images_folder",
    "empty_mask", "fallback", "no_region".
    subject: the class name, case or file it is about. row: line of a CSV, 1-based entry of a JSON list, None: the file.
    """

    kind: str
    subject: str
    file: Path
    row: int | None
    text: str

    def __str__(self) -> str:
        where = f"{self.file}" if self.row is None else f"{self.file}, row {self.row}"
        return f"{where}: {self.text}"
