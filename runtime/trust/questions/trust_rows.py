"""Means and differences of the study of trust -> rows of its files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ....metrics_gpu.trust.verdicts import TrustVerdict
from ...reporting.studies.writing import limits
from .pair_scores import PairScores
from .trust_differences import QUESTIONS, UNDEFINED, Compared


def _lead(found: Compared) -> dict[str, Any]:
    return {
        "model": found.cell.model,
        "dataset": found.cell.dataset,
        "class": found.name or "mean",
        "measure": found.measure,
    }


def _why(left_out: Mapping[str, int]) -> dict[str, Any]:
    told = "; ".join(f"{reason}: {count}" for reason, count in left_out.items())
    return {"left_out": sum(left_out.values()), "why": told}


def score_row(found: Compared) -> dict[str, Any]:
    """A score alone, on all pairs that have it."""
    effect = found.effect
    return {
        **_lead(found),
        "value": effect.value,
        **limits("value", effect.interval),
        "pairs": effect.pairs,
        "patients": effect.patients,
        **_why(effect.left_out),
    }


def difference_row(found: Compared, told: TrustVerdict) -> dict[str, Any]:
    """A score minus that of a baseline, on the pairs that have both, with its test."""
    return {
        **_lead(found),
        "baseline": found.baseline,
        "own": found.own,
        "reference": found.reference,
        "difference": told.value,
        "difference_low": told.low,
        "difference_high": told.high,
        "pairs": told.pairs,
        "patients": told.patients,
        "p": told.p,
        "p_bound": told.p_bound,
        "p_holm": told.p_holm,
        "family": told.family,
        "exploratory": bool(found.name) or found.baseline not in QUESTIONS,
        "disagrees": told.disagrees,
        "degenerate": told.degenerate,
        **_why(told.left_out),
    }


def verdict_row(found: Compared, told: TrustVerdict, others: str) -> dict[str, Any]:
    """A question with its verdict. others: which other findings were asked."""
    row = difference_row(found, told)
    del row["class"], row["exploratory"]
    return {
        "question": QUESTIONS[found.baseline],
        **row,
        "others": others if found.baseline == "other_finding" else "",
        "criterion": told.criterion,
        "verdict": told.word,
        "told": told.text,
    }


def count_row(scores: PairScores) -> dict[str, Any]:
    """What is odd about the pairs of a cell."""
    cell = scores.cell
    why = {name: sum(found.values()) for name, found in scores.why.items()}
    return {
        "model": cell.model,
        "dataset": cell.dataset,
        "pairs": cell.n,
        "patients": len(np.unique(cell.patient_of)),
        "degenerate": int(scores.degenerate["own"].sum()),
        "unseen_regions": int(scores.unseen.sum()),
        "uncounted_regions": sum(int(cell.rows.entry.get(kind) or 0) for kind in ("empty", "outside")),
        "no_other_patient": why.get("prior", 0),
        "no_other_finding": why.get("other_finding", 0),
        f"{UNDEFINED}_roc_auc": int(np.isnan(scores.own[:, 1]).sum()),
        f"{UNDEFINED}_cnr": int(np.isnan(scores.own[:, 3]).sum()),
    }
