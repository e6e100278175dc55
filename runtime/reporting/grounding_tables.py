"""Numbers -> Table 1 of the paper and the table of thresholds, with intervals, n, floors and the paper's values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from ..results.numbers.cell_values import CellValues
from ..results.numbers.run_numbers import Results
from .notes import (
    FLOOR,
    PRINTED_NOTE,
    best_notes,
    caption,
    delta_note,
    flags,
    floor_note,
    in_sample,
    interval_notes,
    lacking_notes,
    left_out_notes,
    not_asked_notes,
    ranking_notes,
    source_notes,
)
from .paper.paper_numbers import FIELDS, PrintedModel, apart_notes, paper, paper_legend, why_apart, why_mean_apart
from .printed_cells import marked, number_cell
from .tables.metric_names import NONE, heading
from .tables.stamps import cell_stamps
from .tables.table import MEAN_OF_DATASETS, Cell, Column, Item, Table

_FLOORS = {
    "pointing": "chance",
    "dice_best": "floor_dice",
    "dice_cross_fitted": "floor_dice",
    "iou_best": "floor_iou",
    "iou_cross_fitted": "floor_iou",
    "dice_fixed": "floor_dice",
    "iou_fixed": "floor_iou",
}
_OF_BOXES = ("dice_fixed", "iou_fixed")  # stand in Table 1 where there are boxes, which have no best threshold


def table_1(results: Results, beside: bool = True, printed: Sequence[PrintedModel] = ()) -> Table:
    """Model x dataset: pointing, Dice and IoU at the best threshold, in-sample and cross-fitted, above the floor.

    beside: whether the paper's numbers stand beside one's own; printed: rows of the paper.
    """
    star = in_sample(results.finished)
    boxed = any(cell.weights == "boxes" for cell in results.finished)
    maps = not boxed or any(cell.competes and cell.weights != "boxes" for cell in results.finished)
    names: list[str] = [name for name in _FLOORS if star or not name.endswith("cross_fitted")]
    names = [name for name in names if (boxed if name in _OF_BOXES else maps or name == "pointing")]
    parts = {"": True, "best": maps, "cross_fitted": maps and star, "fixed": boxed}
    names += [name for name in results.choices.own if parts[name.part]]
    titles = {name: heading(name, star) for name in names}
    groups = [*map(results.title, results.datasets), MEAN_OF_DATASETS]
    columns = [Column("model"), *(Column(title, group, key) for group in groups for key, title in titles.items())]
    columns += [Column("delta Dice", MEAN_OF_DATASETS, "delta_dice")] * maps
    lead = list(_lead(results, tuple(titles)))
    body, left = marked([_row(results, model, tuple(titles), beside) for model in results.models])
    quoted = {row: _printed_row(results, row.family, tuple(titles)) for row in printed}
    printed = [row for row, items in quoted.items() if set(items) != {NONE}]
    of_models: list[tuple[Item, ...]] = []
    for model, row in zip(results.models, body, strict=True):
        count, total = sum(1 for cell in results.row(model) if cell.n), len(results.datasets)
        lacks = results.lacking(model, "pointing") or (f"{count} of {total} datasets" if 0 < count < total else "")
        of_models.append((Cell(model, note=lacks) if lacks else model, *row))
    rows = [*lead, *(with_printed(of_models, printed, lambda row: quoted[row]) if printed else of_models)]
    if not maps:
        rows = [row[:-1] for row in rows]  # without delta Dice
    cells, of_paper = results.finished, paper()
    shown = [
        (f"{cell.family}, {cell.title}, {titles[name]}", of_paper.table1.get((cell.family, cell.reader, name)))
        for cell in (cells if beside else ())
        for name in FIELDS
        if name in titles
    ]
    shown += [
        (
            f"{row.name}, {results.title(dataset)}, {titles[name]}",
            of_paper.table1.get((row.family, _reader(results, dataset), name)),
        )
        for row in printed
        for dataset in results.datasets
        for name in FIELDS
        if name in titles
    ]
    if (beside or printed) and any(
        cell.family in of_paper.delta_dice and cell.reader in of_paper.datasets for cell in cells
    ):
        shown.append(("delta Dice", next(iter(of_paper.delta_dice.values()))))
    over = "unweighted mean over" if results.choices.mean == "macro" else "mean weighted by pairs over"
    then = (
        ", then over datasets"
        if results.choices.mean_datasets == "macro"
        else ", then over datasets weighted by their pairs"
    )
    then = then if len(results.datasets) > 1 else ""
    searched = best_notes([cell for cell in cells if cell.weights != "boxes"]) if maps else ()
    drawn = interval_notes(results, cells)
    meaning = ("cross-fitted: ", "[low, high]")
    notes = (
        *(note for note in searched if not note.startswith(meaning)),
        *ranking_notes(results.models, left),
        *left_out_notes(results),
        *not_asked_notes(cells),
        *lacking_notes(results, (*titles, *["delta_dice"] * maps)),
        *(note for note in drawn if not note.startswith(meaning)),
        *source_notes(cells),
        *apart_notes(cells, body, means=beside),
        *[PRINTED_NOTE] * bool(printed),
        *flags(shown),
    )
    legend = (
        f"percent; {over} the classes of a dataset that have pairs{then}; {NONE} means no result; "
        "best value of a column bold, second best underlined "
        "(italic in Markdown)",
        *(note for note in (*searched, *drawn) if note.startswith(meaning)),
        *(("boxes: Dice and IoU of their union, which has no threshold; silence is 0",) * boxed),
        floor_note(results, cells),
        *(["delta Dice: Dice at the best threshold minus Dice at threshold 0.5, percentage points"] * maps),
        *paper_legend(body),
    )
    what = caption(
        results,
        "Grounding in percent. Point: share of pairs whose map has its maximum in the region; Dice and IoU of the map "
        "cut at its best threshold; means over the classes of a dataset.",
        cells,
    )
    table = Table(
        "Table 1: grounding",
        tuple(columns),
        tuple(rows),
        cell_stamps(cells),
        notes,
        "table1",
        turns="dataset",
        first=True,
        caption=what,
        legend=legend,
    )
    return table.of_one_dataset() if len(results.datasets) == 1 else table


def thresholds(results: Results) -> Table:
    """Model x dataset: Dice at 0.5, and what the best threshold adds to it, in-sample and cross-fitted."""
    own = [name for name in results.choices.own if name.part == "fixed"]
    titles = {name: heading(name) for name in ("dice_fixed", "iou_fixed", *own, "delta_dice", "delta_cross_fitted")}
    groups = [*map(results.title, results.datasets), MEAN_OF_DATASETS]
    columns = (Column("model"), *(Column(title, group, key) for group in groups for key, title in titles.items()))

    places = (*results.datasets, "")  # the mean over datasets has no name
    cells, left = marked(
        [
            [number_cell(results.number(model, place, field), field) for place in places for field in titles]
            for model in results.models
        ]
    )
    rows: list[tuple[Item, ...]] = [(model, *row) for model, row in zip(results.models, cells, strict=True)]
    notes = (
        f"percent; {delta_note(results.finished)}",
        *interval_notes(results, results.finished),
        *ranking_notes(results.models, left),
        *lacking_notes(results, tuple(titles)),
    )
    table = Table(
        "Threshold sensitivity",
        columns,
        tuple(rows),
        cell_stamps(results.finished),
        notes,
        "thresholds",
        turns="dataset",
        caption=caption(
            results,
            "Dice and IoU of maps cut at 0.5, and the percentage points that the best threshold adds to Dice (delta).",
            results.finished,
        ),
    )
    return table.of_one_dataset() if len(results.datasets) == 1 else table


def shared_rows(label: str, rows: Mapping[str, tuple[Item, ...]]) -> Iterator[tuple[Item, ...]]:
    """One row for all models that were scored on the same pairs; of several rows each names its models, but that of
    most models."""
    models: dict[tuple[Item, ...], list[str]] = {}
    for model, items in rows.items():
        models.setdefault(items, []).append(model)
    most, second = sorted([0, 0, *map(len, models.values())], reverse=True)[:2]
    if most == second:
        most = 0
    for items, names in sorted(models.items(), key=lambda item: len(item[1]) != most):
        yield (label if len(names) == most else f"{label}, {', '.join(names)}", *items)


def _lead(results: Results, names: Sequence[str]) -> Iterator[tuple[Item, ...]]:
    """The rows of n and of the floor, once if all models were scored on the same pairs."""
    blank, none = [""] * (len(names) - 1), (NONE,) * len(names)
    counts: dict[str, tuple[Item, ...]] = {}
    floors: dict[str, tuple[Item, ...]] = {}
    for model in results.models:
        if not (row := results.row(model)):
            continue
        row_cells = (results.cells.get((model, dataset)) for dataset in results.datasets)
        groups = [[cell] if cell else [] for cell in row_cells]
        groups.append([] if results.lacking(model, "pointing") else row)
        of_pairs = ([str(sum(cell.n for cell in cells)), *blank] if cells else none for cells in groups)
        of_floors = (_floor_items(results, names, cells) if cells else none for cells in groups)
        counts[model], floors[model] = ((*chain.from_iterable(parts), "") for parts in (of_pairs, of_floors))
    for label, rows in (("n pairs", counts), (FLOOR, floors)):
        whole = [row for model, row in rows.items() if len(results.row(model)) == len(results.datasets)]
        if whole and all(_fits(row, whole[0], len(names)) for row in rows.values()):
            yield (label, *whole[0])
        else:
            yield from shared_rows(label, rows)


def _floor_items(results: Results, names: Sequence[str], cells: Sequence[CellValues]) -> tuple[Item, ...]:
    """The floors of these numbers on one dataset, or in the mean over the datasets of a model."""
    own = results.choices.own
    floors = [_FLOORS.get(name, "") for name in names]
    if len(cells) == 1:
        found: list[Item] = [number_cell(cells[0].number(field), field) if field else "" for field in floors]
    else:
        model = cells[0].model
        found = [
            "" if name in own
            else NONE if results.number(model, "", name).value is None
            else number_cell(results.number(model, "", field), field)
            for name, field in zip(names, floors, strict=True)
        ]  # fmt: skip
    # With a tolerance, a random pixel hits more often than the region's share of the image.
    blind = results.choices.tolerance_px > 0
    return tuple("" if blind and name == "pointing" else item for name, item in zip(names, found, strict=True))


def _fits(row: tuple[Item, ...], whole: tuple[Item, ...], width: int) -> bool:
    """Whether a row equals `whole` wherever it has a value; means of a row with gaps are over other datasets."""
    holes = any(item == NONE for item in row)
    end = len(row) - width - 1 if holes else len(row)
    return all(a in (b, NONE) for a, b in zip(row[:end], whole[:end], strict=True))


def with_printed(
    rows: Sequence[tuple[Item, ...]], printed: Sequence[PrintedModel], make: Callable[[PrintedModel], tuple[Item, ...]]
) -> Iterator[tuple[Item, ...]]:
    """The rows of the models with those of the paper in their places."""
    for position in range(len(rows) + 1):
        yield from ((row.label, *make(row)) for row in printed if min(row.above, len(rows)) == position)
        yield from rows[position : position + 1]


def _printed_row(results: Results, family: str, names: Sequence[str]) -> tuple[Item, ...]:
    """What the paper prints for a model; it prints no means over datasets but that of delta Dice."""
    readers = [_reader(results, dataset) for dataset in results.datasets]
    numbers = [paper().table1.get((family, reader, name)) for reader in readers for name in names]
    delta = paper().delta_dice.get(family) if set(readers) & set(paper().datasets) else None
    return tuple(item.text if item else NONE for item in (*numbers, *[None] * len(names), delta))


def _reader(results: Results, dataset: str) -> str:
    return next((cell.reader for cell in results.column(dataset)), "")


def _row(results: Results, model: str, names: Sequence[str], beside: bool) -> list[Cell]:
    """One model: each dataset with the paper's values, the means over datasets, delta Dice with the paper's."""
    items = []
    for dataset in results.datasets:
        cell = results.cells.get((model, dataset))
        for name in names:
            printed = paper().table1.get((cell.family, cell.reader, name)) if cell and beside else None
            reasons = why_apart(cell) if cell and printed else ()
            items.append(number_cell(results.number(model, dataset, name), name, printed, reasons))
    items += [number_cell(results.number(model, "", name), name) for name in names]
    cells = results.row(model)
    of_paper = beside and any(cell.reader in paper().datasets for cell in cells)
    printed = paper().delta_dice.get(cells[0].family) if of_paper else None
    reasons = why_mean_apart(cells) if printed else ()
    return [*items, number_cell(results.number(model, "", "delta_dice"), "delta_dice", printed, reasons)]
