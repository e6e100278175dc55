"""Numbers -> the tables of recognition and of coverage."""

from __future__ import annotations

from ...metrics_gpu.aggregate import macro_mean
from .printed import NONE, percent
from .results import Results
from .table import Column, Table
from .values import CellValues

__all__ = ["coverage", "recognition"]

_RECOGNITION = (
    "model",
    "dataset",
    "classes",
    "AUC",
    "AUPRC",
    "prevalence",
    "F1",
    "accuracy",
    "pair F1",
    "pair accuracy",
    "without AUC",
    "without AUPRC",
)
_COVERAGE = (
    "model",
    "dataset",
    "cases",
    "missing",
    "unreadable",
    "pairs",
    "degenerate maps",
    "rescued regions",
    "engine",
    "state",
)


def recognition(results: Results) -> Table:
    """AUC, AUPRC, F1 and accuracy, means over classes, with the classes that could not be counted."""
    notes = (
        "percent; p = sigmoid(score); F1 and accuracy at p >= 0.5; pair: p = softmax over the positive and the "
        "negative prompt, - where a class has no negative prompt",
        "means over classes; accuracy: over all known (image, class) cells; without AUC: classes with one label value "
        "only, left out of the mean; without AUPRC: classes without a positive, left out",
    )
    cells = [cell for cell in results.finished if cell.recognition.classes]  # a baseline has no score
    rows = tuple(map(_recognition_row, cells))
    return Table("Recognition", tuple(map(Column, _RECOGNITION)), rows, results.stamps(cells), notes)


def coverage(results: Results) -> Table:
    """What was evaluated and what could not be."""
    rows: list[tuple[str, ...]] = []
    for model in results.models:
        for dataset in results.datasets:
            cell = results.cells.get((model, dataset))
            if cell is None:
                reason = results.unfinished.get((model, dataset), "not evaluated")
                rows.append((model, results.title(dataset), *([NONE] * 7), reason))
                continue
            numbers = (cell.cases, cell.missing, cell.unreadable, cell.n, cell.grounding.micro.degenerate)
            rows.append((model, cell.title, *map(str, (*numbers, sum(cell.rescued))), cell.engine, "done"))
    notes = (
        "pairs: (image, class) with a region in a readable image; a degenerate map is constant or not finite and "
        "counts as a miss; a rescued region would have vanished on the 224 grid and is one pixel there",
    )
    return Table("Coverage", tuple(map(Column, _COVERAGE)), tuple(rows), results.stamps(results.finished), notes)


def _recognition_row(cell: CellValues) -> tuple[str, ...]:
    found = cell.recognition
    # A mean over some classes only would not stand beside the other columns.
    pair = cell.pair if len(cell.pair.classes) == len(found.classes) else None
    ranked = [item.prevalence for item in found.classes if item.auprc is not None]
    return (
        cell.model,
        cell.title,
        str(len(found.classes)),
        percent(found.auc),
        percent(found.auprc),
        percent(macro_mean(ranked)),
        percent(found.f1),
        percent(found.hamming),
        percent(pair.f1 if pair else None),
        percent(pair.hamming if pair else None),
        ", ".join(found.excluded["auc"]) or NONE,
        ", ".join(found.excluded["auprc"]) or NONE,
    )
