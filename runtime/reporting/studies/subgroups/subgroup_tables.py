"""Rows of a study of subgroups -> its tables, a set for each dataset: a table has one source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .....metrics_gpu.statistics.intervals import SMALL
from .....metrics_gpu.trust.subgroups import HITS, LEAST_PRINTED, LEAST_TESTED, WIDEST
from ...tables.metric_names import METRICS, NONE
from ...tables.table import Cell, Table
from ..columns import Shown, StudyTable, metric, of_measure, p_values, percents, text, texts
from ..material import Material
from ..study_outcome import Rows
from .grouping import UNKNOWN

_TITLES: Final = {"average_precision": "Average precision"}
_STANDARDISED: Final = "standardised: at equal findings and sizes of the region, weighted by the pairs of both groups"


def gap_name(row: Mapping[str, Any]) -> str:
    """The two groups that are compared, in words; "-" without any."""
    return f"{row['attribute']}: {row['first']} minus {row['second']}" if row["attribute"] else NONE


def _title(measure: str) -> str:
    return METRICS[measure].title if measure in METRICS else _TITLES[measure]


def _sides(row: Mapping[str, Any]) -> Cell:
    if not row["attribute"]:
        return Cell(NONE)
    shared = row.get("patients_in_both")
    return Cell(f"{row['patients_first']} and {row['patients_second']}", note=f"{shared} in both" if shared else "")


_GAPS: Final = tuple(
    column
    for key, group in (("gap", "raw"), ("standardised", "standardised"))
    for column in (of_measure(key, "gap", group), p_values(f"{key}_p_holm", "p", group, bound=f"{key}_p_bound"))
)
_SUMMARY: Final = StudyTable(
    "The largest gap between groups",
    "subgroups",
    (
        *texts("model", "dataset"),
        Shown("largest gap", gap_name),
        Shown("patients", _sides),
        metric("standardised", "standardised", of=HITS),
        p_values("standardised_p_holm", bound="standardised_p_bound"),
        text("tested"),
        text("not_tested", "not tested"),
        text("verdict"),
    ),
    (
        "of pointing, at equal findings and sizes of the region, in percentage points; p after Holm's correction",
        "verdict: over all gaps that were tested; fail if one fails, pass if all pass",
    ),
    lead=2,
)


def summary_table(material: Material, rows: Rows) -> Table:
    """The largest standardised gap of each model on each dataset, and the verdict over all of them."""
    return material.table(_SUMMARY, rows)


def tables_of(material: Material, dataset: str, source: str, groups: Rows, gaps: Rows) -> tuple[Table, ...]:
    """Measures by group, gaps of pointing, and gaps of the other measures, of one dataset."""
    material = material.of_dataset(dataset)
    title = material.title(dataset)
    read = f"attributes: {source}; {UNKNOWN} is a group of its own"
    pointing = [row for row in gaps if row["measure"] == HITS]
    others = [row for row in gaps if row["measure"] != HITS]
    family = sum(row["tested"] for row in pointing if row["model"] == pointing[0]["model"])
    holm = (
        f"p: after Holm's correction over the gaps of a model on this dataset, {family} of pointing; -: not tested, "
        f"because one of the groups has fewer than {LEAST_TESTED} patients"
    )
    tables = (
        StudyTable(
            f"Groups: {title}",
            "subgroups-groups",
            (
                *texts("model", "attribute", "group", "patients", "pairs", "images"),
                *(metric(name, _title(name)) for name in (HITS, "dice_fixed")),
                percents("average_precision", _title("average_precision")),
                metric("auc", _title("auc")),
            ),
            (
                read,
                f"percent; patients: with a pair; of fewer than {LEAST_PRINTED} patients only numbers of patients, "
                "pairs and images stand",
                f"Wilson: pointing of fewer than {SMALL} pairs, but not of expected hits",
                "pointing, Dice at 0.5 and average precision: means over the pairs of a group, all findings together; "
                "AUC: mean over the findings with at least 3 patients with and 3 without it in the group",
            ),
            lead=3,
        ),
        StudyTable(
            f"Gaps of pointing: {title}",
            "subgroups-pointing",
            (
                text("model"),
                Shown("gap", gap_name),
                Shown("patients", _sides),
                *_GAPS,
                *texts("verdict", "strata"),
                text("pairs_left_out", "left out"),
                percents("mantel_haenszel", "gap", "Mantel-Haenszel"),
                p_values("cmh_p", "p", "Mantel-Haenszel"),
            ),
            (
                read,
                "percentage points, the first group minus the second; Newcombe: where no patient is in both groups",
                f"{_STANDARDISED}; left out: pairs of strata that lack a group",
                holm,
                f"verdict, on the standardised gap: fail: it is not 0; pass: its interval holds 0 and is narrower than "
                f"{100 * WIDEST:g} points; else cannot tell. A gap that is not significant is no proof of equality",
                "Mantel-Haenszel: the risk difference and p of their test, which take pairs as independent",
            ),
            lead=2,
        ),
        StudyTable(
            f"Gaps of other measures: {title}",
            "subgroups-measures",
            (
                text("model"),
                Shown("gap", gap_name),
                Shown("measure", lambda row: _title(row["measure"])),
                *_GAPS,
            ),
            (read, "percentage points, the first group minus the second", _STANDARDISED, f"{holm}; a family a measure"),
            lead=3,
        ),
    )
    rows_of = (groups, pointing, others)
    return tuple(material.table(table, rows) for table, rows in zip(tables, rows_of, strict=True))[: 3 if others else 2]
