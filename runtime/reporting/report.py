"""A run directory -> a report: reads the run, computes the numbers, writes and draws."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...engines.errors import MissingExtraError, RunError, XBenchError
from ..host.protocols import PROTOCOLS
from ..results.choices import DEFAULTS, Choices
from ..results.load_rows import StoredRun
from ..results.numbers.run_numbers import Results, make_results, split_by_protocol
from ..results.run_json import read_run
from ..results.storage import remove_drafts, write_bytes, write_json
from .answer_files import answer_files
from .class_tables import class_auc, class_dice, class_pointing, recognition
from .csv_and_json import csv_files, to_json
from .grounding_tables import table_1, thresholds
from .paper.paper_numbers import PrintedModel
from .presentation import EVERYTHING, Presentation
from .provenance import coverage, hashes, provenance, provenance_table
from .tables.latex import WRITTEN, latex_files
from .tables.markdown_csv import to_markdown
from .tables.stamps import cell_stamps
from .tables.table import Table

if TYPE_CHECKING:
    from ..host.config import DatasetConfig
    from ..results.comparing.model_differences import Differences
    from .appendix import Appendix
    from .box_scores import BoxScores
    from .figures import Figure
    from .gallery.model import Gallery
    from .phrase_tables import PhraseRow
    from .word_scores import WordScores

Block = tuple[Results, "Differences | None"]
"""The results of one protocol, and the differences between their models if there are several."""

_TITLE = "Grounding report"
_EARLIER = ("report.md",)  # file names of earlier versions, to be deleted
_SOME = ("boxes", "published", "words", "paper", "recognition")  # tables for programs that only some reports have
_APART = ("coverage", "provenance")  # names of tables that follow the gallery, or are shown as provenance


@dataclass(frozen=True)
class Report:
    """A run, its numbers and its tables; a run with results of several protocols has a block for each. facts: what a
    reader must know of the whole run. appendix: its trust cards, whose tables are among `tables`."""

    run: StoredRun
    results: Results
    blocks: Sequence[Block]
    tables: Sequence[Table]
    facts: Mapping[str, str]
    presentation: Presentation = EVERYTHING
    boxes: Sequence[BoxScores] = ()
    phrases: Sequence[PhraseRow] = ()
    words: Sequence[WordScores] = ()
    appendix: Appendix | None = None


def make_report(
    path: Path,
    choices: Choices = DEFAULTS,
    presentation: Presentation = EVERYTHING,
    advance: Callable[[int], None] = lambda count: None,
) -> Report:
    """The report of the run at `path`; advance: as in `make_results`.

    Raises RunError, and ConfigError for choices that do not fit the run.
    """
    data = read_run(path)
    run = StoredRun(path, data if presentation == EVERYTHING else presentation.of(data))
    results = make_results(run, choices, advance)
    parts = split_by_protocol(results)
    blocks: tuple[Block, ...] = tuple((part, None) for part in parts)
    if len({cell.model for cell in results.finished if cell.competes}) > 1:
        from ..results.comparing.model_differences import find_differences

        blocks = tuple((part, find_differences(part)) for part in parts)
    boxes: Sequence[BoxScores] = ()
    words: Sequence[WordScores] = ()
    if any(cell.rows.boxed for cell in results.finished):
        from .box_scores import box_scores
        from .word_scores import word_scores

        boxes, words = box_scores(run, results, presentation.scorers), word_scores(run, results)
    phrases: Sequence[PhraseRow] = ()
    if any(cell.protocol == "biovil" for cell in results.finished):
        from .phrase_tables import phrase_rows

        phrases = phrase_rows(run, results)
    tables = [*report_tables(run, results, blocks, presentation, boxes, phrases)]
    if words:
        from .word_tables import word_tables

        tables += word_tables(words)
    if presentation.columns:
        tables = [table.chosen(presentation.columns) for table in tables]
    if presentation.intervals != "below":
        tables = [table.with_intervals(presentation.intervals) for table in tables]
    running = {"evaluation": run.running} if run.running else {}
    facts = {**running, **provenance(results, run.data), **({} if presentation == EVERYTHING else presentation.told)}
    return Report(run, results, blocks, tables, facts, presentation, boxes, phrases, words)


def report_tables(
    run: StoredRun,
    results: Results,
    blocks: Sequence[Block],
    presentation: Presentation = EVERYTHING,
    boxes: Sequence[BoxScores] = (),
    phrases: Sequence[PhraseRow] = (),
) -> Iterator[Table]:
    """Every table, in reading order: those of each block, then those of the whole run. Raises RunError."""
    printed = presentation.printed(run.data) if presentation.models else ()
    beside = not presentation.columns or "paper" in presentation.columns
    for found, differences in blocks:
        for table in _block_tables(run, found, differences, beside, printed):
            yield replace(
                table, title=found.titled(table.title), name=found.named(table.name), notes=(*found.apart, *table.notes)
            )
    yield coverage(results, boxes)
    yield provenance_table(results, run.data)
    told = {entry.get("protocol") for entry in run.data["cells"].values()}
    if any(PROTOCOLS[name].native_size for name in told.intersection(PROTOCOLS)):
        from .native_tables import native_tables

        yield from native_tables(run)
    if phrases:
        from .phrase_tables import phrase_tables

        yield from phrase_tables(results, phrases)
    if boxes:
        from .box_tables import box_tables

        yield from box_tables(boxes, results)


def _block_tables(
    run: StoredRun, results: Results, differences: Differences | None, beside: bool, printed: Sequence[PrintedModel]
) -> Iterator[Table]:
    yield table_1(results, beside, printed)
    for dataset in results.datasets:
        if any(cell.n for cell in results.column(dataset)):
            yield class_pointing(results, dataset, beside, printed)
            yield class_dice(results, dataset)
    yield thresholds(results)
    if any(cell.recognition.names for cell in results.finished):
        yield recognition(results)
    for dataset in results.datasets:
        # With one class, the table of recognition already has these numbers.
        if any(len(cell.recognition.names) > 1 for cell in results.column(dataset)):
            yield class_auc(results, dataset)
    if differences is not None and differences.overlaps:
        from .difference_tables import difference_tables

        yield from difference_tables(run, results, differences)


def write_report(
    report: Report,
    *,
    out: Path | None = None,
    page: bool = True,
    say: Callable[[str], None] = lambda line: None,
    datasets: Mapping[str, DatasetConfig] | None = None,
) -> list[Path]:
    """Writes the tables into `out`, RUN/report/ without it, and unless `page` is false the figures and index.html; if
    it is false, those of an earlier report stay.

    Tables are written first, so that they exist if drawing fails. `say` is called with a sentence about each part
    that could not be made. `datasets`: current folders of radiographs, if they moved since the run. Returns the paths
    written. Raises RunError when a file cannot be written.
    """
    folder = out or report.run.path / "report"
    remove_drafts(folder)
    facts = [f"{name}: {text}" for name, text in report.facts.items()]
    raw = report.presentation.raw_csv
    latex = latex_files(_TITLE, facts, report.tables, report.presentation.text_width)
    texts = {
        "tables.md": to_markdown(_TITLE, facts, report.tables),
        "tables.tex": latex["tables.tex"],
        **csv_files(report.results, report.blocks, report.boxes, raw=raw),
    }
    told = to_json(report.results, report.blocks, report.run.data) | {"names": dict(report.presentation.names)}
    answers, parts = answer_files(report.boxes, report.words, report.phrases, raw=raw)
    texts, told = texts | answers, told | parts
    if report.appendix is not None:
        told[report.appendix.name] = report.appendix.data
    texts = {name: text for name, text in texts.items() if text} | latex
    for name, text in texts.items():
        # A file name may hold bytes that are not valid text; the report must not fail on them.
        write_bytes(folder / name, text.encode("utf-8", "replace"))
    write_json(folder / "report.json", told)
    for name in _EARLIER if out is None else ():
        (folder / name).unlink(missing_ok=True)
    _remove_tables(folder, keep=texts)
    written = [folder / name for name in (*texts, "report.json")]
    if report.appendix is not None:
        written += report.appendix.write(folder)
    elif (folder / "cards").is_dir():  # of an earlier report
        from .appendix import remove_files

        remove_files(folder / "cards")
    if page:
        return [*draw_report(report, folder, say, datasets), *written]
    earlier = [name for name in ("index.html", "figures") if (folder / name).exists()]
    if earlier:
        say(f"{' and '.join(earlier)} in {folder} are of an earlier report: their numbers can differ from the tables'.")
    return written


def draw_report(
    report: Report, folder: Path, say: Callable[[str], None], datasets: Mapping[str, DatasetConfig] | None = None
) -> list[Path]:
    """Writes figures/ and index.html into `folder` and returns the paths written; arguments as in `write_report`.

    Without the packages of the extra `report`, `say` is called with a sentence and the parts that need them are left
    out. Raises RunError when a file cannot be written.
    """
    from .figures import all_figures
    from .figures.figure_2_overlays import overlays_figure
    from .page import PageContent, page_text

    results, facts = report.results, report.facts
    gallery, reason = _gallery(report, datasets)
    figures: list[Figure] = []
    try:
        grid = overlays_figure(results, gallery) if gallery else None
        figures = [*([grid] if grid else []), *(f for block, _ in report.blocks for f in all_figures(block))]
        if report.words:
            from .figures.figure_words import word_figures

            figures += word_figures(report.words)
    except MissingExtraError as error:
        say(str(error))
    studied: dict[str, Any] = {}
    if (errors := report.run.path / "studies" / "errors" / "errors.json").is_file():
        from .studied_errors import studied_errors

        study = studied_errors(report.run, errors, results.choices)
        figures, studied = [*figures, *study.figures], {"examples": study.examples}
        if study.remark:
            say(study.remark)
    written = []
    for figure in figures:
        for name, data in figure.files.items():
            written.append(folder / "figures" / name)
            write_bytes(written[-1], data)
    for path in (folder / "figures").glob("*.*"):  # of an earlier report
        if path.suffix in (".pdf", ".svg", ".png") and path not in written:
            path.unlink(missing_ok=True)
    content = PageContent(
        title=_TITLE,
        stamps=cell_stamps(results.finished),
        provenance={**facts, "results": hashes(results, report.run.data)},
        tables=[table for table in report.tables if table.name not in _APART],
        figures=figures,
        **studied,
        gallery=gallery,
        gallery_reason=reason,
        facts=[f"xbench-fast {facts['xbench-fast']}", facts["cells"], facts["run"]],
        coverage=[table for table in report.tables if table.name == "coverage"],
        models=results.models,
        links=report.appendix.links if report.appendix else (),
    )
    try:
        write_bytes(folder / "index.html", page_text(content).encode())
    except MissingExtraError as error:
        say(str(error))
        (folder / "index.html").unlink(missing_ok=True)  # of an earlier report
        return written
    return [folder / "index.html", *written]


def _gallery(report: Report, datasets: Mapping[str, DatasetConfig] | None) -> tuple[Gallery | None, str]:
    from .gallery.assembly import make_gallery

    try:
        return make_gallery(report.run, report.results, datasets=datasets)
    except RunError as error:
        return None, str(error)
    except XBenchError as error:
        return None, f"There are no overlays: {error}"


def _remove_tables(folder: Path, keep: Iterable[str]) -> None:
    """Deletes tables of an earlier report that this one does not have, but no LaTeX that was not written by it."""
    stems = {*_SOME, *(Path(name).stem for name in keep if name.endswith(".csv"))}
    ends = ("", *(f"-{kind}" for kind in PROTOCOLS))
    for name in {f"{stem}{end}.csv" for stem in stems for end in ends}.difference(keep):
        (folder / name).unlink(missing_ok=True)
    for path in (folder / "latex").glob("*.tex"):
        own = WRITTEN in path.read_text(encoding="utf-8", errors="replace")[:5000]
        if own and f"latex/{path.name}" not in keep:
            path.unlink(missing_ok=True)
