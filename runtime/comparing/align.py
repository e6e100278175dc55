"""The rows that two cells share, on (case, finding), and those that only one of them has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...engines.errors import RunError
from ...metrics_gpu.grounding.curves import pointing_hits
from ...metrics_gpu.grounding.options import GroundingOptions
from ...metrics_gpu.statistics.bootstrap import patient_index
from ...metrics_gpu.sweep.counts import Counts
from ..results.basis import common_places, image_names, pair_keys
from ..results.choices import Choices
from ..results.load import CellRows, StoredRun
from ..results.pairs import ScoredPairs, scored_pairs
from .matching import Match

__all__ = ["Aligned", "OnlyIn", "Side", "align"]

NOT_READ, NOT_THERE = "no readable image", "not in the run"


@dataclass(frozen=True)
class OnlyIn:
    """What one run has and the other has not.

    rows: scored (case, finding) rows. cases: (case, why the other has none). findings: classes. pairs: (case, finding)
    of shared rows whose region is counted in this run alone.
    """

    rows: int
    cases: tuple[tuple[str, str], ...]
    findings: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]

    @property
    def total(self) -> int:
        """Rows and pairs together."""
        return self.rows + len(self.pairs)


@dataclass(frozen=True, eq=False)
class Side:
    """One run's numbers on the shared rows.

    logits, negatives: float32 [N, C] (NaN where there is none); scored: whether it has scores at all, which a baseline
    has not. Of the P shared pairs: counts, hits float64 [P]. pixels, options: of `metrics_gpu.grounding`.
    """

    scored: bool
    logits: NDArray[np.float32]
    negatives: NDArray[np.float32]
    counts: Counts
    hits: NDArray[np.float64]
    pixels: int | None
    options: GroundingOptions


@dataclass(frozen=True, eq=False)
class Aligned:
    """Two cells on the N images and C findings that both scored, and the P pairs that both count.

    labels: int8 [N, C], -1 also where the two runs disagree. patient_of: intp [N], 0..patients-1. image_of, class_of:
    intp [P]. fixed: whether threshold 0.5 means something in their protocol.
    label_changes, region_changes: (case, finding) whose label, or size of the region, differs: the truth changed.
    """

    match: Match
    title: str
    findings: tuple[str, ...]
    cases: tuple[str, ...]
    patient_of: NDArray[np.intp]
    patients: int
    labels: NDArray[np.int8]
    image_of: NDArray[np.intp]
    class_of: NDArray[np.intp]
    a: Side
    b: Side
    only_a: OnlyIn
    only_b: OnlyIn
    label_changes: tuple[tuple[str, str], ...]
    region_changes: tuple[tuple[str, str], ...]
    fixed: bool

    def pair_names(self, pairs: NDArray[np.intp]) -> list[tuple[str, str]]:
        """(case, finding) of some pairs."""
        return [(self.cases[self.image_of[p]], self.findings[self.class_of[p]]) for p in pairs]


def align(run_a: StoredRun, run_b: StoredRun, match: Match, choices: Choices) -> Aligned:
    """Reads both cells and keeps what they share.

    Raises RunError when they were swept by different protocols, whose numbers are not comparable, or cannot be read.
    """
    one, two = run_a.cell(match.model_a, match.dataset), run_b.cell(match.model_b, match.dataset)
    if one.protocol != two.protocol:
        raise RunError(
            f"{match.models} on {match.dataset}: {run_a.path} was evaluated by protocol '{one.protocol}', {run_b.path} "
            f"by '{two.protocol}', and their numbers cannot be compared; evaluate both with the same --protocol."
        )
    scored_a, scored_b = scored_pairs(run_a, one, choices), scored_pairs(run_b, two, choices)
    names_a, names_b = image_names(one), image_names(two)
    images_a, images_b = common_places(names_a, names_b)
    findings = tuple(name for name in one.findings if name in two.findings)
    classes_a, classes_b = (np.array([cell.findings.index(name) for name in findings], np.intp) for cell in (one, two))
    keys_a, keys_b = pair_keys(scored_a, images_a, classes_a), pair_keys(scored_b, images_b, classes_b)
    pairs_a, pairs_b = common_places(keys_a, keys_b)
    cases = tuple(one.case_ids[index] for index in one.case_of[images_a])
    at = np.array([keys_a[p] for p in pairs_a], np.intp).reshape(-1, 2)
    label_a, label_b = one.labels[np.ix_(images_a, classes_a)], two.labels[np.ix_(images_b, classes_b)]
    side_a = _side(one, scored_a, images_a, classes_a, pairs_a)
    side_b = _side(two, scored_b, images_b, classes_b, pairs_b)
    patient_of, patients = patient_index([one.patients[index] for index in one.case_of[images_a]])
    other_region = np.flatnonzero(side_a.counts.region != side_b.counts.region)

    def named(places: Sequence[tuple[int, int]] | NDArray[np.intp]) -> tuple[tuple[str, str], ...]:
        return tuple((cases[image], findings[c]) for image, c in places)

    return Aligned(
        match=match,
        title=str(one.entry["title"]),
        findings=findings,
        cases=cases,
        patient_of=patient_of,
        patients=patients,
        labels=np.where(label_a == label_b, label_a, np.int8(-1)),
        image_of=at[:, 0],
        class_of=at[:, 1],
        a=side_a,
        b=side_b,
        only_a=_only(one, two, names_a, names_b, named(_left(keys_a, keys_b))),
        only_b=_only(two, one, names_b, names_a, named(_left(keys_b, keys_a))),
        label_changes=named(np.argwhere(label_a != label_b)),
        region_changes=named(at[other_region]),
        fixed=scored_a.protocol.fixed_tau is not None,
    )


def _left(one: Sequence[tuple[int, int] | None], two: Sequence[tuple[int, int] | None]) -> list[tuple[int, int]]:
    there = set(two)
    return [key for key in one if key is not None and key not in there]


def _side(
    cell: CellRows, scored: ScoredPairs, images: NDArray[np.intp], classes: NDArray[np.intp], pairs: NDArray[np.intp]
) -> Side:
    hits = pointing_hits(scored.counts, scored.options.ties) if scored.hits is None else scored.hits
    return Side(
        scored=cell.scored,
        logits=cell.logits[np.ix_(images, classes)],
        negatives=cell.negatives[np.ix_(images, classes)],
        counts=scored.counts.take(pairs),
        hits=hits[pairs],
        pixels=scored.pixels,
        options=scored.options,
    )


def _only(
    cell: CellRows,
    other: CellRows,
    names: Sequence[tuple[str, int]],
    others: Sequence[tuple[str, int]],
    pairs: tuple[tuple[str, str], ...],
) -> OnlyIn:
    known, listed = set(others), set(other.case_ids)
    cases = [(case, NOT_READ if case in listed else NOT_THERE) for case, turn in names if (case, turn) not in known]
    findings = tuple(name for name in cell.findings if name not in other.findings)
    rows = len(cases) * len(cell.findings) + (len(names) - len(cases)) * len(findings)
    return OnlyIn(rows, tuple(cases), findings, pairs)
