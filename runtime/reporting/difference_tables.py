"""Differences between models -> tables: the mean over datasets, and each dataset in detail."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from .cells import interval_text, signed
from .differences import COMPARED, Difference, Differences
from .notes import optimistic
from .printed import NONE, p_value
from .results import Results
from .table import Cell, Column, Item, Table

__all__ = ["difference_tables"]

_TITLES = {"pointing": "Point", "dice_best": "Dice", "dice_honest": "Dice honest", "auc": "AUC"}
_NOTES = (
    "first minus second, percentage points; paired bootstrap over patients, who are the same for both models; "
    "p: two-sided, corrected by Holm's method for all pairs of models of the column",
)


def difference_tables(results: Results, differences: Differences) -> Iterator[Table]:
    """Nothing for a single model."""
    if any(not item.dataset for item in differences.numbers):
        notes = (*_NOTES, "mean over the datasets that both models have")
        yield _table(results, differences, "", "Differences between models: mean of datasets", notes)
    for dataset in results.datasets:
        if any(item.dataset == dataset for item in differences.numbers):
            title = f"Differences between models: {results.title(dataset)}"
            yield _table(results, differences, dataset, title, _NOTES)


def _table(results: Results, differences: Differences, dataset: str, title: str, notes: tuple[str, ...]) -> Table:
    star = optimistic(results.finished)
    fields = [field for field in COMPARED if star or field != "dice_honest"]
    titles = {**_TITLES, "dice_best": "Dice*"} if star else _TITLES
    columns = [Column("first"), Column("second")]
    columns += [Column(part, titles[field]) for field in fields for part in ("difference", "p")]
    delong = {(d.first, d.second): d for d in differences.classes if d.dataset == dataset}
    names = {d.name for d in differences.classes if d.dataset == dataset}
    single = len(names) == 1
    if single:
        columns.append(Column("p DeLong", "AUC"))
        notes = (
            *notes,
            "p DeLong: of the same difference in AUC by DeLong's method, which takes images as independent",
        )
    rows: list[tuple[Item, ...]] = []
    for first, second in combinations(results.models, 2):
        found = [differences.of(dataset, field, first, second) for field in fields]
        if not any(found):
            continue
        row: list[Item] = [first, second]
        for item in found:
            row += [_cell(item), Cell(p_value(item.p_holm if item else None))]
        if single:
            pair = delong.get((first, second))
            row.append(Cell(p_value(pair.p_holm if pair else None)))
        rows.append(tuple(row))
    replicates = results.choices.replicates
    if replicates:
        least = p_value(min(1.0, 2 * len(rows) / (replicates + 1)))
        notes = (*notes, f"{replicates} resamples and {len(rows)} pairs: no corrected p is below {least}")
    shown = results.column(dataset) if dataset else results.finished
    stamps = results.stamps([cell for cell in shown if cell.competes])
    name = f"differences-{dataset}" if dataset else "differences"
    return Table(title, tuple(columns), tuple(rows), stamps, notes, name, detail=bool(dataset))


def _cell(found: Difference | None) -> Cell:
    return Cell(NONE) if found is None else Cell(signed(found.difference), interval_text(found.interval))
