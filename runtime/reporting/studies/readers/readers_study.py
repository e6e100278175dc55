"""Study of readers: their agreement, where they point, and models beside them (docs/trust.md §6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .....engines.errors import RunError
from ....results.comparing.difference import TESTS
from ...tables.metric_names import NONE, heading, p_value
from ...tables.table import Column, Item, Table
from ..material import Material
from ..study_cell import StudyCell
from ..study_outcome import Rows, StudyOutcome
from ..writing import between, metric_cell, number_cell, percent_cell, share_cell
from .ceiling import AGAINST, ceiling_rows, is_reader
from .ratings import Ratings, ratings_of
from .reader_agreement import COEFFICIENTS, LEAST_IMAGES, extent_rows, pointing_rows, presence_rows, reader_rows

_HEADS: Final = ("prevalence", "agreement", "AC1", "kappa", "alpha")
_ABOVE: Final = (
    "a model above the reader is above this single reader against this truth; that does not make it better than "
    "radiologists"
)


def study_readers(material: Material) -> StudyOutcome:
    """Agreement between readers, and models beside them. Raises RunError without a reader's row."""
    readers = [cell for cell in material.cells if is_reader(cell)]
    if not readers:
        raise RunError(
            f"{material.path} has no reader's row; evaluate one into the run with --model reader:radiologist or "
            "reader:second, on a dataset that has one (docs/trust.md §6)."
        )
    level, run = material.sampling.level, material.run
    data: dict[str, list[dict[str, Any]]] = {
        name: [] for name in ("models", "presence", "extent", "pointing", "single_readers")
    }
    facts: list[str] = []
    remarks: list[str] = []
    for cell in readers:
        ratings = ratings_of(run, cell)
        facts.append(f"{cell.model} on {cell.title}: {_who(cell)}")
        rows, said = ceiling_rows(material, cell)
        data["models"] += rows
        remarks += said
        if ratings.negatives:
            data["presence"] += presence_rows(cell, ratings, level)
            remarks += _unnamed(cell, ratings)
        else:
            remarks.append(
                f"{cell.model} on {cell.title}: no finding without a region was asked, so agreement about presence is "
                "not known."
            )
        data["extent"] += extent_rows(cell, ratings, level)
        data["pointing"] += pointing_rows(run, cell, level)
        if cell.rows.entry["boxes"].get("left_out"):
            own = list(reader_rows(cell, level))
            data["single_readers"] += own
            if not own:
                remarks.append(f"{cell.title}: no reader read {LEAST_IMAGES} images, so no single one has a row.")
    return StudyOutcome(
        name="readers",
        title="Readers and models",
        facts=(*facts, *_shares(data["models"], material), material.sampling.fact, *material.unfinished),
        tables=tuple(_tables(data, material.stamps)),
        data=data,
        settings=material.sampling.settings,
        remarks=tuple(remarks),
    )


def _who(cell: StudyCell) -> str:
    if cell.rows.entry["boxes"].get("left_out"):
        return "agreement is of the three readers of each image; each is scored against what both others name"
    return "agreement is of the reader and of the regions of the dataset, which count as one reader"


def _unnamed(cell: StudyCell, ratings: Ratings) -> list[str]:
    count = int((~ratings.named.any(axis=0)).sum())
    return [f"{cell.model} on {cell.title}: findings that no reader names, left out: {count}"] if count else []


def _shares(rows: Rows, material: Material) -> list[str]:
    """The models' Dice as a part of the reader's, where it has a paired interval."""
    return [
        f"{row['model']} has {100 * row['share']:.0f} % [{100 * row['share_low']:.0f}, {100 * row['share_high']:.0f}] "
        f"of the Dice of {row['reader']} on {row['dataset']}, {_kind(row)}, on these {row['n']} pairs of "
        f"{row['patients']} patients"
        for row in rows
        if row["finding"] == "mean" and row["measure"] != "pointing" and row["share"] is not None
    ]


def _kind(row: Mapping[str, Any]) -> str:
    return "at 0.5" if row["measure"] == "dice_fixed" else "cross-fitted"


def _tables(data: Mapping[str, Rows], stamps: tuple[str, ...]) -> list[Table]:
    made = [
        (data["models"], _models(data["models"], stamps)),
        (data["presence"], _presence(data["presence"], stamps)),
        (data["extent"], _extent(data["extent"], stamps)),
        (data["pointing"], _pointing(data["pointing"], stamps)),
        (data["single_readers"], _single(data["single_readers"], stamps)),
    ]
    return [table for rows, table in made if rows]


