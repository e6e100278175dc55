"""Study of failures: the best and worst classes of each model, and its best and worst cases with overlays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from ....metrics_gpu.grounding.best_thresholds import FIXED
from ....metrics_gpu.sweep.counts import dice_curves
from ...host.config import DatasetConfig
from ...results.numbers.fields import number_of
from .columns import StudyTable, measured, metric, numbers, percents, text, texts
from .material import Material
from .overlays import HIT, case_overlays
from .study_cell import PIXELS, StudyCell
from .study_outcome import Rows, StudyOutcome
from .writing import IN_SAMPLE, INTERVALS, without_best


def study_failures(
    material: Material,
    *,
    top: int = 3,
    cases: int = 3,
    overlays: bool = True,
    datasets: Mapping[str, DatasetConfig] | None = None,
) -> StudyOutcome:
    """Best and worst classes and cases of each model and dataset.

    top: classes at each end. cases: cases of each of these classes. datasets: current folders of datasets, used instead
    of the run's configuration.
    """
    cells = [cell for cell in material.paired if cell.weights != "baseline"]  # a baseline ignores the image
    classes = [row for cell in cells for row in _class_rows(cell, top, material.sampling.level)]
    chosen = [row for cell in cells for row in _case_rows(cell, classes, cases)]
    files: dict[str, bytes] = {}
    remarks: list[str] = []
    if overlays:
        files, remarks = case_overlays(material, cells, chosen, datasets or {})
    if not cells:
        remarks = ["There is no finished model with a region to look at."]
    facts = (
        "classes are ordered by pointing, then by Dice at 0.5; cases are those of the worst and the best classes, by "
        "Dice at the best threshold of the class, if it has one, of equal ones the larger region is the worse miss",
        material.sampling.fact,
        INTERVALS,
        *material.searches,
        *material.unfinished,
    )
    return StudyOutcome(
        name="failures",
        title="Where models fail",
        facts=facts,
        tables=(
            material.table(_CLASSES, [row for row in classes if row["end"]]),
            material.table(_CASES, chosen),
        ),
        data={"classes": classes, "cases": chosen},
        settings={"top": top, "cases": cases, **material.sampling.settings},
        files=files,
        remarks=tuple(dict.fromkeys(remarks)),
    )


def _class_rows(cell: StudyCell, top: int, level: float) -> list[dict[str, Any]]:
    """All classes with pairs, the worst first; `end` marks those of a table."""
    grounding = cell.drawn_scores()
    sample = cell.sample
    classes = sorted(
        (name for name in grounding.names if grounding.count("n", name)),
        key=lambda name: (grounding.value("pointing", name) or 0.0, grounding.value("dice_fixed", name) or 0.0, name),
    )
    rows: list[dict[str, Any]] = []
    for place, name in enumerate(classes):
        pointing, fixed, best = (
            number_of(grounding, key, name, sample, level) for key in ("pointing", "dice_fixed", "dice_best")
        )
        chance = grounding.value("chance", name)
        rows.append(
            {
                "model": cell.model,
                "dataset": cell.dataset,
                "class": name,
                "end": _end(place, len(classes), top),
                "rank": len(classes) - place,
                "n": grounding.count("n", name),
                "degenerate": grounding.count("degenerate", name),
                **measured("pointing", pointing, method=True),
                "chance": chance,
                "below_chance": pointing.high is not None and chance is not None and pointing.high < chance,
                **measured("dice_fixed", fixed),
                **measured("dice_best", best),
                "tau_best": grounding.value("best_tau", name),
                "floor_dice": grounding.value("floor_dice", name),
            }
        )
    return rows if cell.has_thresholds else [without_best(row) for row in rows]


def _end(place: int, count: int, top: int) -> str:
    """`worst`, `best` or nothing; if the two ends overlap, a place belongs to the nearer end."""
    worst, best = place < top, place >= count - top
    if worst and best:
        return "worst" if place < count / 2 else "best"
    return "worst" if worst else "best" if best else ""


def _case_rows(cell: StudyCell, classes: Rows, cases: int) -> Iterator[dict[str, Any]]:
    """The worst cases of the worst classes, and the best ones of the best; `classes`: rows of all cells."""
    dice = dice_curves(cell.counts)
    ids, region = cell.case_ids, cell.counts.region
    for row in classes:
        if not row["end"] or (row["model"], row["dataset"]) != (cell.model, cell.dataset):
            continue
        level = round(100 * (row["tau_best"] or 0.0)) if cell.has_thresholds else FIXED
        pairs = np.flatnonzero(cell.class_of == cell.classes.index(row["class"])).tolist()
        order = sorted(pairs, key=lambda p: (dice[p, level], cell.hits[p], -region[p], ids[p]))
        for pair in order[:cases] if row["end"] == "worst" else order[-cases:] if cases else []:
            yield {
                "model": cell.model,
                "dataset": cell.dataset,
                "end": row["end"],
                "case": ids[pair],
                "class": row["class"],
                "hit": float(cell.hits[pair]),
                "tau": level / 100,
                "dice": float(dice[pair, level]),
                "dice_fixed": float(dice[pair, 50]),
                "marked": float(cell.counts.area[pair, level] / PIXELS),
                "region": float(region[pair] / PIXELS),
                "degenerate": bool(cell.counts.degenerate[pair]),
                "overlay": None,
            }


_CLASSES: Final = StudyTable(
    "Classes, the worst first",
    "classes",
    (
        *texts("model", "dataset"),
        text("end", ""),
        *texts("class", "n"),
        metric("pointing", note=lambda row: "below chance" * row["below_chance"]),
        *map(metric, ("chance", "dice_fixed", "dice_best")),
        metric("floor_dice", "all-ones"),
    ),
    (
        IN_SAMPLE,
        "percent; below chance: the whole interval of pointing lies below the mean region fraction",
        "the order rests on the same pairs as the numbers: ends of a long list look more extreme than they are",
    ),
    lead=4,
)
_CASES: Final = StudyTable(
    "Cases, the worst first",
    "cases",
    (
        *texts("model", "dataset"),
        text("end", ""),
        *texts("case", "class"),
        HIT,
        numbers("tau", "tau*"),
        metric("dice", "Dice", of="dice_best"),
        metric("dice_fixed", "at 0.5"),
        *map(percents, ("marked", "region")),
        text("overlay"),
    ),
    (IN_SAMPLE, "percent of the image or of Dice; marked: what the map marks at tau*; region: the truth"),
    lead=5,
)
