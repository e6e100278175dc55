"""Numbers -> tables of pointing per class, as the paper's Tables 2 to 5, of Dice per class, and of recognition."""

from __future__ import annotations

from collections.abc import Sequence

from ...metrics_gpu.statistics.bootstrap import macro_mean
from ..results.numbers.cell_values import CellValues
from ..results.numbers.fields import RECOGNITION
from ..results.numbers.run_numbers import Results
from .grounding_tables import shared_rows, with_printed
from .notes import (
    FLOOR,
    PRINTED_NOTE,
    best_notes,
    caption,
    flags,
    floor_note,
    in_sample,
    interval_notes,
    ranking_notes,
    source_notes,
)
from .paper import Printed, paper, why_apart
from .paper.paper_numbers import PrintedModel, apart_notes, paper_legend
from .printed_cells import marked, number_cell
from .tables.metric_names import NONE, heading, percent
from .tables.stamps import cell_stamps
from .tables.table import Cell, Column, Item, Table

_TABLE = {"vindr": 2, "chestxray14": 3, "chestxdet10": 4, "chexlocalize": 5}


def class_pointing(results: Results, dataset: str, beside: bool = True, printed: Sequence[PrintedModel] = ()) -> Table:
    """Pointing per class of one dataset, with the paper's cells `beside` one's own and the rows that it `printed`."""
    names, cells = _class_names(results, dataset, printed), results.column(dataset)
    rows: list[tuple[Item, ...]] = list(
        shared_rows("n", {cell.model: ("", *(str(cell.count("pointing", name)) for name in names)) for cell in cells})
    )
    share = "region" if results.choices.tolerance_px else "chance"  # a tolerance lets more pixels hit
    rows += shared_rows(share, {cell.model: _numbers(cell, names, "chance") for cell in cells})
    own_cells = []
    for model in results.models:
        cell = results.cells.get((model, dataset))
        shown = _printed(cell.family, cell.reader, names) if cell and beside else {}
        row = []
        for name in ("", *names):
            printed_value = shown.get(name)
            reasons = why_apart(cell, name) if cell and printed_value else ()
            row.append(
                number_cell(results.number(model, dataset, "pointing", name), "pointing", printed_value, reasons)
            )
        own_cells.append(row)
    body, left = marked(own_cells)
    reader = next((cell.reader for cell in cells), "")
    of_paper = {row: found for row in printed if any((found := _printed(row.family, reader, names)).values())}
    of_models: list[tuple[Item, ...]] = [(model, *row) for model, row in zip(results.models, body, strict=True)]
    texts = {row: tuple(item.text if item else NONE for item in numbers.values()) for row, numbers in of_paper.items()}
    rows += with_printed(of_models, list(texts), texts.__getitem__) if texts else of_models
    quoted = [(cell.family, _printed(cell.family, cell.reader, names)) for cell in (cells if beside else ())]
    quoted += [(row.name, numbers) for row, numbers in of_paper.items()]
    columns = (Column("model"), Column("Mean"), *map(Column, names))
    notes = (
        f"percent; {share}: the mean region fraction of the class",
        *interval_notes(results, cells),
        *source_notes(cells),
        *ranking_notes(results.models, left),
        *paper_legend(body),
        *apart_notes(cells, body),
        *[PRINTED_NOTE] * bool(of_paper),
        *flags((f"{who}, {name or 'Mean'}", item) for who, found in quoted for name, item in found.items()),
    )
    title = f"{results.title(dataset)}: pointing per class"
    number = next((_TABLE[cell.reader] for cell in cells if cell.reader in _TABLE), None)
    if number is not None:
        title = f"{title} (the paper's Table {number})"
    where = results.title(dataset)
    what = f"Pointing per class of {where} in percent: share of pairs whose map has its maximum in the region."
    return Table(
        title,
        columns,
        tuple(rows),
        cell_stamps(cells),
        notes,
        f"pointing-{dataset}",
        turns="class",
        caption=caption(results, what, cells),
    )


