"""Rows of the study of trust -> its tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ....metrics_gpu.trust.localisation import MEASURES
from ....metrics_gpu.trust.verdicts import ALPHA, LEAST_PATIENTS, MARGINS, MOST_DEGENERATE
from ...reporting.studies.material import Material
from ...reporting.studies.study_outcome import Rows
from ...reporting.studies.writing import between, number_cell
from ...reporting.tables.metric_names import NONE, p_value
from ...reporting.tables.table import Column, Item, Table
from .pair_scores import BASELINES
from .trust_differences import ALIKE, QUESTIONS

_WORDS: Final = {"roc_auc": "ROC AUC", "cnr": "CNR", ALIKE: "Spearman(own, other finding)"}
_NOTES: Final = (
    f"pass: the interval lies above 0 by more than {MARGINS[MEASURES[0]]:g} and p (Holm) is below {ALPHA:g}; cannot "
    f"tell: also with fewer than {LEAST_PATIENTS} patients; void: more than {100 * MOST_DEGENERATE:g} % of the maps "
    "are degenerate; docs/trust.md §0.3",
    "average precision of the pixels; mean over classes; own and baseline on the pairs that have both",
    "p: two-sided, of sign flips by patient; <: no pattern was as extreme; p (Holm): corrected for m tests, the models "
    "and questions of a dataset",
)
_BASELINES: Final = (
    "prior: the mean map of the finding in other patients; other finding: the maps of other findings in the image; "
    "other patient: maps of the finding in other patients, one by one; mask prior: the mean region of the finding in "
    "other patients; center: a Gaussian in the middle of the image; docs/trust.md §1.2",
    "fractions; p of each measure is corrected apart, since measures of the same maps depend on each other",
)


def tables(verdicts: Rows, scores: Rows, differences: Rows, material: Material) -> tuple[Table, ...]:
    """The verdicts; every measure beside its baselines; the main measure by finding."""
    return (
        _verdict_table(verdicts, material),
        _measure_table(scores, differences, material),
        _finding_table(scores, differences, material),
    )


def _words(name: str) -> str:
    return _WORDS.get(name, name.replace("_", " "))


def _lead(row: Mapping[str, Any], material: Material) -> tuple[str, str]:
    return str(row["model"]), material.title(row["dataset"])


def _value(row: Mapping[str, Any] | None, name: str) -> Item:
    """A number of a row, with its interval if the row has one."""
    if row is None:
        return NONE
    return number_cell(row[name], between(row, name) if f"{name}_low" in row else None, 3)


def _verdict_table(rows: Rows, material: Material) -> Table:
    columns = ("model", "dataset", "question", "pairs", "patients", "left out", "own", "baseline", "", "own - baseline")
    body: list[tuple[Item, ...]] = [
        (
            *_lead(row, material),
            str(row["question"]),
            *(str(row[name]) for name in ("pairs", "patients", "left_out")),
            _value(row, "own"),
            _words(row["baseline"]),
            _value(row, "reference"),
            _value(row, "difference"),
            p_value(row["p"], row["p_bound"]),
            p_value(row["p_holm"], row["p_bound"]),
            str(row["family"]),
            str(row["told"]),
        )
        for row in rows
    ]
    named = (*map(Column, columns), Column("p"), Column("p (Holm)"), Column("m"), Column("verdict"))
    return Table("Verdicts", named, tuple(body), material.stamps, _NOTES, "trust", lead=3, first=True)


def _measure_table(scores: Rows, differences: Rows, material: Material) -> Table:
    """A line for each measure of a cell: its mean, and each baseline with the difference from it."""
    columns = [Column(name) for name in ("model", "dataset", "measure", "pairs", "own")]
    for baseline in BASELINES:
        columns += [Column("value", _words(baseline)), Column("own - it", _words(baseline))]
    found = {(row["model"], row["dataset"], row["measure"], row["baseline"]): row for row in _means(differences)}
    body: list[tuple[Item, ...]] = []
    for row in _means(scores):
        line: list[Item] = [*_lead(row, material), _words(row["measure"]), str(row["pairs"]), _value(row, "value")]
        for baseline in BASELINES:
            other = found.get((row["model"], row["dataset"], row["measure"], baseline))
            line += [_value(other, "reference"), _value(other, "difference")]
        body.append(tuple(line))
    return Table("Measures", tuple(columns), tuple(body), material.stamps, _BASELINES, "measures", lead=4)


def _finding_table(scores: Rows, differences: Rows, material: Material) -> Table:
    """The main measure of each finding."""
    columns = [Column(name) for name in ("model", "dataset", "finding", "pairs", "patients", "own")]
    columns += [Column(title, f"own - {_words(name)}") for name in QUESTIONS for title in ("", "p (Holm)")]
    keys = ("model", "dataset", "class", "baseline")
    found = {tuple(row[key] for key in keys): row for row in differences if row["measure"] == MEASURES[0]}
    body: list[tuple[Item, ...]] = []
    for row in scores:
        if row["measure"] != MEASURES[0] or row["class"] == "mean":
            continue
        line: list[Item] = [*_lead(row, material), *(str(row[key]) for key in ("class", "pairs", "patients"))]
        line.append(_value(row, "value"))
        for baseline in QUESTIONS:
            other = found.get((row["model"], row["dataset"], row["class"], baseline))
            line += [_value(other, "difference"), p_value(other["p_holm"], other["p_bound"]) if other else NONE]
        body.append(tuple(line))
    sizes = {row["dataset"]: row["family"] for key, row in found.items() if key[2] != "mean" and key[-1] in QUESTIONS}
    notes = (
        "average precision; exploratory: p is corrected for m tests, the models, questions and findings of a dataset: "
        + "; ".join(f"{material.title(dataset)}: m = {size}" for dataset, size in sizes.items()),
    )
    return Table("Findings", tuple(columns), tuple(body), material.stamps, notes, "findings", lead=3, detail=True)


def _means(rows: Rows) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["class"] == "mean"]
