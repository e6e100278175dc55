"""Study of readers: their agreement, where they point, and models beside them (docs/subgroups.md §6)."""

from __future__ import annotations

from typing import Any, Final

from .....engines.errors import RunError
from ....results.comparing.difference import TESTS
from ...tables.metric_names import NONE, heading
from ..columns import TESTED, Shown, StudyTable, metric, numbers, of_measure, percents, shares, text, texts
from ..material import Material
from ..study_cell import StudyCell
from ..study_outcome import Rows, StudyOutcome
from .ceiling import ceiling_rows, is_reader
from .ratings import Ratings, ratings_of
from .reader_agreement import LEAST_IMAGES, MEAN, extent_rows, pointing_rows, presence_rows, reader_rows

_ABOVE: Final = (
    "a model above the reader is above this single reader against this truth; that does not make it better than "
    "radiologists"
)
_NAMED: Final = texts("reader", "dataset", "finding")
_TABLES: Final = {
    "models": StudyTable(
        "Models beside a reader",
        "readers-models",
        (
            *texts("model", "reader", "dataset"),
            Shown("measure", lambda row: heading(row["measure"])),
            text("n"),
            of_measure("value", "model's"),
            of_measure("reader_value", "reader's"),
            of_measure("difference", "difference"),
            *TESTED,
            shares("share", "% of the reader's"),
        ),
        (
            "percent, means over findings, on the pairs of both; a reader's Dice has no threshold",
            "% of the reader's: with the paired interval over patients; - without one",
            *TESTS,
            "a family is one measure over all models; rows of single findings are in models.csv, a family of their own",
            _ABOVE,
        ),
        lead=4,
    ),
    "presence": StudyTable(
        "Agreement about presence",
        "readers-presence",
        (
            *_NAMED,
            *texts("images", "patients"),
            percents("prevalence"),
            percents("observed", "agreement"),
            numbers("gwet_ac1", "AC1", decimals=3),
            numbers("fleiss_kappa", "kappa", decimals=3),
            numbers("krippendorff_alpha", "alpha", decimals=3),
        ),
        (
            "prevalence: mean share of the readers who name the finding; agreement: of pairs of readers, in percent",
            "AC1: Gwet's, stable for rare findings; kappa: Fleiss'; alpha: Krippendorff's; - where all answers are "
            "alike",
            "intervals from 10 patients on",
        ),
        lead=3,
    ),
    "extent": StudyTable(
        "Agreement about extent",
        "readers-extent",
        (
            *_NAMED,
            *(
                column
                for which, group in (("both", "both marked it"), ("any", "one of both silent counts 0"))
                for column in (
                    text(f"dice_{which}_n", "n", group),
                    percents(f"dice_{which}", "Dice", group),
                    percents(f"iou_{which}", "IoU", group),
                )
            ),
        ),
        ("percent; n: pairs of two readers of one image; the regions are compared on the 224 grid",),
        lead=3,
    ),
    "pointing": StudyTable(
        "Where readers point",
        "readers-pointing",
        (
            *_NAMED,
            text("pointing_n", "n"),
            metric("pointing", "Point"),
            Shown("boxes", lambda row: str(row["centres_inside_n"] or NONE)),
            percents("centres_inside", "centres inside"),
        ),
        (
            "percent; Point: the reader's point, or the centre of the box that points, lies in the region; silence "
            "misses",
            "centres inside: of all boxes of the reader for a finding that is present; - for masks",
        ),
        lead=3,
    ),
    "single_readers": StudyTable(
        "Single readers",
        "readers-single",
        (
            *texts("reader", "dataset", "images"),
            text("dice_fixed_n", "n"),
            text("patients"),
            metric("dice_fixed", "Dice"),
            metric("pointing", "Point"),
        ),
        (
            f"percent, means over findings, against what both others name; readers of at least {LEAST_IMAGES} images",
            "readers read different images, so their numbers are not paired",
        ),
        lead=2,
    ),
}
"""The table of each kind of rows."""


def study_readers(material: Material) -> StudyOutcome:
    """Agreement between readers, and models beside them. Raises RunError without a reader's row."""
    readers = [cell for cell in material.cells if is_reader(cell)]
    if not readers:
        raise RunError(
            f"{material.path} has no reader's row; evaluate one into the run with --model reader:radiologist or "
            "reader:second, on a dataset that has one (docs/subgroups.md §6)."
        )
    level, run = material.sampling.level, material.run
    data: dict[str, list[dict[str, Any]]] = {name: [] for name in _TABLES}
    facts: list[str] = []
    remarks: list[str] = []
    for cell in readers:
        ratings = ratings_of(run, cell)
        facts.append(f"{cell.model} on {cell.title}: {_who(cell)}")
        rows, notes = ceiling_rows(material, cell)
        data["models"] += rows
        remarks += notes
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
            single = list(reader_rows(cell, level))
            data["single_readers"] += single
            if not single:
                remarks.append(f"{cell.title}: no reader read {LEAST_IMAGES} images, so no single one has a row.")
    means = [row for row in data["models"] if row["finding"] == MEAN]
    printed = {**data, "models": means}
    return StudyOutcome(
        name="readers",
        title="Readers and models",
        facts=(*facts, *_shares(means), material.sampling.fact, *material.unfinished),
        tables=tuple(table.table(printed[name], material.stamps) for name, table in _TABLES.items() if data[name]),
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


def _shares(means: Rows) -> list[str]:
    """The models' Dice as a part of the reader's, where it has a paired interval."""
    return [
        f"{row['model']} has {100 * row['share']:.0f} % [{100 * row['share_low']:.0f}, {100 * row['share_high']:.0f}] "
        f"of the Dice of {row['reader']} on {row['dataset']}, "
        f"{'at 0.5' if row['measure'] == 'dice_fixed' else 'cross-fitted'}, on these {row['n']} pairs of "
        f"{row['patients']} patients"
        for row in means
        if row["measure"] != "pointing" and row["share"] is not None
    ]
