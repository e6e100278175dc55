"""Counts of quantile-normalised maps, from the maps that a run stores."""

from __future__ import annotations

import numpy as np

from ....metrics_gpu.grounding.protocols import protocol
from ....metrics_gpu.sweep.counts import Counts
from ....metrics_gpu.sweep.maps import quantile_map, scaled_map
from ....metrics_gpu.sweep.masks import GRID
from ....metrics_gpu.sweep.sweep import sweep
from ....metrics_gpu.sweep.sweep_options import Sweeping
from ...results.load_rows import StoredRun
from .kept_maps import kept_maps, map_places
from .study_cell import StudyCell

_BATCH = 64  # limits the memory of full-size maps


def quantile_counts(cell: StudyCell, run: StoredRun) -> Counts:
    """Counts of a cell's pairs, in its order, of maps whose values are replaced by their quantile within the image.

    The maps are full size, so the sweep samples them as they are. About 5 ms a pair. Raises RunError when the run keeps
    no maps of the cell, or not of all its pairs.
    """
    maps, saliency = kept_maps(cell, run)
    sweeping = Sweeping(protocol(cell.rows.protocol).sweeping.upsample)
    wanted = map_places(cell, maps)
    parts = []
    for start in range(0, len(wanted), _BATCH):
        batch = wanted[start : start + _BATCH]
        ranked = []
        for index in batch:
            y0, x0, y1, x1 = maps.frames[index].tolist()
            ranked.append(quantile_map(scaled_map(saliency[index], frame=(y0, x0, y1, x1), sweeping=sweeping)))
        parts.append(sweep(np.stack(ranked), maps.masks[batch], size=GRID))
    return Counts.concatenate(parts)
