"""Whether the findings that a model recognises better are those it grounds better: correlation over its findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .....metrics_gpu.statistics.correlation import correlation, replicated_r, without_group_means
from .....metrics_gpu.statistics.intervals import Interval, meaningful, percentile_interval
from ...tables.metric_names import NONE
from ..material import Material
from ..writing import limits
from .finding_points import FindingPoint

Float = NDArray[np.float64]

LEAST_FINDINGS: Final = 3
POOLED: Final = "all, each less its mean"


def correlation_rows(material: Material, points: Sequence[FindingPoint]) -> list[dict[str, Any]]:
    """A row for each model and dataset with three findings or more, and one for all of them, each less its mean."""
    groups: dict[tuple[str, str], list[FindingPoint]] = {}
    for point in points:
        groups.setdefault((point.cell.model, point.cell.dataset), []).append(point)
    enough = {name: own for name, own in groups.items() if len(own) >= LEAST_FINDINGS}
    rows = [_row(model, dataset, own, material) for (model, dataset), own in enough.items()]
    if len(rows) > 1:
        rows.append(_row(POOLED, NONE, [point for own in enough.values() for point in own], material))
    return rows


def _row(model: str, dataset: str, points: Sequence[FindingPoint], material: Material) -> dict[str, Any]:
    cells = [f"{point.cell.model}\0{point.cell.dataset}" for point in points]
    pooled = len(set(cells)) > 1
    x, y = (np.array([number.value for number in numbers]) for numbers in _numbers(points))
    if pooled:
        x, y = without_group_means(x, cells), without_group_means(y, cells)
    fit = correlation(x, y, groups=[point.name for point in points] if pooled else None, **material.sampling.settings)
    return {
        "model": model,
        "dataset": dataset,
        "findings": fit.n,
        "r": fit.r,
        **limits("r", None if fit.r is None else _of_patients(points, cells, material.sampling.level)),
        **limits("r_fisher", fit.fisher),
        "spearman": fit.spearman,
        "p": None if pooled else fit.p,
    }


def _numbers(points: Sequence[FindingPoint]) -> tuple[list[Any], list[Any]]:
    return [point.auc for point in points], [point.pointing for point in points]


def _of_patients(points: Sequence[FindingPoint], cells: Sequence[str], level: float) -> Interval | None:
    """The interval of r of the same findings on other patients; none of few findings, or where one of them has none."""
    if not meaningful(models=len(points)) or any(point.auc.interval is None for point in points):
        return None
    x, y = (np.stack([number.drawn for number in numbers], axis=1) for numbers in _numbers(points))
    for name in set(cells) if len(set(cells)) > 1 else ():
        own = np.array([cell == name for cell in cells])
        for values in (x, y):
            values[:, own] -= values[:, own].mean(axis=1, keepdims=True)
    return percentile_interval(replicated_r(x, y), level)
