"""The pairs of a cell as a report scores them: other thresholds, ties or tolerance, and pairs left out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...metrics_gpu.counts import Counts
from ...metrics_gpu.curves import pointing_hits
from ...metrics_gpu.options import GroundingOptions
from ...metrics_gpu.protocols import Protocol, protocol
from ..evaluation.schema import GRID
from .choices import Choices
from .load import CellRows, Run
from .maps import MapRows, load_maps

__all__ = ["ScoredPairs", "scored_pairs"]

_DEFAULT = protocol("default")


@dataclass(frozen=True)
class ScoredPairs:
    """What `metrics_gpu.grounding` takes, of the pairs that count.

    image_of, class_of: intp [P]. hits: float64 [P] or None for the counts' own. pixels: of the grid where the counts
    cannot tell. protocol: the one they were swept by; its `fixed_tau` may be None.
    """

    counts: Counts
    image_of: NDArray[np.intp]
    class_of: NDArray[np.intp]
    hits: NDArray[np.float64] | None
    pixels: int | None
    options: GroundingOptions
    protocol: Protocol


def scored_pairs(run: Run, cell: CellRows, choices: Choices) -> ScoredPairs:
    """The pairs of `cell` by `choices`.

    Maps are read from `run` only where the rows do not hold what is asked: another sweep than the evaluation's, or a
    tolerance. Raises ConfigError for an unknown protocol and RunError where maps are needed and were not kept.
    """
    wanted, options = choices.protocol_of(cell.entry), choices.scoring_of(cell.entry)
    # No saliency is kept of baselines whose map is the same everywhere: their counts stay those of the evaluation.
    maps = load_maps(run, cell.model, cell.dataset) if _needs_maps(cell, choices, wanted, options) else None
    counts = cell.counts
    if maps is not None and wanted.sweeping != protocol(cell.protocol).sweeping:
        counts = _sweep(maps, wanted) or counts
    hits = _hits(cell, wanted, options, maps)
    if choices.tolerance_px:
        hits = _tolerant(counts, maps, choices.tolerance_px)
    scored = ScoredPairs(
        counts=counts,
        image_of=cell.image_of,
        class_of=cell.class_of,
        hits=hits,
        pixels=None if wanted.sweeping == _DEFAULT.sweeping else GRID * GRID,
        options=options,
        protocol=wanted,
    )
    return _counted(scored, cell, choices)


def _needs_maps(cell: CellRows, choices: Choices, wanted: Protocol, options: GroundingOptions) -> bool:
    own = protocol(cell.protocol)
    other_ties = own.pointing_from_default and options.ties != own.options.ties
    return bool(choices.tolerance_px) or wanted.sweeping != own.sweeping or other_ties


def _sweep(maps: MapRows, wanted: Protocol) -> Counts | None:
    from ...metrics_gpu.sweep import sweep

    if maps.saliency is None:
        return None
    return sweep(maps.saliency, maps.masks, size=(GRID, GRID), frames=maps.frames, **wanted.sweeping)


def _hits(
    cell: CellRows, wanted: Protocol, options: GroundingOptions, maps: MapRows | None
) -> NDArray[np.float64] | None:
    """Hits of a protocol whose own counts cannot tell which maxima tie; None for the others."""
    if not wanted.pointing_from_default:
        return None
    own = protocol(cell.protocol)
    if own.pointing_from_default and options.ties == own.options.ties:
        return cell.counts.hit.astype(np.float64)  # the evaluation stored them by this rule
    if own.sweeping == _DEFAULT.sweeping:
        return pointing_hits(cell.counts, options.ties)
    found = None if maps is None else _sweep(maps, _DEFAULT)
    return pointing_hits(found or cell.counts, options.ties)


def _tolerant(counts: Counts, maps: MapRows | None, tolerance_px: float) -> NDArray[np.float64]:
    from ...metrics_gpu.tolerance import region_distance, tolerant_hits

    assert maps is not None  # `_needs_maps` says so
    return tolerant_hits(region_distance(counts, maps.masks, GRID), tolerance_px)


def _counted(scored: ScoredPairs, cell: CellRows, choices: Choices) -> ScoredPairs:
    keep = np.ones(len(scored.counts), np.bool_)
    if choices.constant == "skip":
        keep &= ~scored.counts.degenerate
    only_true = scored.protocol.true_positives_only if choices.pairs is None else choices.pairs == "true_positives"
    if only_true and cell.scored:  # a baseline predicts nothing
        keep &= cell.logits[scored.image_of, scored.class_of] >= 0
    if keep.all():
        return scored
    return replace(
        scored,
        counts=scored.counts.take(keep),
        image_of=scored.image_of[keep],
        class_of=scored.class_of[keep],
        hits=None if scored.hits is None else scored.hits[keep],
    )
