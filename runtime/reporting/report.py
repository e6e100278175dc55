"""From a run directory to a report: the one place that reads, computes and writes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ..evaluation.storage import write_atomic, write_json
from .files import csv_files, to_json
from .load import Run, load_run
from .markdown import to_markdown
from .results import Results
from .table import Table
from .tables import all_tables
from .values import cell_values

__all__ = ["make_results", "report_tables", "write_report"]


def make_results(run: Run) -> Results:
    """All numbers of a run, cell by cell. Raises RunError when a result file cannot be read."""
    values = {(cell.model, cell.dataset): cell_values(cell) for cell in run.cells()}
    return Results(tuple(run.models), tuple(run.datasets), values, dict(run.unfinished))


def report_tables(path: Path) -> tuple[Run, Results, list[Table]]:
    """The run at `path`, its numbers and its tables. Raises RunError."""
    run = load_run(path)
    results = make_results(run)
    return run, results, all_tables(results)


def write_report(run: Run, results: Results, tables: Sequence[Table]) -> list[Path]:
    """Writes report.md, report.json and the CSV files into RUN/report/ and returns their paths. Raises RunError."""
    folder = run.path / "report"
    machine = run.data["machine"]
    facts = [
        f"xbench-fast {run.data['code_version']}, run of {run.data['updated']}",
        f"{machine['cpu']}, {machine['cores']} cores",
        f"{len(results.cells)} of {len(results.models) * len(results.datasets)} (model, dataset) cells finished",
    ]
    texts = {"report.md": to_markdown("Grounding report", facts, tables), **csv_files(results)}
    for name, text in texts.items():
        write_atomic(folder / name, partial(_write, text))
    write_json(folder / "report.json", to_json(results, run.data))
    return [folder / name for name in (*texts, "report.json")]


def _write(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")
