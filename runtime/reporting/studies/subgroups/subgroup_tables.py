"""Rows of a study of subgroups -> its tables, a set for each dataset: a table has one source."""

from __future__ import annotations

from typing import Any

from .....metrics_gpu.statistics.intervals import SMALL
from .....metrics_gpu.trust.subgroups import HITS, LEAST_PRINTED, LEAST_TESTED, WIDEST
from ...tables.metric_names import METRICS, p_value
from ...tables.table import Cell, Column, Item, Table
from ..material import Material
from ..study_outcome import Rows
from ..writing import between, metric_cell, percent_cell
from .grouping import UNKNOWN
from .measured import MEASURES

_TITLES = {"average_precision": "Average precision"}
_WILSON = {"wilson": "Wilson", "newcombe": "Newcombe"}


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
    standardised = "standardised: at equal findings and sizes of the region, weighted by the pairs of both groups"
    tables = (
        Table(
            f"Groups: {title}",
            (
                *map(Column, ("model", "attribute", "group", "patients", "pairs", "images")),
                *(Column(_title(name)) for name in MEASURES),
            ),
            tuple(_group_items(row) for row in groups),
            material.stamps,
            (
                read,
                f"percent; patients: with a pair; of fewer than {LEAST_PRINTED} patients only numbers of patients, "
                "pairs and images stand",
                f"Wilson: pointing of fewer than {SMALL} pairs, but not of expected hits",
                "pointing, Dice at 0.5 and average precision: means over the pairs of a group, all findings together; "
                "AUC: mean over the findings with at least 3 patients with and 3 without it in the group",
            ),
            "subgroups-groups",
            lead=3,
        ),
        Table(
            f"Gaps of pointing: {title}",
            (
                *map(Column, ("model", "gap", "patients")),
                *_two_gaps(),
                Column("verdict"),
                *(Column(name) for name in ("strata", "left out")),
                *(Column(name, "Mantel-Haenszel") for name in ("gap", "p")),
            ),
            tuple(_pointing_items(row) for row in pointing),
            material.stamps,
            (
                read,
                "percentage points, the first group minus the second; Newcombe: where no patient is in both groups",
                f"{standardised}; left out: pairs of strata that lack a group",
                holm,
                f"verdict, on the standardised gap: fail: it is not 0; pass: its interval holds 0 and is narrower than "
                f"{100 * WIDEST:g} points; else cannot tell. A gap that is not significant is no proof of equality",
                "Mantel-Haenszel: the risk difference and p of their test, which take pairs as independent",
            ),
            "subgroups-pointing",
            lead=2,
        ),
        Table(
            f"Gaps of other measures: {title}",
            (
                *map(Column, ("model", "gap", "measure")),
                *_two_gaps(),
            ),
            tuple(_other_items(row) for row in others),
            material.stamps,
            (read, "percentage points, the first group minus the second", standardised, f"{holm}; a family a measure"),
            "subgroups-measures",
            lead=3,
        ),
    )
    return tables[: 3 if others else 2]


def summary_table(material: Material, rows: Rows) -> Table:
    """The largest standardised gap of each model on each dataset, and the verdict over all of them."""
    columns = ("model", "dataset", "largest gap", "patients", "standardised", "p", "tested", "not tested", "verdict")
    body: list[tuple[Item, ...]] = []
    for row in rows:
        body.append(
            (
                row["model"],
                material.title(row["dataset"]),
                gap_name(row) if row["attribute"] else "-",
                _sides(row) if row["attribute"] else "-",
                _cell(HITS, row, "standardised"),
                p_value(row["standardised_p_holm"], row["standardised_p_bound"]),
                str(row["tested"]),
                str(row["not_tested"]),
                row["verdict"],
            )
        )
    notes = (
        "of pointing, at equal findings and sizes of the region, in percentage points; p after Holm's correction",
        "verdict: over all gaps that were tested; fail if one fails, pass if all pass",
    )
    title = "The largest gap between groups"
    return Table(title, tuple(map(Column, columns)), tuple(body), material.stamps, notes, "subgroups", lead=2)


def gap_name(row: Any) -> str:
    """What is compared, in words."""
    return f"{row['attribute']}: {row['first']} minus {row['second']}"


def _two_gaps() -> list[Column]:
    """The columns of the gap as it is, and of the standardised one."""
    return [Column(name, group) for group in ("raw", "standardised") for name in ("gap", "p")]


def _title(measure: str) -> str:
    return METRICS[measure].title if measure in METRICS else _TITLES[measure]


def _group_items(row: Any) -> tuple[Item, ...]:
    cells = [_cell(name, row, name) for name in MEASURES]
    return (
        row["model"],
        row["attribute"],
        row["group"],
        *(str(row[n]) for n in ("patients", "pairs", "images")),
        *cells,
    )


def _pointing_items(row: Any) -> tuple[Item, ...]:
    raw, standardised = _cell(HITS, row, "gap"), _cell(HITS, row, "standardised")
    return (
        row["model"],
        gap_name(row),
        _sides(row),
        raw,
        p_value(row["gap_p_holm"], row["gap_p_bound"]),
        standardised,
        p_value(row["standardised_p_holm"], row["standardised_p_bound"]),
        row["verdict"] or "-",
        "-" if row["strata"] is None else str(row["strata"]),
        "-" if row["pairs_left_out"] is None else str(row["pairs_left_out"]),
        percent_cell(row["mantel_haenszel"]),
        p_value(row["cmh_p"]),
    )


def _other_items(row: Any) -> tuple[Item, ...]:
    name = row["measure"]
    return (
        row["model"],
        gap_name(row),
        _title(name),
        _cell(name, row, "gap"),
        p_value(row["gap_p_holm"], row["gap_p_bound"]),
        _cell(name, row, "standardised"),
        p_value(row["standardised_p_holm"], row["standardised_p_bound"]),
    )


def _cell(measure: str, row: Any, name: str) -> Cell:
    note = _WILSON.get(row[f"{name}_interval"] or "", "")
    ends = between(row, name)
    if measure in METRICS:
        return metric_cell(measure, row[name], ends, note)
    return percent_cell(row[name], ends, note)


def _sides(row: Any) -> Cell:
    shared = row.get("patients_in_both")
    return Cell(f"{row['patients_first']} and {row['patients_second']}", note=f"{shared} in both" if shared else "")
