"""Read the maps that a run keeps of a cell, for the studies that need more than counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ....engines.errors import RunError
from ...evaluation.reference.map_files import KEPT_SIDE
from ...results.load_rows import StoredRun
from ...results.stored_maps import MapRows, load_maps
from .study_cell import StudyCell


def kept_maps(cell: StudyCell, run: StoredRun) -> tuple[MapRows, NDArray[np.float32]]:
    """The cell's pairs with a region, and their maps float32 [P, h, w].

    Raises RunError, with the reason as its sentence, when the run keeps no maps of the cell or they cannot be read.
    """
    maps = load_maps(run, cell.model, cell.dataset)
    if maps.saliency is not None:
        return maps, maps.saliency
    if not cell.has_thresholds:
        raise RunError("boxes from a file have no map.")
    if cell.weights == "baseline":
        raise RunError("a run keeps no maps of this baseline.")
    raise RunError(
        f"its maps are larger than {KEPT_SIDE} x {KEPT_SIDE} or of several sizes, so the run did not keep them."
    )


def map_places(cell: StudyCell, maps: MapRows) -> NDArray[np.intp]:
    """intp [P]: the map of each pair of the cell, in its order. Raises RunError when a pair has none."""
    place = {key: index for index, key in enumerate(zip(maps.case_id, maps.finding, strict=True))}
    pairs = [(case, cell.classes[c]) for case, c in zip(cell.case_ids, cell.class_of, strict=True)]
    if missing := [pair for pair in pairs if pair not in place]:
        case, finding = missing[0]
        raise RunError(f"the run keeps no map of {len(missing)} of its {len(pairs)} pairs, such as {finding} on {case}")
    return np.array([place[pair] for pair in pairs], np.intp)
