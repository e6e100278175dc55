"""From a run directory to a report: the one place that reads, computes and writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..comparing.model_differences import Differences, find_differences
from ..results.choices import DEFAULTS, Choices
from ..results.load import StoredRun, load_run
from ..results.numbers.compute import make_results
from ..results.numbers.run_numbers import Results
from ..results.storage import write_atomic, write_json
from ..tables.latex import to_latex
from ..tables.markdown import to_markdown
from ..tables.table import Table
from .document import to_json
from .files import csv_files
from .native import native_tables
from .provenance import provenance
from .tables import all_tables

if TYPE_CHECKING:
    from ..host.config import DatasetConfig

__all__ = ["Report", "make_report", "write_report"]

TITLE = "Grounding report"
_EARLIER = ("report.md",)  # names of earlier versions, which would stay behind


@dataclass(frozen=True)
class Report:
    """A run, its numbers and its tables."""

    run: StoredRun
    results: Results
    differences: Differences
    tables: Sequence[Table]

    @cached_property
    def facts(self) -> dict[str, str]:
        """What a reader must know of the whole run."""
        return provenance(self.results, self.run.data)


def make_report(path: Path, choices: Choices = DEFAULTS) -> Report:
    """The report of the run at `path`. Raises RunError, and ConfigError for choices that do not fit the run."""
    run = load_run(path)
    results = make_results(run, choices)
    differences = find_differences(results)
    tables = [*all_tables(results, differences, run.data), *native_tables(run)]
    return Report(run, results, differences, tables)


def write_report(
    report: Report,
    *,
    out: Path | None = None,
    page: bool = True,
    say: Callable[[str], None] = lambda line: None,
    datasets: Mapping[str, DatasetConfig] | None = None,
) -> list[Path]:
    """Writes the tables into `out`, RUN/report/ without it, and unless `page` is false the figures and index.html.

    Tables are written first: whatever becomes of the drawing, they are there. `say` is told, in a sentence, what could
    not be made and why. `datasets`: where radiographs are now, if not where the run found them. Returns the paths
    written. Raises RunError when the disk refuses.
    """
    folder = out or report.run.path / "report"
    facts = [f"{name}: {text}" for name, text in report.facts.items()]
    texts = {
        "tables.md": to_markdown(TITLE, facts, report.tables),
        "tables.tex": to_latex(TITLE, facts, report.tables),
        **csv_files(report.results, report.differences),
    }
    for name, text in texts.items():
        write_atomic(folder / name, partial(_write, text))
    write_json(folder / "report.json", to_json(report.results, report.differences, report.run.data))
    for name in _EARLIER if out is None else ():
        (folder / name).unlink(missing_ok=True)
    written = [folder / name for name in (*texts, "report.json")]
    from .illustrate import illustrate, remove_drawn

    if not page:
        remove_drawn(folder)
        return written

    drawn = illustrate(folder, TITLE, report.run, report.results, report.tables, report.facts, say, datasets)
    return [*drawn, *written]


def _write(text: str, path: Path) -> None:
    # A name from a file system may hold bytes that are no text; they must not lose the report.
    path.write_text(text, encoding="utf-8", errors="replace")
