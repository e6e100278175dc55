"""Study of errors: kinds of errors of boxes and of cut maps, and the gain if one is fixed (docs/detection.md §2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from ....engines.errors import XBenchError
from ....metrics_gpu.detection.error_kinds import KINDS
from ....metrics_gpu.statistics.intervals import MANY_PATIENTS
from ...host.config import DatasetConfig
from ...results.studied import predicted_boxes
from ..figures.study_figures import draw_errors
from ..tables.table import Cell, Column, Item, Table
from .anatomy.anatomy_rows import Errors, cut_name, error_rows, errors_of, examples
from .anatomy.judged import BOXES, JudgedAnswers, TrueBoxes, judged
from .columns import Shown, StudyTable, percents, text, texts
from .material import Material
from .overlays import case_pictures, draw_boxes, overlay_names
from .study_outcome import Rows, StudyOutcome
from .writing import CROSS_FITTED, IN_SAMPLE, between, percent_cell

_NOTES: Final = (
    "boxes judged in the order of their scores, else of the file; silent and missed: true boxes of pairs without and "
    "with a box; kinds: docs/detection.md §2",
    "gain: percentage points of the mean over pairs, all classes together, if this kind alone were fixed; gains do not "
    f"add up; intervals: bootstrap over patients, none of fewer than {MANY_PATIENTS}; they keep the thresholds",
)
_MAPS: Final = (
    "maps: each connected part of what is marked gives a box, the one with the highest maximum first; Dice is that of "
    "these boxes, not of the marked pixels",
    f"{IN_SAMPLE}, one for all classes of a dataset",
    f"{CROSS_FITTED}, one for all classes, in their first division into folds",
)


_LEAD: Final = (*texts("model", "dataset"), Shown("cut", cut_name))
_KIND: Final = Shown("kind", lambda row: _words(row["kind"]))
_KINDS: Final = StudyTable(
    "Kinds of errors, and the gain if one alone were fixed",
    "errors",
    (
        *_LEAD,
        _KIND,
        *texts("boxes", "pairs"),
        percents("boxes_per_pair", "per 100 pairs"),
        percents("dice_gain", "Dice", "gain if fixed"),
        percents("f1_gain", "F1 0.5", "gain if fixed"),
    ),
    lead=4,
)
_CASES: Final = StudyTable(
    "Examples",
    "cases",
    (
        *_LEAD,
        _KIND,
        *texts("case", "class", "boxes"),
        percents("dice", "Dice"),
        percents("dice_if_fixed", "if fixed"),
        text("overlay"),
    ),
    ("the pairs whose Dice gains most if the kind is fixed; percent of Dice of the boxes",),
    lead=6,
)


def study_errors(
    material: Material,
    *,
    cases: int = 1,
    overlays: bool = True,
    datasets: Mapping[str, DatasetConfig] | None = None,
) -> StudyOutcome:
    """The kinds of errors of each model and dataset, by class and by size of the region.

    cases: examples of each kind. datasets: current folders of datasets, used instead of the run's configuration.
    """
    level = material.sampling.level
    items, remarks = _judged(material)
    errors = [errors_of(item) for item in items]
    rows = [row for each in errors for row in error_rows(each, level)]
    chosen = [(each, pair, row) for each in errors for pair, row in examples(each, cases)]
    files: dict[str, bytes] = {}
    if overlays:
        files, reasons = _overlays(material, chosen, datasets or {})
        remarks += reasons
    examples_shown = [row for _, _, row in chosen]
    whole = [row for row in rows if row["group"] == "all"]
    notes = (*_NOTES, *(_MAPS if any(item.cut != BOXES for item in items) else ()), *_of_parts(items))
    judged_cells = dict.fromkeys((item.cell.model, item.cell.dataset) for item in items)
    facts = (
        f"{len(judged_cells)} of {len(material.cells)} finished cells have boxes or maps to judge",
        material.sampling.fact,
        *material.searches,
        *material.unfinished,
    )
    return StudyOutcome(
        name="errors",
        title="Kinds of errors",
        facts=facts,
        tables=(
            material.table(replace(_KINDS, notes=notes), whole),
            _group_table("class", "By class", rows, material, notes),
            _group_table("size", "By size of the region", rows, material, notes),
            material.table(_CASES, examples_shown),
        ),
        data={"errors": rows, "cases": examples_shown},
        settings={"cases": cases, **material.sampling.settings},
        files=files,
        remarks=tuple(dict.fromkeys(remarks)),
        results=material.basis([*judged_cells, *predicted_boxes(material.run, (name for _, name in judged_cells))]),
    ).with_figures(lambda: draw_errors(whole, material))


def _judged(material: Material) -> tuple[list[JudgedAnswers], list[str]]:
    """What can be judged, and sentences on what cannot."""
    true, items, remarks = TrueBoxes(material.run), [], []
    for cell in material.paired:
        if cell.weights == "baseline":  # it ignores the image
            continue
        if cell.in_words:
            remarks.append(f"{cell.model} on {cell.title}: left out, because a zone that words name is no box.")
            continue
        try:
            cuts = judged(cell, material.run, true)
        except XBenchError as error:
            remarks.append(f"No errors of {cell.model} on {cell.title}: {error}")
            continue
        if lost := cell.n - len(cuts[0].places):
            remarks.append(
                f"{cell.model} on {cell.title}: {lost} pairs whose region is no union of boxes are left out."
            )
        items += [item for item in cuts if len(item.places)]
    return items, remarks or ([] if items else ["There is no finished model with boxes or maps to judge."])


def _of_parts(items: Sequence[JudgedAnswers]) -> tuple[str, ...]:
    """What stands for the true boxes of maps."""
    parts = {(item.cell.model, item.cell.dataset): item for item in items if item.parts}
    if not parts:
        return ()
    named = "; ".join(
        f"{item.cell.model} on {item.cell.title}: {item.parts} of {len(item.places)} pairs" for item in parts.values()
    )
    return (
        "true boxes: those that predicted boxes of the same run keep, else boxes around the connected parts of the "
        f"region on the grid of 224, where boxes that touch are one ({named})",
    )


def _overlays(
    material: Material,
    chosen: Sequence[tuple[Errors, int, dict[str, Any]]],
    datasets: Mapping[str, DatasetConfig],
) -> tuple[dict[str, bytes], list[str]]:
    """PNG files of the examples, whose names are set in their rows, and why some have no picture."""
    pictures, remarks = case_pictures(material.run, [row for _, _, row in chosen], datasets)
    files: dict[str, bytes] = {}
    groups = [(row["model"], row["dataset"], row["cut"].removesuffix("*"), row["kind"]) for _, _, row in chosen]
    for (errors, pair, row), name in zip(chosen, overlay_names(groups), strict=True):
        cell, anatomy, truth = errors.item.cell, errors.found, errors.item.answers.truth
        kind = KINDS.index(row["kind"])
        given, true = (slice(*lists.offsets[pair : pair + 2].tolist()) for lists in (anatomy.given, truth))
        of_truth = ["lost" if left == kind else "true" for left in anatomy.left[true].tolist()]
        of_given = ["wrong" if own == kind else "given" for own in anatomy.kind[given].tolist()]
        boxes = zip(
            [*truth.boxes[true].tolist(), *anatomy.given.boxes[given].tolist()], [*of_truth, *of_given], strict=True
        )
        cut = "" if row["cut"] == BOXES else f", cut {cut_name(row)}"
        lines = (
            f"{cell.model} on {cell.title}: {row['class']}, {row['case']}{cut}",
            f"{_words(row['kind'])}, boxes: {row['boxes']}; Dice {100 * row['dice']:.1f}, "
            f"{100 * row['dice_if_fixed']:.1f} if fixed",
            f"green: truth; orange: {_words(row['kind'])}; blue: other boxes of the model",
        )
        width, height = errors.item.answers.sizes[pair].tolist()
        files[name] = draw_boxes(list(boxes), (width, height), lines, pictures.get((cell.dataset, row["case"])))
        row["overlay"] = name
    return files, remarks


def _words(kind: str) -> str:
    return kind.replace("_", " ")


def _group_table(group: str, title: str, rows: Rows, material: Material, notes: tuple[str, ...]) -> Table:
    """A line for each class or size: boxes of each kind per 100 pairs, and the kind whose fix adds most to F1."""
    columns = [Column(name) for name in ("model", "dataset", "cut", group, "n")]
    columns += [Column(_words(kind), "per 100 pairs") for kind in KINDS]
    columns += [Column("now", "F1 0.5"), Column("largest gain", "F1 0.5"), Column("of", "F1 0.5")]
    lines: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["group"] == group:
            key = (row["model"], material.title(row["dataset"]), cut_name(row), row["name"])
            lines.setdefault(key, []).append(row)
    body: list[tuple[Item, ...]] = []
    for lead, kinds in lines.items():
        most = max(kinds, key=lambda row: row["f1_gain"] or 0.0)
        best: tuple[Item, Item] = (Cell("-"), "-")
        if most["f1_gain"]:
            best = (percent_cell(most["f1_gain"], between(most, "f1_gain")), _words(most["kind"]))
        shares = (percent_cell(row["boxes_per_pair"]) for row in kinds)
        body.append((*lead, str(kinds[0]["n"]), *shares, percent_cell(kinds[0]["f1"]), *best))
    return Table(title, tuple(columns), tuple(body), material.stamps, notes, f"errors-{group}", lead=4)
