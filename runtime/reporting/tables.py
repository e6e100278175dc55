"""Numbers -> tables in the paper's shape: Table 1 and the per-class Tables 2 to 5, with n and floors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...metrics_gpu.grounding import GroundingScores
from .printed import NONE, percent
from .recognition_tables import coverage, recognition
from .results import Results
from .stamps import OPTIMISTIC
from .table import Column, Table
from .values import CellValues

__all__ = ["all_tables"]

FLOOR = "all-ones"
FLOOR_NOTE = f"{FLOOR}: the value of a mask that covers the whole image; best-threshold numbers cannot fall below it"


def all_tables(results: Results) -> list[Table]:
    """Every table of a report, in the order it is read."""
    tables = [_table_1(results)]
    for dataset in results.datasets:
        if any(cell.n for cell in results.column(dataset)):
            tables += [_class_pointing(results, dataset), _class_dice(results, dataset)]
    return [*tables, recognition(results), coverage(results)]


def _table_1(results: Results) -> Table:
    """Model x dataset: pointing, and Dice and IoU at the best threshold of each class, floors beside them."""
    columns = [Column("model")]
    for title in [*map(results.title, results.datasets), "mean of datasets"]:
        columns += [Column(name, title) for name in ("Point", "Dice*", FLOOR, "IoU*", FLOOR)]
    columns.append(Column("delta Dice", "mean of datasets"))
    names = ("pointing", "dice_best", "floor_dice", "iou_best", "floor_iou")
    rows = []
    for model in results.models:
        mean, count = results.mean(model)
        row = [f"{model} ({count} of {len(results.datasets)} datasets)" if 0 < count < len(results.datasets) else model]
        for dataset in results.datasets:
            cell = results.cells.get((model, dataset))
            row += [percent(getattr(cell.grounding.macro, name) if cell else None) for name in names]
        row += [percent(mean[name]) for name in names]
        delta = mean["delta_dice"]
        rows.append((*row, percent(None if delta is None else delta / 100)))
    pairs = [f"{results.title(d)} {_agreed(results.column(d), lambda cell: cell.n)}" for d in results.datasets]
    notes = (
        f"* {OPTIMISTIC}",
        f"{FLOOR_NOTE}; that of IoU is also the chance level of Point",
        f"n pairs: {'; '.join(pairs)}",
        "percent; mean over the classes of a dataset that have pairs, then over datasets; - means no result",
        "delta Dice: Dice* minus Dice at threshold 0.5, percentage points",
    )
    return Table("Table 1: grounding", tuple(columns), tuple(rows), results.stamps(results.finished), notes)


def _class_pointing(results: Results, dataset: str) -> Table:
    """Pointing per class of one dataset, as in the paper's Tables 2 to 5."""
    names, cells = _class_names(results, dataset), results.column(dataset)
    rows = list(_shared_rows("n", cells, lambda cell: ("", *(str(_n(cell, name)) for name in names))))
    rows += _shared_rows("chance", cells, lambda cell: _percents(cell, names, "chance"))
    rows += [(model, *_percents(results.cells.get((model, dataset)), names, "pointing")) for model in results.models]
    columns = (Column("model"), Column("Mean"), *map(Column, names))
    notes = ("percent; chance: the mean region fraction of the class",)
    return Table(f"{results.title(dataset)}: pointing per class", columns, tuple(rows), results.stamps(cells), notes)


def _class_dice(results: Results, dataset: str) -> Table:
    """Dice per class of one dataset at each class's best threshold, the floor beside it."""
    names, cells = _class_names(results, dataset), results.column(dataset)
    columns = [Column("model"), Column("Dice*", "Mean"), Column(FLOOR, "Mean")]
    for name in names:
        columns += [Column("Dice*", name), Column(FLOOR, name), Column("tau*", name)]
    rows = list(
        _shared_rows("n", cells, lambda cell: ("", "", *(t for name in names for t in (str(_n(cell, name)), "", ""))))
    )
    for model in results.models:
        cell = results.cells.get((model, dataset))
        best, floor = _percents(cell, names, "dice_best"), _percents(cell, names, "floor_dice")
        row = [model, best[0], floor[0]]
        for index, name in enumerate(names, 1):
            tau = scores.best_tau if cell and (scores := cell.scores(name)) else None
            row += [best[index], floor[index], NONE if tau is None else f"{tau:.2f}"]
        rows.append(tuple(row))
    notes = (f"* {OPTIMISTIC}", FLOOR_NOTE, "percent; tau*: the threshold")
    title = f"{results.title(dataset)}: Dice per class at the best threshold"
    return Table(title, tuple(columns), tuple(rows), results.stamps(cells), notes)


def _class_names(results: Results, dataset: str) -> list[str]:
    """Classes that have a pair in any model's cell, in the dataset's order."""
    cells = results.column(dataset)
    names = dict.fromkeys(name for cell in cells for name in cell.names)
    return [name for name in names if any(_n(cell, name) for cell in cells)]


def _n(cell: CellValues, name: str) -> int:
    scores = cell.scores(name)
    return scores.n if scores else 0


def _percents(cell: CellValues | None, names: Sequence[str], field: str) -> tuple[str, ...]:
    """A number of the mean over classes, then of each class."""
    found: list[GroundingScores | None] = [None] * (len(names) + 1)
    if cell is not None:
        found = [cell.grounding.macro, *(cell.scores(name) for name in names)]
    return tuple(percent(getattr(scores, field) if scores else None) for scores in found)


def _shared_rows(
    label: str, cells: Sequence[CellValues], row: Callable[[CellValues], tuple[str, ...]]
) -> Iterator[tuple[str, ...]]:
    """One row where all models agree, else one per model: they did not meet the same pairs then."""
    rows = {cell.model: row(cell) for cell in cells}
    if len(set(rows.values())) == 1:
        yield (label, *next(iter(rows.values())))
        return
    for model, texts in rows.items():
        yield (f"{label}, {model}", *texts)


def _agreed(cells: Sequence[CellValues], number: Callable[[CellValues], int]) -> str:
    """The number all cells agree on, or each model's."""
    found = {cell.model: number(cell) for cell in cells}
    if len(set(found.values())) == 1:
        return str(next(iter(found.values())))
    return ", ".join(f"{value} ({model})" for model, value in found.items()) or "0"