def _models(rows: Rows, stamps: tuple[str, ...]) -> Table:
    columns = ["model", "reader", "dataset", "measure", "n", "model's", "reader's", "difference", "p", "p (Holm)", "m"]
    body: list[tuple[Item, ...]] = [
        (
            *(str(row[name]) for name in ("model", "reader", "dataset")),
            heading(row["measure"], False),
            str(row["n"]),
            metric_cell(row["measure"], row["value"]),
            metric_cell(AGAINST[row["measure"]], row["reader_value"]),
            metric_cell(row["measure"], row["difference"], between(row, "difference")),
            p_value(row["p"], row["p_bound"]),
            p_value(row["p_holm"], row["p_bound"]),
            str(row["family"]) if row["p"] is not None else NONE,
            share_cell(row["share"], between(row, "share")),
        )
        for row in rows
        if row["finding"] == "mean"
    ]
    notes = (
        "percent, means over findings, on the pairs of both; a reader's Dice has no threshold",
        "% of the reader's: with the paired interval over patients; - without one",
        *TESTS,
        "a family is one measure over all models; rows of single findings are in models.csv, a family of their own",
        _ABOVE,
    )
    heads = tuple(map(Column, (*columns, "% of the reader's")))
    return Table("Models beside a reader", heads, tuple(body), stamps, notes, "readers-models", lead=4)


def _presence(rows: Rows, stamps: tuple[str, ...]) -> Table:
    columns = [Column(name) for name in ("reader", "dataset", "finding", "images", "patients", *_HEADS)]
    body: Sequence[tuple[Item, ...]] = [
        (
            *_named(row),
            *(str(row[name]) for name in ("images", "patients")),
            *(percent_cell(row[key], between(row, key)) for key in COEFFICIENTS[:2]),
            *(number_cell(row[key], between(row, key), 3) for key in COEFFICIENTS[2:]),
        )
        for row in rows
    ]
    notes = (
        "prevalence: mean share of the readers who name the finding; agreement: of pairs of readers, in percent",
        "AC1: Gwet's, stable for rare findings; kappa: Fleiss'; alpha: Krippendorff's; - where all answers are alike",
        "intervals from 10 patients on",
    )
    return Table("Agreement about presence", tuple(columns), tuple(body), stamps, notes, "readers-presence", lead=3)


def _extent(rows: Rows, stamps: tuple[str, ...]) -> Table:
    columns = [Column(name) for name in ("reader", "dataset", "finding")]
    for group in ("both marked it", "one of both silent counts 0"):
        columns += [Column(name, group) for name in ("n", "Dice", "IoU")]
    body = [
        (
            *_named(row),
            *(cell for which in ("both", "any") for cell in _overlap(row, which)),
        )
        for row in rows
    ]
    notes = ("percent; n: pairs of two readers of one image; the regions are compared on the 224 grid",)
    return Table("Agreement about extent", tuple(columns), tuple(body), stamps, notes, "readers-extent", lead=3)


def _overlap(row: Mapping[str, Any], which: str) -> list[Item]:
    values = [percent_cell(row[f"{key}_{which}"], between(row, f"{key}_{which}")) for key in ("dice", "iou")]
    return [str(row[f"dice_{which}_n"]), *values]


def _pointing(rows: Rows, stamps: tuple[str, ...]) -> Table:
    columns = [Column(name) for name in ("reader", "dataset", "finding", "n", "Point", "boxes", "centres inside")]
    body = [
        (
            *_named(row),
            str(row["pointing_n"]),
            metric_cell("pointing", row["pointing"], between(row, "pointing")),
            str(row["centres_inside_n"]) if row["centres_inside_n"] else NONE,
            percent_cell(row["centres_inside"], between(row, "centres_inside")),
        )
        for row in rows
    ]
    notes = (
        "percent; Point: the reader's point, or the centre of the box that points, lies in the region; silence misses",
        "centres inside: of all boxes of the reader for a finding that is present; - for masks",
    )
    return Table("Where readers point", tuple(columns), tuple(body), stamps, notes, "readers-pointing", lead=3)


def _single(rows: Rows, stamps: tuple[str, ...]) -> Table:
    columns = [Column(name) for name in ("reader", "dataset", "images", "n", "patients", "Dice", "Point")]
    body: Sequence[tuple[Item, ...]] = [
        (
            *(str(row[name]) for name in ("reader", "dataset", "images", "dice_fixed_n", "patients")),
            *(metric_cell(key, row[key], between(row, key)) for key in ("dice_fixed", "pointing")),
        )
        for row in rows
    ]
    notes = (
        f"percent, means over findings, against what both others name; readers of at least {LEAST_IMAGES} images",
        "readers read different images, so their numbers are not paired",
    )
    return Table("Single readers", tuple(columns), tuple(body), stamps, notes, "readers-single", lead=2)


def _named(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return str(row["reader"]), str(row["dataset"]), str(row["finding"])
