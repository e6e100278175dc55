"""A finished cell -> its measures in each group, and the gaps between groups, as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .....engines.errors import RunError
from .....metrics_gpu.grounding.strata import STRATA, strata_of
from .....metrics_gpu.statistics.measured_numbers import Measured
from .....metrics_gpu.statistics.sign_flips import draws_for
from .....metrics_gpu.trust.group_auc import ScoredImages, auc_gap, auc_of_group
from .....metrics_gpu.trust.subgroups import HITS, Gap, GroupGap, MeasuredPairs, corrected, group_gap, group_means
from .....metrics_gpu.trust.verdicts import worst_of
from ....host.protocols import find_protocol
from ....results.load_rows import StoredRun
from ..columns import measured
from ..kept_maps import kept_maps, map_places
from ..study_cell import PIXELS, StudyCell
from .grouping import REST, Grouping

MEASURES = (HITS, "dice_fixed", "average_precision", "auc")

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class GroupedCell:
    """groups, gaps: rows of the cell. summary: its verdict. remarks: which measures it lacks, and why."""

    groups: list[dict[str, Any]]
    gaps: list[dict[str, Any]]
    summary: dict[str, Any] | None
    remarks: list[str]


def grouped_cell(cell: StudyCell, run: StoredRun, divisions: Sequence[Grouping], level: float) -> GroupedCell:
    """All groups of a cell, all gaps as one family of tests."""
    pairs, remarks = _pairs(cell, run, level)
    images = _images(cell, level)
    of_pairs, of_images = cell.case_ids, [cell.rows.case_ids[case] for case in cell.rows.case_of]
    named = {"model": cell.model, "dataset": cell.dataset}
    groups, compared, gaps = [], [], []
    family = sum(len(division.comparisons) for division in divisions)
    for division in divisions:
        in_pairs, in_images = division.members(of_pairs), division.members(of_images)
        for place, name in enumerate(division.names):
            labels = named | {"attribute": division.attribute, "group": name}
            groups.append(labels | _group_row(pairs, images, in_pairs == place, in_images == place))
        for first, second in division.comparisons:
            place = division.names.index(first)
            other = None if second == REST else division.names.index(second)
            sides = [
                (every == place, every != place if other is None else every == other) for every in (in_pairs, in_images)
            ]
            compared.append(named | {"attribute": division.attribute, "first": first, "second": second})
            gap = group_gap(pairs, *sides[0], draws_for(family))
            auc = None if images is None else auc_gap(images, *sides[1])
            gaps.append(gap if auc is None else replace(gap, raw={**gap.raw, "auc": auc}))
    gaps = corrected(gaps)
    rows = [row for labels, gap in zip(compared, gaps, strict=True) for row in _gap_rows(labels, gap)]
    return GroupedCell(groups, rows, _summary(named, compared, gaps), remarks)


def _pairs(cell: StudyCell, run: StoredRun, level: float) -> tuple[MeasuredPairs, list[str]]:
    values = {HITS: cell.hits}
    remarks = []
    fixed = cell.scores().each["dice_fixed"]
    if np.isfinite(fixed).all():
        values["dice_fixed"] = fixed
    try:
        maps, saliency = kept_maps(cell, run)
        places = map_places(cell, maps)
        from .....metrics_gpu.trust.localisation import localise

        upsample = find_protocol(cell.rows.protocol).sweeping.upsample
        scores = localise(saliency[places], maps.masks[places], frames=maps.frames[places], upsample=upsample)
        values["average_precision"] = scores.average_precision
        if count := int(scores.degenerate.sum()):
            remark = f"{count} of {cell.n} pairs have a degenerate map, which scores as a constant one"
            remarks.append(f"{cell.model} on {cell.dataset}: {remark}.")
    except RunError as error:
        remarks.append(f"{cell.model} on {cell.dataset} has no average precision: {str(error).rstrip('.')}.")
    size, _ = strata_of(cell.counts.region, PIXELS)
    stratum_of = cell.class_of * len(STRATA) + size
    return MeasuredPairs(values, stratum_of, cell.patient_of, cell.draws, level), remarks


def _images(cell: StudyCell, level: float) -> ScoredImages | None:
    if not cell.scored or not cell.rows.scored:
        return None
    rows = cell.rows
    return ScoredImages(rows.logits, rows.labels, rows.findings, cell.image_patients, cell.draws, level)


def _group_row(pairs: MeasuredPairs, images: ScoredImages | None, in_pairs: Mask, in_images: Mask) -> dict[str, Any]:
    row: dict[str, Any] = {
        "patients": pairs.patients(in_pairs),
        "pairs": int(in_pairs.sum()),
        "images": int(in_images.sum()),
    }
    means = group_means(pairs, in_pairs) if in_pairs.any() else {}
    auc = auc_of_group(images, in_images) if images is not None and in_images.any() else None
    if auc is not None:
        means["auc"], findings = auc
    for name in MEASURES:
        row |= measured(name, means.get(name, Measured()), method=True)
    return row | {"auc_findings": None if auc is None else findings}


def _gap_rows(labels: Mapping[str, Any], gap: GroupGap) -> list[dict[str, Any]]:
    counted = {
        "patients_first": gap.patients[0],
        "patients_second": gap.patients[1],
        "patients_in_both": gap.shared,
        "pairs_first": gap.pairs[0],
        "pairs_second": gap.pairs[1],
        "tested": gap.tested,
    }
    rows = []
    for measure in dict.fromkeys([HITS, *gap.raw]):
        raw, standardised = gap.raw.get(measure, Gap()), gap.standardised.get(measure, Gap())
        row = {
            **labels,
            **counted,
            "measure": measure,
            **_numbers("gap", raw),
            **_numbers("standardised", standardised),
        }
        strata = {"strata": gap.strata, "strata_left_out": gap.strata_left_out, "pairs_left_out": gap.pairs_left_out}
        row |= strata if measure in gap.standardised else dict.fromkeys(strata)
        pointing = measure == HITS and measure in gap.raw
        row["mantel_haenszel"] = gap.common.risk_difference if pointing else None
        row["odds_ratio"] = gap.common.odds_ratio if pointing else None
        row["cmh_p"] = gap.common.p if pointing else None
        row["verdict"] = standardised.word if measure == HITS and gap.tested else None
        rows.append(row)
    return rows


def _numbers(name: str, gap: Gap) -> dict[str, Any]:
    return {
        **measured(name, gap, method=True),
        f"{name}_p": gap.p,
        f"{name}_p_bound": gap.p_bound,
        f"{name}_p_holm": gap.p_holm,
    }


def _summary(
    named: Mapping[str, Any], compared: Sequence[Mapping[str, Any]], gaps: Sequence[GroupGap]
) -> dict[str, Any] | None:
    """The largest standardised gap of pointing that was tested, and the verdict over all of them; None without gaps."""
    if not gaps:
        return None
    tested = [
        (labels, gap.standardised[HITS], gap)
        for labels, gap in zip(compared, gaps, strict=True)
        if gap.tested and HITS in gap.standardised
    ]
    row: dict[str, Any] = dict(named)
    labels, largest, gap = max(tested, key=lambda each: abs(each[1].value or 0.0), default=({}, Gap(), None))
    row |= {key: labels.get(key) for key in ("attribute", "first", "second")}
    row |= _numbers("standardised", largest)
    row |= {"patients_first": None, "patients_second": None}
    if gap is not None:
        row |= {"patients_first": gap.patients[0], "patients_second": gap.patients[1]}
    words = [each.word for _, each, _ in tested]
    return row | {"tested": len(tested), "not_tested": len(gaps) - len(tested), "verdict": worst_of(words)}
