"""Study of trust: does a map find the region, answer the image, and answer the prompt? (docs/trust.md §1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....engines.errors import RunError
from ....metrics_gpu.trust.reference_maps import MOST_OTHERS
from ...reporting.studies.material import Material
from ...reporting.studies.study_outcome import StudyOutcome
from .pair_scores import PairScores, pair_scores
from .trust_differences import Compared, compared, judged
from .trust_rows import count_row, difference_row, score_row, verdict_row
from .trust_tables import tables

_OTHERS = "present"


def study_trust(material: Material) -> StudyOutcome:
    """The trust tests that stored maps and regions answer, without the model.

    Raises RunError when the run keeps no maps of any cell.
    """
    found: list[Compared] = []
    cells, counts, remarks = [], [], []
    for cell in material.paired:
        try:
            scores = pair_scores(cell, material.run)
        except RunError as error:
            remarks.append(f"No trust tests of {cell.model} on {cell.title}: {error}")
            continue
        found += compared(scores, material.sampling.level)
        cells.append(cell)
        counts.append(count_row(scores))
        remarks += _odd(scores)
    if not found:
        why = " ".join(remarks) or "no result has a region."
        raise RunError(f"{material.path} has no maps to test. {why}")
    told = judged(found)
    verdicts = [verdict_row(item, verdict, _OTHERS) for item, verdict in told if item.criterion is not None]
    differences = [difference_row(item, verdict) for item, verdict in told]
    scored = [score_row(item) for item in found if not item.baseline]
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


def _odd(scores: PairScores) -> list[str]:
    """A sentence for each kind of odd pair of a cell."""
    cell, row = scores.cell, count_row(scores)
    where, n = f"{cell.model} on {cell.title}", row["pairs"]
    lines = {
        "degenerate": "have a degenerate map, which scores as a constant one.",
        "unseen_regions": "have a region of which the model sees no pixel; they score as on a constant map.",
        "no_other_patient": "have no other patient with the finding, and so no prior map.",
        "no_other_finding": "have no other finding in the image, and do not ask about the prompt.",
        "undefined_roc_auc": "have a region of all pixels, and no ROC AUC.",
    }
    told = [f"{where}: {row[name]} of {n} pairs {text}" for name, text in lines.items() if row[name]]
    if count := row["uncounted_regions"]:
        told.append(f"{where}: {count} regions have no pixel or lie outside their image, and are no pairs.")
    return told


def _disagreements(verdicts: Sequence[dict[str, object]]) -> list[str]:
    count = sum(bool(row["disagrees"]) for row in verdicts)
    return (
        [f"of {count} verdict{'s' * (count > 1)} the interval and p (before the correction) disagree"] if count else []
    )
