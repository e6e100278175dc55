"""Study of trust: does a map find the region, answer the image, and answer the prompt? (docs/trust.md §1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ....engines.errors import RunError
from ....metrics_gpu.statistics.measured_numbers import disagreements
from ....metrics_gpu.trust.localisation import MEASURES
from ....metrics_gpu.trust.reference_maps import MOST_OTHERS
from ....metrics_gpu.trust.verdicts import ALPHA, LEAST_PATIENTS, MARGINS, MOST_DEGENERATE
from ...reporting.studies.material import Material
from ...reporting.studies.study_cell import StudyCell
from ...reporting.studies.study_outcome import Rows, StudyOutcome
from ...reporting.studies.writing import between, number_cell
from ...reporting.tables.metric_names import NONE, p_value
from ...reporting.tables.table import Column, Item, Table
from .pair_scores import BASELINES, PairScores, pair_scores
from .trust_differences import (
    ALIKE,
    QUESTIONS,
    UNDEFINED,
    Compared,
    compared,
    difference_row,
    score_row,
    verdict_row,
    verdicts_of,
)

_OTHERS: Final = "present"
_KEY: Final = ("model", "dataset", "class", "measure", "baseline")
_Differences = Mapping[tuple[str, ...], Mapping[str, Any]]

_ODD: Final = {
    "degenerate": "have a degenerate map, which scores as a constant one.",
    "unseen_regions": "have a region of which the model sees no pixel; they score as on a constant map.",
    "no_other_patient": "have no other patient with the finding, and so no prior map.",
    "no_other_finding": "have no other finding in the image, and do not ask about the prompt.",
    "undefined_roc_auc": "have a region of all pixels, and no ROC AUC.",
}
"""Count of a cell -> the end of a sentence about these pairs."""
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


def study_trust(material: Material) -> StudyOutcome:
    """The trust tests that stored maps and regions answer, without the model.

    Raises RunError when the run keeps no maps of any cell.
    """
    comparisons: list[Compared] = []
    cells, counts, remarks = [], [], []
    for cell in material.paired:
        try:
            scores = pair_scores(cell, material.run)
        except RunError as error:
            remarks.append(f"No trust tests of {cell.model} on {cell.title}: {error}")
            continue
        comparisons += compared(scores, material.sampling.level)
        cells.append(cell)
        counts.append(_counts(scores))
        remarks += _remarks(cell, counts[-1])
    if not comparisons:
        why = " ".join(remarks) or "no result has a region."
        raise RunError(f"{material.path} has no maps to test. {why}")
    tested = verdicts_of(comparisons)
    verdicts = [verdict_row(item, verdict, _OTHERS) for item, verdict in tested if item.criterion is not None]
    differences = [difference_row(item, verdict) for item, verdict in tested]
    scored = [score_row(item) for item in comparisons if not item.baseline]
    by_key = {tuple(row[name] for name in _KEY): row for row in differences}
    tested_cells = replace(material, cells=tuple(cells))
    facts = (
        f"{len(counts)} of {len(material.cells)} finished results have maps to test",
        "other finding: those with a region in the same image, because a run keeps no maps of absent findings",
        f"other patient: up to {MOST_OTHERS} maps a pair, drawn with the seed of the patients",
        material.sampling.fact,
        *disagreements([verdict for item, verdict in tested if item.criterion is not None], "verdict"),
        *material.unfinished,
    )
    return StudyOutcome(
        name="trust",
        title="Trust in maps",
        facts=facts,
        tables=(
            _verdict_table(verdicts, tested_cells),
            _measure_table(scored, by_key, tested_cells),
            _finding_table(scored, by_key, tested_cells),
        ),
        data={"verdicts": verdicts, "scores": scored, "differences": differences, "counts": counts},
        settings={"others": _OTHERS, "most_others": MOST_OTHERS, **material.sampling.settings},
        remarks=tuple(dict.fromkeys(remarks)),
    )


def _counts(scores: PairScores) -> dict[str, Any]:
    """How many pairs of a cell there are, and of each odd kind."""
    cell = scores.cell
    without = {name: sum(reasons.values()) for name, reasons in scores.why.items()}
    return {
        "model": cell.model,
        "dataset": cell.dataset,
        "pairs": cell.n,
        "patients": len(np.unique(cell.patient_of)),
        "degenerate": int(scores.degenerate["own"].sum()),
        "unseen_regions": int(scores.unseen.sum()),
        "uncounted_regions": sum(int(cell.rows.entry.get(kind) or 0) for kind in ("empty", "outside")),
        "no_other_patient": without.get("prior", 0),
        "no_other_finding": without.get("other_finding", 0),
        f"{UNDEFINED}_roc_auc": int(np.isnan(scores.own[:, 1]).sum()),
        f"{UNDEFINED}_cnr": int(np.isnan(scores.own[:, 3]).sum()),
    }


def _remarks(cell: StudyCell, counts: Mapping[str, Any]) -> list[str]:
    """A sentence for each kind of odd pair of a cell."""
    where = f"{cell.model} on {cell.title}"
    remarks = [
        f"{where}: {counts[name]} of {counts['pairs']} pairs {text}" for name, text in _ODD.items() if counts[name]
    ]
    if count := counts["uncounted_regions"]:
        remarks.append(f"{where}: {count} regions have no pixel or lie outside their image, and are no pairs.")
    return remarks


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


def _measure_table(scores: Rows, by_key: _Differences, material: Material) -> Table:
    """A line for each measure of a cell: its mean, and each baseline with the difference from it."""
    columns = [Column(name) for name in ("model", "dataset", "measure", "pairs", "own")]
    for baseline in BASELINES:
        columns += [Column("value", _words(baseline)), Column("own - it", _words(baseline))]
    body: list[tuple[Item, ...]] = []
    for row in scores:
        if row["class"] != "mean":
            continue
        line: list[Item] = [*_lead(row, material), _words(row["measure"]), str(row["pairs"]), _value(row, "value")]
        for baseline in BASELINES:
            other = by_key.get((*(row[name] for name in _KEY[:-1]), baseline))
            line += [_value(other, "reference"), _value(other, "difference")]
        body.append(tuple(line))
    return Table("Measures", tuple(columns), tuple(body), material.stamps, _BASELINES, "measures", lead=4)


def _finding_table(scores: Rows, by_key: _Differences, material: Material) -> Table:
    """The main measure of each finding."""
    columns = [Column(name) for name in ("model", "dataset", "finding", "pairs", "patients", "own")]
    columns += [Column(title, f"own - {_words(name)}") for name in QUESTIONS for title in ("", "p (Holm)")]
    body: list[tuple[Item, ...]] = []
    for row in scores:
        if row["measure"] != MEASURES[0] or row["class"] == "mean":
            continue
        line: list[Item] = [*_lead(row, material), *(str(row[key]) for key in ("class", "pairs", "patients"))]
        line.append(_value(row, "value"))
        for baseline in QUESTIONS:
            other = by_key.get((*(row[name] for name in _KEY[:-1]), baseline))
            line += [_value(other, "difference"), p_value(other["p_holm"], other["p_bound"]) if other else NONE]
        body.append(tuple(line))
    sizes = {
        dataset: row["family"]
        for (_, dataset, name, measure, baseline), row in by_key.items()
        if name != "mean" and measure == MEASURES[0] and baseline in QUESTIONS
    }
    notes = (
        "average precision; exploratory: p is corrected for m tests, the models, questions and findings of a dataset: "
        + "; ".join(f"{material.title(dataset)}: m = {size}" for dataset, size in sizes.items()),
    )
    return Table("Findings", tuple(columns), tuple(body), material.stamps, notes, "findings", lead=3, detail=True)
