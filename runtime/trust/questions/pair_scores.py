"""Scores of each pair's own map and of its baselines on the same region (docs/trust.md §1.1, §1.2)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.grounding.other_patients import OtherPatients
from ....metrics_gpu.sweep.masks import unpack_masks
from ....metrics_gpu.sweep.sweep_options import Mode
from ....metrics_gpu.trust.localisation import MEASURES, localise
from ....metrics_gpu.trust.reference_maps import other_patient_pairs, prior_maps
from ....metrics_gpu.trust.similarity import spearman
from ...evaluation.reference.baselines import PREFIX, center_map
from ...host.machine_record import usable_cores
from ...host.protocols import find_protocol
from ...reporting.studies.kept_maps import kept_maps, map_places
from ...reporting.studies.study_cell import StudyCell
from ...results.load_rows import StoredRun
from ...results.schema import GRID
from ...results.stored_maps import MapRows, load_maps

Float = NDArray[np.float64]
Index = NDArray[np.intp]

BASELINES: Final = ("chance", "prior", "other_finding", "other_patient", "mask_prior", "center")
NO_OTHER_PATIENT: Final = "no other patient has the finding"
NO_OTHER_FINDING: Final = "no other finding in the image"

_FRACTION: Final = len(MEASURES)  # columns of a table of scores behind the measures
_DEGENERATE: Final = _FRACTION + 1
_UNSEEN: Final = _FRACTION + 2
_BATCH: Final = 64  # full-size maps in memory at once, per core
_CELLS: Final = 1 << 22  # cells of maps whose ranks are in memory at once


@dataclass(frozen=True, eq=False)
class PairScores:
    """Scores of the P pairs of a cell, in its order.

    own: float64 [P, 5], `MEASURES`, NaN where undefined. baselines: name -> the same, NaN also where a pair has no such
    baseline; why: name -> reason -> the number of these pairs. degenerate: name of a baseline, or `own`, -> bool [P],
    whether a map behind the score is. unseen: bool [P], the model sees no pixel of the region. alike: float64 [P], the
    mean rank correlation of the own map with those of other findings in the same image.
    """

    cell: StudyCell
    own: Float
    baselines: Mapping[str, Float]
    why: Mapping[str, Mapping[str, int]]
    degenerate: Mapping[str, NDArray[np.bool_]]
    unseen: NDArray[np.bool_]
    alike: Float


def pair_scores(cell: StudyCell, run: StoredRun) -> PairScores:
    """Reads the maps of a cell and scores them. Raises RunError when the run keeps no maps of it."""
    maps, saliency = _maps(cell, run)
    n, pairs, upsample = cell.n, map_places(cell, maps), find_protocol(cell.rows.protocol).sweeping.upsample
    with_other, other = _other_findings(maps, pairs)
    with_patient, patient = other_patient_pairs(cell.class_of, cell.patient_of, cell.draws.seed)
    asked = ((pairs, pairs), (other, pairs[with_other]), (pairs[patient], pairs[with_patient]))
    source, region = (np.concatenate(each) for each in zip(*asked, strict=True))
    # All at once, so that a map is ranked once for its own region and for those of other pairs.
    scored = _score(saliency.__getitem__, maps, upsample, source, region)
    own, others, patients = np.split(scored, np.cumsum([len(each) for each, _ in asked])[:-1])
    priors, has_prior = prior_maps(saliency[pairs], cell.class_of, cell.patient_of)
    with_prior = np.flatnonzero(has_prior)
    prior = _score(priors.__getitem__, maps, upsample, with_prior, pairs[with_prior])
    regions = _mean_regions(cell, maps, pairs)
    mask_prior = _score(regions, maps, "nearest", with_prior, pairs[with_prior], whole=True)
    center = _score(_center_maps, maps, "bilinear", np.zeros(n, np.intp), pairs, whole=True)
    baselines = {
        "chance": (_chance(own), np.zeros(n, np.bool_)),
        "prior": _mean_of_pairs(prior, with_prior, n),
        "other_finding": _mean_of_pairs(others, with_other, n),
        "other_patient": _mean_of_pairs(patients, with_patient, n),
        "mask_prior": _mean_of_pairs(mask_prior, with_prior, n),
        "center": _mean_of_pairs(center, np.arange(n), n),
    }
    own_degenerate = own[:, _DEGENERATE] > 0
    alone, single = n - len(with_prior), n - len(np.unique(with_other))
    why = dict.fromkeys(("prior", "other_patient", "mask_prior"), (NO_OTHER_PATIENT, alone))
    why["other_finding"] = (NO_OTHER_FINDING, single)
    return PairScores(
        cell=cell,
        own=own[:, :_FRACTION],
        baselines={name: scores for name, (scores, _) in baselines.items()},
        why={name: {reason: count} for name, (reason, count) in why.items() if count},
        degenerate={"own": own_degenerate} | {name: own_degenerate | flags for name, (_, flags) in baselines.items()},
        unseen=own[:, _UNSEEN] > 0,
        alike=_means(with_other, _alike(saliency, pairs[with_other], other), n),
    )


def _maps(cell: StudyCell, run: StoredRun) -> tuple[MapRows, NDArray[np.float32]]:
    """The cell's stored maps; those of `baseline:center`, which are all alike, are drawn again."""
    if cell.model != f"{PREFIX}center":
        return kept_maps(cell, run)
    maps, drawn = load_maps(run, cell.model, cell.dataset), center_map()
    return maps, np.broadcast_to(drawn, (len(maps), *drawn.shape))