def class_dice(results: Results, dataset: str) -> Table:
    """Dice per class of one dataset at the best threshold, in-sample and cross-fitted, with that threshold; where all
    models are boxes, the Dice of their unions."""
    names, cells = _class_names(results, dataset), results.column(dataset)
    maps = any(cell.competes and cell.weights != "boxes" for cell in cells) or all(c.weights != "boxes" for c in cells)
    star = maps and in_sample(cells)
    best = "dice_best" if maps else "dice_fixed"
    fields = [best, "dice_cross_fitted"] if star else [best]
    titles = [heading(best, star), *["cross-fitted"] * star]
    columns = [Column("model"), *(Column(title, "Mean", key) for key, title in zip(fields, titles, strict=True))]
    for name in names:
        columns += [*(Column(title, name, key) for key, title in zip(fields, titles, strict=True))]
        columns.append(Column("tau", name))
    blank = [""] * len(titles)
    counts: dict[str, tuple[Item, ...]] = {}
    floors: dict[str, tuple[Item, ...]] = {}
    for cell in cells:
        mean, *others = _numbers(cell, names, "floor_dice")
        floors[cell.model] = (
            *[mean] * len(titles),
            *(item for floor in others for item in (*[floor] * len(titles), "")),
        )
        pairs = [str(cell.count("pointing", name)) for name in names]
        counts[cell.model] = (*blank, *(item for count in pairs for item in (count, *blank)))
    rows: list[tuple[Item, ...]] = [*shared_rows("n", counts), *shared_rows(FLOOR, floors)]
    entries = []
    for model in results.models:
        row = [number_cell(results.number(model, dataset, field), field) for field in fields]
        for name in names:
            row += [number_cell(results.number(model, dataset, field, name), field) for field in fields]
            row.append(Cell(_tau(results.cells.get((model, dataset)), name)))
        entries.append(row)
    body, left = marked(entries)
    rows += [(model, *row) for model, row in zip(results.models, body, strict=True)]
    notes = (
        *(best_notes([cell for cell in cells if cell.weights != "boxes"]) if maps else ()),
        floor_note(results, cells),
        *interval_notes(results, cells),
        *ranking_notes(results.models, left),
        f"percent{'; tau: the threshold found on all patients, in the unit of the protocol' if maps else ''}",
    )
    title = f"{results.title(dataset)}: Dice per class{' at the best threshold' if maps else ''}"
    cut = "the map cut at its best threshold tau" if maps else "the union of the boxes"
    what = f"Dice per class of {results.title(dataset)} in percent, of {cut}."
    table = Table(
        title,
        tuple(columns),
        tuple(rows),
        cell_stamps(cells),
        notes,
        f"dice-{dataset}",
        turns="class",
        caption=caption(results, what, cells),
    )
    return table if maps else table.only([index for index, column in enumerate(columns) if column.title != "tau"])


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
        cells = [cell for cell in results.column(dataset) if cell.recognition.names]  # a baseline has no score
        body, other = marked(
            [
                [number_cell(results.number(cell.model, dataset, field), field) for field in RECOGNITION]
                for cell in cells
            ]
        )
        left += other
        for cell, numbers in zip(cells, body, strict=True):
            without = (", ".join(cell.recognition.excluded[name]) or NONE for name in ("auc", "auprc"))
            scores = cell.recognition
            counted = [name for name in scores.names if name not in scores.excluded["auprc"]]
            prevalence = Cell(percent(macro_mean(scores.value("prevalence", name) for name in counted)))
            rows.append((cell.model, cell.title, str(len(scores.names)), prevalence, *numbers, *without))
    shown = [cell for cell in results.finished if cell.recognition.names]
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


def class_auc(results: Results, dataset: str) -> Table:
    """AUC per class of one dataset, with positives and known labels."""
    cells = [cell for cell in results.column(dataset) if cell.recognition.names]
    ranked = (name for cell in cells for name in cell.recognition.names if cell.number("auc", name).value is not None)
    names = list(dict.fromkeys(ranked))
    known = {cell.model: ("", *(_positives(cell, name) for name in names)) for cell in cells}
    rows = list(shared_rows("positives", known))
    body, left = marked(
        [
            [number_cell(results.number(cell.model, dataset, "auc", name), "auc") for name in ("", *names)]
            for cell in cells
        ]
    )
    rows += [(cell.model, *row) for cell, row in zip(cells, body, strict=True)]
    columns = (Column("model"), Column("Mean"), *map(Column, names))
    notes = (
        "percent; area under the ROC curve, half credit for ties",
        *interval_notes(results, cells, pairs=False),
        *ranking_notes([cell.model for cell in cells], left, "labels"),
    )
    title = f"{results.title(dataset)}: AUC per class"
    what = f"Area under the ROC curve per class of {results.title(dataset)} in percent."
    return Table(
        title,
        columns,
        tuple(rows),
        cell_stamps(cells),
        notes,
        f"auc-{dataset}",
        turns="class",
        caption=caption(results, what, cells, "images"),
    )


def _printed(family: str, reader: str, names: Sequence[str]) -> dict[str, Printed | None]:
    """The paper's pointing of each class, and its mean under the empty name."""
    classes = {name: paper().classes.get((family, reader, name)) for name in names}
    return {"": paper().means.get((family, reader)), **classes}


def _class_names(results: Results, dataset: str, printed: Sequence[PrintedModel] = ()) -> list[str]:
    """Classes that have a pair in any model's cell, or a number in a printed row, in the dataset's order."""
    cells = results.column(dataset)
    names = dict.fromkeys(name for cell in cells for name in cell.names)
    families, readers = {row.family for row in printed}, {cell.reader for cell in cells[:1]}
    quoted = {name for family, reader, name in paper().classes if family in families and reader in readers}
    return [name for name in names if name in quoted or any(cell.count("pointing", name) for cell in cells)]


def _tau(cell: CellValues | None, name: str) -> str:
    tau = cell.grounding.value("best_tau", name) if cell else None
    if cell is None or tau is None:
        return NONE
    return f"{tau:.2f}" if cell.tau_scale == 1 else f"{tau * cell.tau_scale:.4g}"


def _positives(cell: CellValues, name: str) -> str:
    scores = cell.recognition
    return f"{scores.count('positives', name)} of {scores.count('n', name)}" if name in scores.names else NONE


def _numbers(cell: CellValues, names: Sequence[str], field: str) -> tuple[Item, ...]:
    return tuple(number_cell(cell.number(field, name), field) for name in ("", *names))
