"""Numbers -> report.json: everything a report says, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from ...metrics_gpu.grounding.scores import Grounding
from ...metrics_gpu.recognition.scores import Recognition
from ...metrics_gpu.statistics.bootstrap import Interval
from ..comparing.model_differences import Differences, ModelDifference
from ..results.numbers.cell_values import CellValues
from ..results.numbers.fields import FIELDS, GROUNDING, Number
from ..results.numbers.run_numbers import Results
from ..tables.metrics import CROSS_FITTED, IN_SAMPLE
from ..tables.stamps import stamp
from .cells import comparable
from .paper.printed import FIELDS as PRINTED
from .paper.printed import paper

__all__ = ["to_json"]


def to_json(results: Results, differences: Differences, run: Mapping[str, Any]) -> dict[str, Any]:
    """The whole report; values are fractions, delta_dice is in percentage points.

    `intervals` of a cell or a mean: number -> [low, high] for the dataset (key "") and each class.
    """
    return {
        "run": {key: run.get(key) for key in ("code_version", "created", "updated", "machine")},
        "best_threshold": IN_SAMPLE,
        "cross_fitted_threshold": CROSS_FITTED,
        "choices": results.choices.to_json(),
        "models": {model: _model(results, model) for model in results.models},
        "cells": [_cell(results, cell) for cell in results.finished],
        "differences": [_difference(item) for item in differences.numbers],
        "auc_differences": [_auc_difference(item) for item in differences.classes],
        "unfinished": [
            {"model": model, "dataset": dataset, "reason": reason}
            for (model, dataset), reason in results.unfinished.items()
        ],
    }


def _difference(item: ModelDifference) -> dict[str, Any]:
    names = ("dataset", "field", "first", "second", "difference", "p", "p_holm", "datasets", "left_out")
    interval = asdict(item.interval) if item.interval else None
    return {**{name: getattr(item, name) for name in names}, "interval": interval, "shared": item.n}


def _auc_difference(item: ModelDifference) -> dict[str, Any]:
    names = ("dataset", "name", "first", "second", "difference", "p_holm")
    interval = asdict(item.delong) if item.delong else None
    told = {name: getattr(item, name) for name in names}
    return {**told, "interval": interval, "p": item.p_delong, "images": item.n}


def _model(results: Results, model: str) -> dict[str, Any]:
    numbers = {field: results.mean_number(model, field) for field in FIELDS}
    return {
        "mean_of_datasets": {field: number.value for field, number in numbers.items()},
        "intervals": {field: _ends(number.interval) for field, number in numbers.items() if number.interval},
        "datasets": results.mean(model)[1],
    }


def _cell(results: Results, cell: CellValues) -> dict[str, Any]:
    return {
        "model": cell.model,
        "dataset": cell.dataset,
        "title": cell.title,
        "weights": cell.weights,
        "family": cell.family,
        "reader": cell.reader,
        "engine": cell.engine,
        "protocol": cell.protocol,
        "limit": cell.limit,
        "shard": cell.shard,
        "cases": cell.cases,
        "patients": cell.patients,
        "missing": cell.missing,
        "unreadable": cell.unreadable,
        "n": cell.n,
        "left_out": cell.skipped,
        "stamp": stamp(cell.weights),
        "grounding": _estimates(cell.grounding),
        "cross_fitted": _estimates(cell.cross_fitted),
        "recognition": _estimates(cell.recognition),
        "pair": _estimates(cell.pair),
        "sub_pixel": list(cell.sub_pixel),
        "dice_curve": list(cell.dice_curve),
        "intervals": {name: _intervals(cell, name) for name in ("", *cell.names)} if cell.spread else {},
        "wilson": {name: _ends(found) for name in cell.names if (found := cell.number("pointing", name).beside)},
        "paper": _paper(cell),
    }


def _intervals(cell: CellValues, name: str) -> dict[str, list[float]]:
    fields = {field: cell.number(field, name) for field in FIELDS if field in GROUNDING or cell.competes}
    return {field: _ends(number.interval) for field, number in fields.items() if number.interval}


def _paper(cell: CellValues) -> dict[str, Any]:
    """What the paper prints in the places of this cell, in percent."""
    found: dict[str, Any] = {}
    for field in PRINTED:
        printed = paper().in_table1(cell.family, cell.reader, field)
        if printed is not None:
            number: Number = cell.number(field)
            means = comparable(cell) and number.value is not None
            points = 100 * number.value - printed.value if means and number.value is not None else None
            found[field] = {"percent": printed.value, "flag": printed.flag, "difference_points": points}
    return found


def _ends(interval: Interval | None) -> list[float]:
    return [] if interval is None else [interval.low, interval.high]


def _estimates(found: Grounding | Recognition) -> dict[str, Any]:
    """All numbers of a cell but their replicates."""
    plain = asdict(replace(found, drawn=None))
    del plain["drawn"]
    return plain
