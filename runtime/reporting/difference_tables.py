"""Differences between models -> tables (the mean over datasets, each dataset in detail), rows of CSV, and JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

from ...metrics_gpu.statistics.measured_numbers import disagreements
from ..results.comparing.difference import TESTS
from ..results.comparing.model_differences import COMPARED, Differences, Extent, ModelDifference, Overlap
from ..results.load_rows import StoredRun
from ..results.numbers.run_numbers import Results
from ..results.selected_pairs import unnamed_lines
from .notes import caption, in_sample
from .printed_cells import interval_text
from .tables.metric_names import METRICS, NONE, difference_of, heading, p_value
from .tables.stamps import cell_stamps
from .tables.table import Cell, Column, Item, Table
from .word_ceilings import ceiling_notes

_NOTES = (
    "first minus second, percentage points, on the pairs (of AUC: labels) that both models have",
    "intervals: bootstrap over patients, of AUC DeLong's by patient",
    *TESTS,
)


def difference_tables(run: StoredRun, results: Results, differences: Differences) -> Iterator[Table]:
    """The tables of differences; none for a single model. Raises RunError when a result file cannot be read."""
    limits = ceiling_notes(run, (cell.rows for cell in results.finished))
    if any(not item.dataset for item in differences.numbers):
        notes = (*_NOTES, "mean over the datasets on which the two models can be compared", *limits)
        yield _table(results, differences, "", "Differences between models: mean of datasets", notes)
    for dataset in results.datasets:
        numbers = any(item.dataset == dataset for item in differences.numbers)
        if numbers or any(_apart(item) for item in differences.overlaps if item.dataset == dataset):
            title = f"Differences between models: {results.title(dataset)}"
            yield _table(results, differences, dataset, title, (*_NOTES, *limits))


def _table(results: Results, differences: Differences, dataset: str, title: str, notes: tuple[str, ...]) -> Table:
    star = in_sample(results.finished)
    fields = [field for field in (*COMPARED, *results.choices.own) if star or not field.endswith("_cross_fitted")]
    compared_fields = {item.field for item in differences.numbers if item.dataset == dataset}
    fields = [field for field in fields if field in compared_fields] or ["pointing"]
    titles = {field: heading(field, star) for field in fields}
    columns = [Column("first"), Column("second")]
    columns += [Column(part, titles[field], field) for field in fields for part in ("difference", "p", "p (Holm)")]
    met = list(_met(differences, dataset))
    apart = {(item.first, item.second) for item in met if _apart(item)}
    rows: list[tuple[Item, ...]] = []
    for first, second in combinations(results.models, 2):
        items = [differences.of(dataset, field, first, second) for field in fields]
        if not any(items) and (first, second) not in apart:
            continue
        row: list[Item] = [first, second]
        for item in items:
            row.append(_cell(item))
            row += [Cell(p_value(p, item.p_bound)) for p in (item.p, item.p_holm)] if item else [Cell(NONE), Cell(NONE)]
        rows.append(tuple(row))
    shown = results.column(dataset) if dataset else results.finished
    notes = (*notes, *unnamed_lines((cell.title, cell.rows.unnamed) for cell in shown))
    shown_items = [item for item in differences.numbers if item.dataset == dataset and item.field in fields]
    notes = (*notes, *_families(shown_items, titles), *disagreements(shown_items), *_overlap_notes(results, met))
    stamps = cell_stamps([cell for cell in shown if cell.competes])
    name = f"differences-{dataset}" if dataset else "differences"
    where = f"on {results.title(dataset)}" if dataset else "in the mean over datasets"
    what = f"Differences between models {where}: first minus second in percentage points, with p and Holm's correction."
    return Table(
        title,
        tuple(columns),
        tuple(rows),
        stamps,
        notes,
        name,
        detail=bool(dataset),
        caption=caption(results, what, shown),
    )


def _cell(item: ModelDifference | None) -> Cell:
    return (
        Cell(NONE)
        if item is None
        else Cell(difference_of(item.field, item.value), interval_text(item.interval, item.field))
    )


def _met(differences: Differences, dataset: str) -> Iterator[Overlap]:
    """The overlaps that a table uses: those of its dataset, or those of all datasets in a mean."""
    means = {
        (name, item.first, item.second) for item in differences.numbers if not item.dataset for name in item.datasets
    }
    for item in differences.overlaps:
        if item.dataset == dataset or (not dataset and (item.dataset, item.first, item.second) in means):
            yield item


def _apart(overlap: Overlap) -> bool:
    return overlap.pairs.nothing or overlap.labels.nothing


def _overlap_notes(results: Results, met: Sequence[Overlap]) -> Iterator[str]:
    """How many images, pairs and labels were left out, because two models have other images under one name, or one of
    them lacks a pair, or they differ in truth, and where none remain."""
    other: tuple[tuple[str, Callable[[Overlap], int]], ...] = (
        ("image files", lambda item: item.files),
        ("patients", lambda item: item.patients),
    )
    for what, count in other:
        if told := _counts((item, count(item)) for item in met):
            yield (
                f"other {what}: {told}; these images are left out, as they are not the same for the two models; "
                "evaluate again the model that was evaluated before the change"
            )
    kinds: tuple[tuple[str, str, Callable[[Overlap], Extent]], ...] = (
        ("pairs", "regions", lambda item: item.pairs),
        ("labels", "labels", lambda item: item.labels),
    )
    for what, truth, of in kinds:
        alone = _counts((item, of(item).alone if of(item).shared else 0) for item in met)
        if alone:
            yield f"{what} left out, as only one of the two models has them: {alone}"
        changed = _counts((item, of(item).changed) for item in met)
        if changed:
            yield (
                f"{what} left out, as the two models were evaluated with different {truth}: {changed}; evaluate again "
                "the model that was evaluated before the annotations changed"
            )
        for item in met:
            if of(item).nothing:
                where = results.title(item.dataset)
                yield f"{item.first} and {item.second} share no {what} on {where}: no difference can be given"


def _counts(counted: Iterable[tuple[Overlap, int]]) -> str:
    """The counts that are not 0, "3 of a and b", over all datasets."""
    left: dict[str, int] = {}
    for item, count in counted:
        if count:
            name = f"{item.first} and {item.second}"
            left[name] = left.get(name, 0) + count
    return ", ".join(f"{number} of {name}" for name, number in left.items())


def _families(found: Sequence[ModelDifference], titles: Mapping[str, str]) -> Iterator[str]:
    """The number of tests that each column is corrected for."""
    sizes: dict[int, list[str]] = {}
    for field in dict.fromkeys(item.field for item in found if item.p is not None):
        sizes.setdefault(next(item.family for item in found if item.field == field), []).append(titles[field])
    for size, columns in sizes.items():
        yield f"Holm: m = {size} ({', '.join(columns)})"


def difference_row(item: ModelDifference) -> dict[str, Any]:
    """A row of differences.csv."""
    return {
        "dataset": item.dataset or "mean of datasets",
        "number": item.field,
        "first": item.first,
        "second": item.second,
        **_points(item),
        **item.test,
        "datasets": " ".join(item.datasets or (item.dataset,)),
        "shared": item.n,
        "left_out": item.left_out,
    }


def auc_difference_row(item: ModelDifference) -> dict[str, Any]:
    """A row of auc_differences.csv."""
    return {
        "dataset": item.dataset,
        "class": item.name,
        "first": item.first,
        "second": item.second,
        "images": item.n,
        **_points(item),
        "p_delong": item.p,
        "p_holm": item.p_holm,
        "family": item.family,
    }


def _points(item: ModelDifference) -> dict[str, float | None]:
    """A difference in percentage points with its interval."""
    limits = item.limits(METRICS[item.field].scale)
    return {"difference_points": limits.pop("value"), **limits}


def difference_lists(differences: Differences) -> dict[str, list[dict[str, Any]]]:
    """The differences as report.json has them."""
    numbers = [
        _record(item)
        | {"field": item.field, "p_bound": item.p_bound, "shared": item.n}
        | {"datasets": item.datasets, "left_out": item.left_out}
        for item in differences.numbers
    ]
    of_auc = [_record(item) | {"name": item.name, "images": item.n} for item in differences.classes]
    return {"differences": numbers, "auc_differences": of_auc}


def _record(item: ModelDifference) -> dict[str, Any]:
    """What both lists have of a difference."""
    return {
        "dataset": item.dataset,
        "first": item.first,
        "second": item.second,
        "difference": item.value,
        "interval": asdict(item.interval) if item.interval else None,
        "p": item.p,
        "p_holm": item.p_holm,
        "family": item.family,
    }
