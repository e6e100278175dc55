"""Study of the gap: which findings a model recognises but does not ground, and the reverse (docs/metrics.md §17)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from .....engines.errors import RunError
from ....host.config import DatasetConfig
from ...figures.study_gap import draw_gap
from ...tables.table import Table
from ..columns import TESTED, StudyTable, limits_of, metric, numbers, p_values, percents, shares, text, texts
from ..material import Material
from ..overlays import HIT, case_overlays
from ..study_outcome import Rows, StudyOutcome
from .finding_points import GAP, REVERSE, FindingPoint, Quadrants, finding_points, with_holm
from .gap_examples import example_rows
from .references import CHANCE, is_reference, reference_rows
from .within_models import LEAST_FINDINGS, POOLED, correlation_rows


def study_gap(
    material: Material,
    bounds: Quadrants,
    *,
    top: int = 3,
    cases: int = 2,
    overlays: bool = True,
    datasets: Mapping[str, DatasetConfig] | None = None,
) -> StudyOutcome:
    """AUC and pointing of each finding, and its quadrant by the bounds.

    top, cases: findings of each model, dataset and end of the gap with examples, and examples of each. datasets:
    current folders of datasets, used instead of the run's configuration. Raises RunError where no finding has both
    numbers.
    """
    points, remarks = _points(material, bounds)
    rows = _tested(points)
    references, notes = reference_rows(material, points)
    remarks += notes
    examples = example_rows(points, top, cases)
    files: dict[str, bytes] = {}
    if overlays:
        used = {(row["model"], row["dataset"]) for row in examples}
        cells = [cell for cell in material.paired if (cell.model, cell.dataset) in used]
        files, notes = case_overlays(material, cells, examples, datasets or {})
        remarks += notes
    correlations = correlation_rows(material, points)
    if not correlations:
        remarks.append(f"No correlation: no model has {LEAST_FINDINGS} findings with both numbers on a dataset.")
    tables = [
        material.table(_FINDINGS, rows),
        *(_ends(quadrant, rows, references, material) for quadrant in (GAP, REVERSE)),
        *([material.table(_CORRELATIONS, correlations)] if correlations else []),
        *([material.table(_EXAMPLES, examples)] if examples else []),
    ]
    least = 1 - material.sampling.level
    return StudyOutcome(
        name="gap",
        title="Recognised but not grounded",
        facts=(
            f"recognised: AUC of at least {100 * bounds.auc:g} percent; grounded: pointing of at least "
            f"{100 * bounds.pointing:g} percent",
            *(_counted(quadrant, rows, least) for quadrant in (GAP, REVERSE)),
            material.sampling.fact,
            *material.unfinished,
        ),
        tables=tuple(tables),
        data={"findings": rows, "references": references, "correlations": correlations, "examples": examples},
        settings={
            "auc": bounds.auc,
            "pointing": bounds.pointing,
            "top": top,
            "cases": cases,
            **material.sampling.settings,
        },
        files=files,
        remarks=tuple(dict.fromkeys(remarks)),
    ).with_figures(lambda: draw_gap(rows, bounds, material))


def _points(material: Material, bounds: Quadrants) -> tuple[list[FindingPoint], list[str]]:
    points: list[FindingPoint] = []
    remarks = []
    for cell in material.cells:
        if cell.weights == "baseline" or is_reference(cell):
            continue
        found = finding_points(cell, bounds)
        if isinstance(found, str):
            remarks.append(f"{cell.model} on {cell.title} is left out: {found}")
            continue
        points += found
        named = {point.name for point in found}
        if lacking := [name for name in cell.classes if name not in named]:
            why = "without a region, or without images of both labels"
            remarks.append(f"{cell.model} on {cell.title}: findings {why}, left out: {len(lacking)}")
    if not points:
        reasons = "; ".join(remarks) or "all its results are references"
        raise RunError(f"{material.path} has no finding with both AUC and pointing: {reasons}.")
    return points, remarks


def _tested(points: Sequence[FindingPoint]) -> list[dict[str, Any]]:
    """The row of each finding; its quadrant is tested in one family over all findings, models and datasets."""
    tests = with_holm([point.membership for point in points])
    return [{**point.row, **item.test} for point, item in zip(points, tests, strict=True)]


def _counted(quadrant: str, rows: Rows, least: float) -> str:
    own = [row for row in rows if row["quadrant"] == quadrant]
    sure = sum(row["p_holm"] is not None and row["p_holm"] < least for row in own)
    return f"{quadrant}: {len(own)} of {len(rows)} findings of a model and dataset; after the correction {sure}"


def _ends(quadrant: str, rows: Rows, references: Rows, material: Material) -> Table:
    """The findings of a quadrant, the smallest p first, with what they are compared with side by side."""
    own = sorted((row for row in rows if row["quadrant"] == quadrant), key=lambda row: (row["p"] is None, row["p"]))
    named = [row["against"] for row in references if row["measure"] == "pointing"]
    others = list(dict.fromkeys(named))
    of = {(row["model"], row["dataset"], row["class"], row["measure"], row["against"]): row for row in references}
    lines = []
    for row in own:
        line = dict(row)
        for measure, against in (("auc", CHANCE), *(("pointing", name) for name in others)):
            found = of.get((row["model"], row["dataset"], row["class"], measure, against))
            for key in ("", "_low", "_high"):
                line[f"{measure} {against}{key}"] = found and found[f"difference{key}"]
        lines.append(line)
    columns = (
        *_KEYS,
        metric("auc"),
        metric(f"auc {CHANCE}", "minus 50", of="auc"),
        metric("pointing", "value", "Point"),
        *(metric(f"pointing {name}", f"minus {name}", "Point", of="pointing") for name in others),
        shares("share", "share"),
        p_values("p_holm", "p (Holm)"),
    )
    notes = (
        *([] if own else [f"no finding is {quadrant}"]),
        "percent, differences in percentage points on the same pairs; their p values are in references.csv",
        _QUADRANT,
    )
    name = "gap" if quadrant == GAP else "gap-reverse"
    return material.table(StudyTable(quadrant.capitalize(), name, columns, notes, lead=3), lines)


_KEYS: Final = texts("model", "dataset", "class")
_QUADRANT: Final = (
    "share: of the bootstrap replicates of both numbers at once, those in the same quadrant, percent; p: the larger of "
    "both numbers against their bounds, two-sided; p (Holm): corrected for m findings, models and datasets"
)
_FINDINGS: Final = StudyTable(
    "AUC and pointing of each finding",
    "findings",
    (
        *_KEYS,
        text("n", "n pairs"),
        text("positives", "n images"),
        metric("auc"),
        metric("pointing", "value", "Point"),
        metric("chance", "chance", "Point"),
        text("quadrant"),
        shares("share", "share"),
        *TESTED,
    ),
    (
        "percent; n pairs: with a region, of pointing; n images: with the finding, of AUC",
        _QUADRANT,
        "-: no p of an AUC with fewer than 3 patients of a label",
    ),
    lead=3,
)
_CORRELATIONS: Final = StudyTable(
    "AUC and pointing over the findings of a model",
    "within-models",
    (
        *texts("model", "dataset", "findings"),
        numbers("r"),
        limits_of("r_fisher", "Fisher"),
        numbers("spearman", "Spearman"),
        p_values("p"),
    ),
    (
        "the interval of r: the findings stay, their patients are drawn; Fisher: findings as independent points",
        f"{POOLED}: findings of all models and datasets less the means of their model and dataset; they are not "
        "independent, so there is no Fisher interval and no p",
        "p: over permutations of the findings; -: not defined, or of fewer than four findings",
        "chance errors of both numbers pull r towards 0",
    ),
    lead=2,
)
_EXAMPLES: Final = StudyTable(
    "Examples",
    "examples",
    (
        *texts("model", "dataset"),
        text("end", "quadrant"),
        *texts("class", "case"),
        numbers("logit"),
        HIT,
        metric("dice", "at 0.5", of="dice_fixed"),
        percents("region"),
        text("overlay"),
    ),
    (
        f"{GAP}: the misses with the highest scores; {REVERSE}: the hits with the lowest scores",
        "percent of the image or of Dice",
    ),
    lead=4,
)
