"""A report that is written without resampling and drawing, and its tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from xbench_fast.runtime.reporting.report import make_report, write_report
from xbench_fast.runtime.reporting.tables.table import Item, Table, cell_of
from xbench_fast.runtime.results.choices import Choices

FILES = [
    "auc_differences.csv", "classes.csv", "coverage.csv", "differences.csv", "recognition.csv",
    "report.json", "table1.csv", "tables.md", "tables.tex",
]  # fmt: skip

SOME = {"paper.csv", "recognition.csv"}  # without rows they are not written


def report(path: Path, choices: Choices | None = None) -> tuple[dict[str, Any], dict[str, Table], str]:
    """The report without resampling and drawing; intervals have tests of their own."""
    made = make_report(path, choices or Choices(replicates=0))
    written = write_report(made, page=False)
    names = {p.name for p in written if p.parent.name != "latex"}
    assert names | SOME == {*FILES, *SOME} and all(p.stat().st_size for p in written)
    data = json.loads((path / "report" / "report.json").read_text())
    return data, {table.title: table for table in made.tables}, (path / "report" / "tables.md").read_text()


def texts(row: tuple[Item, ...]) -> tuple[str, ...]:
    return tuple(cell_of(item).text for item in row)


def rows_of(table: Table) -> dict[str, tuple[str, ...]]:
    """Rows by their first item."""
    return {cell_of(row[0]).text: texts(row[1:]) for row in table.rows}
