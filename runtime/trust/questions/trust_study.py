"""Study of trust: does a map find the region, answer the image, and answer the prompt? (docs/trust.md §1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ....engines.errors import RunError
from ....metrics_gpu.trust.reference_maps import MOST_OTHERS
from ...reporting.studies.material import Material
from ...reporting.studies.study_cell import StudyCell
from ...reporting.studies.study_outcome import StudyOutcome
from .pair_scores import PairScores, pair_scores
from .trust_differences import UNDEFINED, Compared, compared, difference_row, score_row, verdict_row, verdicts_of
from .trust_tables import tables

_OTHERS: Final = "present"
_ODD: Final = {
    "degenerate": "have a degenerate map, which scores as a constant one.",
    "unseen_regions": "have a region of which the model sees no pixel; they score as on a constant map.",
    "no_other_patient": "have no other patient with the finding, and so no prior map.",
    "no_other_finding": "have no other finding in the image, and do not ask about the prompt.",
    "undefined_roc_auc": "have a region of all pixels, and no ROC AUC.",
}
"""Count of a cell -> the end of a sentence about these pairs."""


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
    facts = (
        f"{len(counts)} of {len(material.cells)} finished results have maps to test",
        "other finding: those with a region in the same image, because a run keeps no maps of absent findings",
        f"other patient: up to {MOST_OTHERS} maps a pair, drawn with the seed of the patients",
        material.sampling.fact,
        *_disagreements(verdicts),
        *material.unfinished,
    )
    return StudyOutcome(
        name="trust",
        title="Trust in maps",
        facts=facts,
        tables=tables(verdicts, scored, differences, replace(material, cells=tuple(cells))),
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


def _disagreements(verdicts: Sequence[dict[str, object]]) -> list[str]:
    count = sum(bool(row["disagrees"]) for row in verdicts)
    return (
        [f"of {count} verdict{'s' * (count > 1)} the interval and p (before the correction) disagree"] if count else []
    )
