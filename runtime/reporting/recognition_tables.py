"""Numbers -> the tables of recognition and of coverage."""

from __future__ import annotations

from collections.abc import Iterator

from ...metrics_gpu.statistics.aggregate import macro_mean
from ..results.numbers.fields import RECOGNITION
from ..results.numbers.run_numbers import Results
from ..results.patients import unnamed_lines
from ..tables.metrics import NONE, heading, percent
from ..tables.stamps import cell_stamps
from ..tables.table import Cell, Column, Item, Table
from .cells import entry, marked
from .notes import caption, interval_notes, ranking_notes, source_notes

__all__ = ["coverage", "recognition"]

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


def coverage(results: Results) -> Table:
    """What was evaluated and what could not be."""
    rows: list[tuple[Item, ...]] = []
    for model in results.everyone:
        for dataset in results.datasets:
            cell = results.cells.get((model, dataset))
            if cell is None:
                reason = results.unfinished.get((model, dataset), "not evaluated")
                rows.append((model, results.title(dataset), *([NONE] * (len(_COVERAGE) - 3)), reason))
                continue
            later = results.rows[model, dataset].attempt
            state = f"done; {later}" if later else "done"
            rows.append((model, cell.title, *map(str, cell.coverage.values()), cell.engine, cell.protocol, state))
    notes = (
        *(f"not asked for on {title}: {names}" for title, names in _not_asked(results)),
        "pairs: (image, class) with a region in a readable image; left out: pairs that the options or the protocol do "
        "not count, or of a baseline, that the models do not have; "
        "a degenerate map is constant or not finite and counts as a miss; a sub-pixel region would have "
        "vanished on the 224 grid and is one pixel there; outside: regions outside their image, which are no pairs; "
        "clipped: regions partly outside, which count with the part inside; empty: regions without a pixel, which are "
        "no pairs",
        *unnamed_lines((cell.title, cell.unnamed) for cell in results.finished),
        *dict.fromkeys(
            f"{results.title(dataset)}: warning: {text}"
            for (_, dataset), row in results.rows.items()
            for text in row.entry.get("warnings", {}).values()
        ),
    )
    columns = tuple(map(Column, _COVERAGE))
    what = (
        "What was evaluated: cases, patients and pairs of every model on every dataset, and what could not be counted."
    )
    return Table(
        "Coverage", columns, tuple(rows), cell_stamps(results.finished), notes, "coverage", lead=2, caption=what
    )


def _not_asked(results: Results) -> Iterator[tuple[str, str]]:
    """Models and datasets with classes that no prompt asks for: means are over the others."""
    for cell in results.finished:
        row = results.rows[cell.model, cell.dataset]
        left = [name for name in row.entry.get("classes", ()) if name not in row.findings]
        if left:
            yield f"{cell.title} of {cell.model}", ", ".join(left)
