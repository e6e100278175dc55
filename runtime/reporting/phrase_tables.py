"""CNR and mean IoU of maps, as BioViL's evaluation of phrase grounding computes them (docs/metrics.md §16)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ...metrics_gpu.grounding.phrases import (
    IOU_THRESHOLDS,
    PhraseMeans,
    PhraseScores,
    phrase_means,
    scores_on_grid,
)
from ...metrics_gpu.sweep.masks import unpack_masks
from ..results.load import StoredRun
from ..results.maps import MapRows, load_maps
from ..results.numbers.run_numbers import Results
from ..results.schema import GRID
from ..tables.metrics import NONE, value_of
from ..tables.stamps import cell_stamps
from ..tables.table import Column, Item, Table

__all__ = ["phrase_tables"]

_BLOCK = 256  # pairs whose regions are unpacked at once


def phrase_tables(run: StoredRun, results: Results) -> list[Table]:
    """A table for each dataset with results of the protocol biovil. Raises RunError."""
    tables = []
    for dataset in results.datasets:
        cells = [cell for cell in results.column(dataset) if cell.protocol == "biovil"]
        body: list[tuple[Item, ...]] = []
        left_out = []
        for cell in cells:
            maps = load_maps(run, cell.model, dataset)
            if maps.saliency is None:
                left_out.append(cell.model)
                continue
            scores, findings = _scores(maps)
            for finding in dict.fromkeys(maps.findings):
                mine = [score for score, name in zip(scores, findings, strict=True) if name == finding]
                if mine:
                    body.append(_row(cell.model, finding, phrase_means(mine, [finding] * len(mine))))
            if scores:
                body.append(_row(cell.model, "Mean", phrase_means(scores, findings)))
        if body:
            stem = "".join(letter if letter.isalnum() and letter.isascii() else "-" for letter in dataset.lower())
            notes = (*_NOTES, *((f"without stored maps, left out: {', '.join(left_out)}",) if left_out else ()))
            title = f"{cells[0].title}: phrase grounding, protocol biovil"
            tables.append(Table(title, _columns(), tuple(body), cell_stamps(cells), notes, f"phrases-{stem}"))
    return tables


_NOTES = (
    "maps smoothed by a Gaussian of 1.5 cells, upsampled bilinearly on the 224 grid, min-max to -1..1 over the pixels "
    "that the model saw; the other pixels leave map and region",
    "CNR: (mean inside - mean outside) / sqrt(sum of both variances); signed as in the code, absolute as in the "
    "formula",
    "IoU in percent of the pixels above 0.1, ..., 0.5 with the region; mIoU: their mean; Mean: over findings",
    "unseen: regions wholly outside what the model saw, left out as in the source, 0 in mIoU with unseen; constant: "
    "maps without a range, 0 in all columns",
)


def _columns() -> tuple[Column, ...]:
    names = [("model", ""), ("class", ""), ("n", ""), ("signed", "CNR"), ("absolute", "CNR"), ("mIoU", "")]
    names += [(f"{threshold:.1f}", "IoU at") for threshold in IOU_THRESHOLDS]
    names += [("with unseen", "mIoU"), ("unseen", "pairs"), ("constant", "pairs")]
    return tuple(Column(text, group) if group else Column(text) for text, group in names)


def _row(model: str, finding: str, means: PhraseMeans) -> tuple[Item, ...]:
    return (
        model,
        finding,
        str(means.pairs),
        _plain(means.cnr),
        _plain(means.cnr_absolute),
        *(value_of("iou_fixed", _known(value)) for value in (means.miou, *means.iou, means.miou_with_unseen)),
        str(means.unseen),
        str(means.constant),
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _plain(value: float) -> str:
    return NONE if math.isnan(value) else f"{value:.3f}"


def _scores(maps: MapRows) -> tuple[list[PhraseScores], Sequence[str]]:
    """The scores and findings of the pairs whose region is not empty."""
    assert maps.saliency is not None
    scores, findings, names = [], [], maps.finding
    for start in range(0, len(maps), _BLOCK):
        regions = unpack_masks(maps.masks[start : start + _BLOCK], GRID)
        for place, region in enumerate(regions, start):
            if np.any(region):
                top, left, bottom, right = maps.frames[place].tolist()
                scores.append(scores_on_grid(maps.saliency[place], region, (top, left, bottom, right)))
                findings.append(names[place])
    return scores, findings
