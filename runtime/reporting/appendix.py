"""What another room adds to a report: tables, files in a folder of their own, links of the page, and plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..results.storage import write_bytes
from .tables.table import Table


@dataclass(frozen=True)
class Appendix:
    """name: the key of `data` in report.json. folder: of all `files`, path in the report -> content. links: words and
    path of the files that the page leads to."""

    name: str
    folder: str
    tables: Sequence[Table] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    links: Sequence[tuple[str, str]] = ()
    data: Any = None

    def write(self, report: Path) -> list[Path]:
        """Writes the files into the report's folder, deletes those of an earlier report, and returns the paths. Raises
        RunError."""
        written = [report / name for name in self.files]
        for path, content in zip(written, self.files.values(), strict=True):
            write_bytes(path, content)
        remove_files(report / self.folder, written)
        return written


def remove_files(folder: Path, keep: Sequence[Path] = ()) -> None:
    """Deletes the files of an appendix of an earlier report, and the folder if nothing else is in it."""
    for path in folder.glob("*.*"):
        if path.suffix in (".html", ".json", ".pdf", ".svg", ".png") and path not in keep:
            path.unlink(missing_ok=True)
    with suppress(OSError):  # other files stay
        folder.rmdir()
