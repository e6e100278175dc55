"""Numbers -> the tables of recognition and of coverage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...metrics_gpu.statistics.aggregate import macro_mean
from ..results.numbers.cell_values import CellValues
from ..results.numbers.fields import RECOGNITION
from ..results.numbers.run_numbers import Results
from ..results.patients import unnamed_lines
from ..tables.metrics import NONE, heading, percent
from ..tables.stamps import cell_stamps
from ..tables.table import Cell, Column, Item, Table
from .cells import entry, marked
from .notes import caption, interval_notes, ranking_notes, source_notes

if TYPE_CHECKING:
    from .box_scores import BoxScores

__all__ = ["cell_coverage", "coverage", "recognition"]

_COVERAGE = (
    "model",
    "dataset",
    "cases",
    "patients",
    "missing",
    "unreadable",
    "pairs",
    "left out",
    "degenerate maps",
    "sub-pixel regions",
    "outside",
    "clipped",
    "empty",
    "engine",
    "protocol",
    "state",
)


def recognition(results: Results) -> Table:
    """AUC, AUPRC, F1 and accuracy, means over classes, with the classes that could not be counted."""
    choices = results.choices
    auprc = "AUPRC" if choices.auprc == "average_precision" else "AUPRC (trapezoid)"
    f1 = "F1" if choices.f1 == "fixed" else "best F1*"
    titles = [heading(name).replace("AUPRC", auprc).replace("F1", f1) for name in RECOGNITION]
    columns = ("model", "dataset", "classes", "prevalence", *titles, "without AUC", "without AUPRC")
    keys = ("", "", "", "", *RECOGNITION, "", "")
    rows: list[tuple[Item, ...]] = []
    left: list[bool] = []
    for dataset in results.datasets:
        cells = [cell for cell in results.column(dataset) if cell.recognition.classes]  # a baseline has no score
        body, other = marked([[entry(results, cell.model, name, dataset) for name in RECOGNITION] for cell in cells])
        left += other
        for cell, numbers in zip(cells, body, strict=True):
            without = (", ".join(cell.recognition.excluded[name]) or NONE for name in ("auc", "auprc"))
            classes = cell.recognition.classes
            prevalence = Cell(percent(macro_mean(item.prevalence for item in classes if item.auprc is not None)))
            rows.append((cell.model, cell.title, str(len(classes)), prevalence, *numbers, *without))
    shown = [cell for cell in results.finished if cell.recognition.classes]
    best = () if choices.f1 == "fixed" else ("* in-sample: the threshold is the best for these very images",)
    notes = (
        "percent; p = sigmoid(score); F1 and accuracy at p >= 0.5; pair: p = softmax over the positive and the "
        "negative prompt, - where a class has no negative prompt",
        "means over classes; accuracy: over all known (image, class) cells; without AUC: classes with one label value "
        "only, left out of the mean; without AUPRC: classes without a positive, left out",
        *best,
        *interval_notes(results, shown, pairs=False),
        *source_notes(shown),
        *ranking_notes([f"{row[0]} on {row[1]}" for row in rows], left, "labels"),
    )
    return Table(
        "Recognition",
        tuple(map(Column, columns, [""] * len(columns), keys)),
        tuple(rows),
        cell_stamps(shown),
        notes,
        "recognition",
        lead=2,
        caption=caption(results, "Recognition in percent, means over the classes of a dataset.", shown, "images"),
    )


_OF_BOXES = (
    "answered",
    "silent",
    "unparsable",
    "no line",
    "illegal",
    "outside",
    "clipped",
    "duplicate",
    "hallucinated",
)
_BOX_NOTE = (
    "of predicted boxes: silent: no box; unparsable: a box was meant, none could be read; no line: scored as silent; "
    "illegal and outside boxes are dropped, clipped ones are cut at the image; duplicate: about a true box that "
    "another one hits; hallucinated: for absent classes that were asked"
)


def coverage(results: Results, boxes: Sequence[BoxScores] = ()) -> Table:
    """What was evaluated and what could not be. boxes: those of cells of predicted boxes."""
    told = {(found.model, found.dataset): found for found in boxes}
    own = len(_OF_BOXES) if boxes else 0
    rows: list[tuple[Item, ...]] = []
    for model in results.everyone:
        for dataset in results.datasets:
            cell = results.cells.get((model, dataset))
            if cell is None:
                reason = results.unfinished.get((model, dataset), "not evaluated")
                rows.append((model, results.title(dataset), *([NONE] * (len(_COVERAGE) - 3 + own)), reason))
                continue
            later = results.rows[model, dataset].attempt
            state = f"done; {later}" if later else "done"
            found = told.get((model, dataset))
            counts = [*cell_coverage(cell, found).values(), *[NONE] * (own if found is None else 0)]
            rows.append((model, cell.title, *map(str, counts), cell.engine, cell.protocol, state))
    notes = (
        *(f"not asked for on {title}: {names}" for title, names in _not_asked(results)),
        "pairs: (image, class) with a region in a readable image; left out: pairs that the options or the protocol do "
        f"not count, {'of boxes, that have no answer that counts, ' * bool(boxes)}or of a baseline, that the models do "
        "not have; "
        "a degenerate map is constant or not finite and counts as a miss; a sub-pixel region would have "
        "vanished on the 224 grid and is one pixel there; outside: regions outside their image, which are no pairs; "
        "clipped: regions partly outside, which count with the part inside; empty: regions without a pixel, which are "
        "no pairs",
        *([_BOX_NOTE] if boxes else []),
        *_without_scores(results),
        *unnamed_lines((cell.title, cell.unnamed) for cell in results.finished),
        *dict.fromkeys(
            f"{results.title(dataset)}: warning: {text}"
            for (_, dataset), row in results.rows.items()
            for text in row.entry.get("warnings", {}).values()
        ),
    )
    answers = [Column(name, "pairs" if place < 4 else "boxes") for place, name in enumerate(_OF_BOXES[:own])]
    columns = (*map(Column, _COVERAGE[:-3]), *answers, *map(Column, _COVERAGE[-3:]))
    what = (
        "What was evaluated: cases, patients and pairs of every model on every dataset, and what could not be counted."
    )
    return Table(
        "Coverage", columns, tuple(rows), cell_stamps(results.finished), notes, "coverage", lead=2, caption=what
    )


def cell_coverage(cell: CellValues, boxes: BoxScores | None = None) -> dict[str, int]:
    """The numbers of a row of coverage, and of predicted boxes those of their answers."""
    if boxes is None:
        return cell.coverage
    return {**cell.coverage, "left_out": cell.skipped + boxes.stored.left_out, **boxes.coverage}


def _without_scores(results: Results) -> Iterator[str]:
    """Why there is no table of recognition, if there is none."""
    if results.finished and not any(cell.recognition.classes for cell in results.finished):
        yield f"no table of recognition, as none of {len(results.finished)} results has scores of findings"


def _not_asked(results: Results) -> Iterator[tuple[str, str]]:
    """Models and datasets with classes that no prompt asks for: means are over the others."""
    for cell in results.finished:
        row = results.rows[cell.model, cell.dataset]
        left = [name for name in row.entry.get("classes", ()) if name not in row.findings]
        if left:
            yield f"{cell.title} of {cell.model}", ", ".join(left)
