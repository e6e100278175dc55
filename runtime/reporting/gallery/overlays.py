"""The maps, regions and counts of chosen pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.sweep.masks import unpack_masks
from ...datasets.runlengths import encode_runs
from ...results.load import StoredRun
from ...results.maps import load_maps
from ...results.schema import GRID
from .candidates import ModelPairs
from .model import Overlay

__all__ = ["ChosenPair", "chosen_overlays", "run_lengths"]

ChosenPair = tuple[str, str]
"""case_id, finding"""


def chosen_overlays(
    run: StoredRun, pairs: ModelPairs, chosen: Mapping[ChosenPair, int]
) -> Iterator[tuple[Overlay, tuple[int, ...]]]:
    """The overlays of one model on one dataset and their regions as run lengths; `chosen`: pair -> number of its case.

    Raises RunError when the result file cannot be read.
    """
    rows = load_maps(run, pairs.model, pairs.dataset)
    if rows.saliency is None:
        return
    counts = pairs.counts
    for place, key in enumerate(zip(rows.case_id, rows.finding, strict=True)):
        index = pairs.index.get(key)
        if key not in chosen or index is None:
            continue
        y0, x0, y1, x1 = rows.frames[place].tolist()
        overlay = Overlay(
            model=pairs.model,
            case=chosen[key],
            protocol=pairs.protocol.name,
            saliency=rows.saliency[place].copy(),
            frame=(y0, x0, y1, x1),
            area=counts.area[index].copy(),
            overlap=counts.overlap[index].copy(),
            best=pairs.best[key[1]],
            argmax=int(counts.argmax[index]),
            hit=bool(pairs.hits[index]),
            degenerate=bool(counts.degenerate[index]),
        )
        yield overlay, run_lengths(unpack_masks(rows.masks[place : place + 1], GRID)[0])


def run_lengths(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    """Row-major run lengths of a mask [H, W], 0 and 1 in turn, starting with 0."""
    return tuple(encode_runs(mask.T).tolist())