def _center_maps(places: Index) -> NDArray[np.float32]:
    return np.repeat(center_map()[None], len(places), axis=0)


def _mean_regions(cell: StudyCell, maps: MapRows, pairs: Index) -> Callable[[Index], NDArray[np.float32]]:
    """The mean regions of the finding in other patients, of the pairs of the cell at some places."""
    others = OtherPatients(lambda places: unpack_masks(maps.masks[pairs[places]], GRID), cell.class_of, cell.patient_of)

    def taken(places: Index) -> NDArray[np.float32]:
        keys = zip(cell.class_of[places].tolist(), cell.patient_of[places].tolist(), strict=True)
        means = [others.mean(*key) for key in keys]
        return np.stack([mean for mean in means if mean is not None])

    return taken


def _other_findings(maps: MapRows, pairs: Index) -> tuple[Index, Index]:
    """Two intp [M]: a pair, and the stored map of another finding in its image."""
    of_case: dict[str, list[int]] = defaultdict(list)
    for place, case in enumerate(maps.case_id):
        of_case[case].append(place)
    others = [
        (pair, other) for pair, own in enumerate(pairs.tolist()) for other in of_case[maps.case_id[own]] if other != own
    ]
    pair, other = np.array(others, np.intp).reshape(-1, 2).T
    return pair, other


def _score(
    take: Callable[[Index], NDArray[np.float32]],
    maps: MapRows,
    upsample: Mode,
    source: Index,
    region: Index,
    *,
    whole: bool = False,
) -> Float:
    """Scores of M maps (`source`, which `take` gives) on the regions of stored pairs, where they lie in that image:
    float64 [M, 8], `MEASURES`, fraction, degenerate, unseen.

    Each map is ranked once for all regions. whole: maps cover the whole image.
    """
    frames, frame_of = np.unique(maps.frames[region], axis=0, return_inverse=True)
    keys, map_of = np.unique(source * max(len(frames), 1) + frame_of.reshape(-1), return_inverse=True)
    order = np.argsort(map_of, kind="stable")
    ends = np.searchsorted(map_of[order], np.arange(0, len(keys) + _BATCH, _BATCH))

    def batch(number: int) -> Float:
        maps_here = keys[number * _BATCH : (number + 1) * _BATCH]
        chosen = order[ends[number] : ends[number + 1]]
        regions, region_of = np.unique(region[chosen], return_inverse=True)
        scores = localise(
            take(maps_here // len(frames)),
            maps.masks[regions],
            frames=frames[maps_here % len(frames)],
            upsample=upsample,
            full_image=whole,
            pairs=(map_of[chosen] - number * _BATCH, region_of),
        )
        return np.column_stack([scores.measures, scores.fraction, scores.degenerate, scores.unseen])

    with ThreadPoolExecutor(usable_cores()) as pool:  # the ranking releases the interpreter lock
        parts = list(pool.map(batch, range(-(-len(keys) // _BATCH))))
    return np.concatenate([np.zeros((0, _UNSEEN + 1)), *parts])[np.argsort(order, kind="stable")]


def _mean_of_pairs(scored: Float, pair: Index, pairs: int) -> tuple[Float, NDArray[np.bool_]]:
    """Of the scores of each pair the means of those that are defined, [P, 5], and whether a map is degenerate [P]."""
    degenerate = np.bincount(pair, scored[:, _DEGENERATE], pairs) > 0
    return np.column_stack([_means(pair, column, pairs) for column in scored[:, :_FRACTION].T]), degenerate


def _chance(own: Float) -> Float:
    """The scores of a map without information, [P, 5]; undefined where the own score is."""
    chance = np.repeat(own[:, [_FRACTION]], len(MEASURES), axis=1)
    chance[:, MEASURES.index("roc_auc")], chance[:, MEASURES.index("cnr")] = 0.5, 0
    chance[np.isnan(own[:, :_FRACTION])] = np.nan
    return chance


def _alike(saliency: NDArray[np.float32], first: Index, second: Index) -> Float:
    """Rank correlations of maps at these places, float64 [M]."""
    step = max(1, _CELLS // int(np.prod(saliency.shape[1:])))
    parts = [
        spearman(saliency[first[start : start + step]], saliency[second[start : start + step]])
        for start in range(0, len(first), step)
    ]
    return np.concatenate([np.zeros(0), *parts])


def _means(pair: Index, values: Float, pairs: int) -> Float:
    """float64 [pairs]: the mean of the values of each pair that are defined, NaN where there is none.

    The mean of equal values is that value to the last bit, so that equal maps differ by 0.
    """
    defined = ~np.isnan(values)
    pair, values = pair[defined], values[defined]
    first = np.full(pairs, np.nan)
    first[pair] = values
    deviations = np.bincount(pair, values - first[pair], pairs)
    return first + deviations / np.maximum(np.bincount(pair, minlength=pairs), 1)
