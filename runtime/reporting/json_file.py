"""Numbers -> report.json, everything as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from ...metrics_gpu.grounding.scores import Grounding
from ...metrics_gpu.recognition.scores import Recognition
from ...metrics_gpu.statistics.bootstrap import Interval
from ..results.numbers.cell_values import CellValues
from ..results.numbers.fields import FIELDS, GROUNDING
from ..results.numbers.run_numbers import Results
from ..tables.metrics import CROSS_FITTED, IN_SAMPLE, METRICS
from ..tables.stamps import stamp
from .paper.paper_numbers import FIELDS as PRINTED
from .paper.paper_numbers import paper, why_apart

if TYPE_CHECKING:
    from ..comparing.model_differences import Differences, ModelDifference

__all__ = ["to_json"]

# Fields of a cell that report.json holds as they are.
_OF_CELL = ("model", "dataset", "title", "weights", "weights_source", "saliency_map", "family", "reader", "engine",
            "protocol", "limit", "shard", "cases", "patients", "missing", "unreadable", "faults", "unnamed",
            "equalised", "prompt_status")  # fmt: skip


def to_json(
    results: Results, blocks: Sequence[tuple[Results, Differences | None]], run: Mapping[str, Any]
) -> dict[str, Any]:
    """The whole report; values are fractions, delta_dice is in percentage points.

    `models`, `differences` and `auc_differences` are of the first block; `other_protocols` has those of the others.
    `intervals` of a cell or a mean: number -> [low, high] for the dataset (key "") and each class.
    """
    return {
        "run": {key: run.get(key) for key in ("code_version", "created", "updated", "machine")},
        "best_threshold": IN_SAMPLE,
        "cross_fitted_threshold": CROSS_FITTED,
        "choices": asdict(results.choices),
        **_block(*blocks[0]),
        "other_protocols": [{"protocol": block[0].protocol, **_block(*block)} for block in blocks[1:]],
        "cells": [_cell(results, cell) for cell in results.finished],
        "unfinished": [
            {"model": model, "dataset": dataset, "reason": reason}
            for (model, dataset), reason in results.unfinished.items()
        ],
    }


def _block(results: Results, differences: Differences | None) -> dict[str, Any]:
    models = {}
    for model in results.models:
        numbers = {field: results.mean_number(model, field) for field in FIELDS}
        models[model] = {
            "mean_of_datasets": {field: number.value for field, number in numbers.items()},
            "intervals": {field: _ends(number.interval) for field, number in numbers.items() if number.interval},
            "datasets": sum(1 for cell in results.row(model) if cell.n),
            "protocol": next((cell.protocol for cell in results.row(model)), None),
        }
    return {
        "models": models,
        "differences": [_difference(item) for item in (differences.numbers if differences else ())],
        "auc_differences": [_auc_difference(item) for item in (differences.classes if differences else ())],
    }


def _difference(item: ModelDifference) -> dict[str, Any]:
    names = (
        "dataset",
        "field",
        "first",
        "second",
        "difference",
        "p",
        "p_bound",
        "p_holm",
        "family",
        "datasets",
        "left_out",
    )
    interval = asdict(item.interval) if item.interval else None
    return {**{name: getattr(item, name) for name in names}, "interval": interval, "shared": item.n}


def _auc_difference(item: ModelDifference) -> dict[str, Any]:
    names = ("dataset", "name", "first", "second", "difference", "p_holm", "family")
    interval = asdict(item.interval) if item.interval else None
    told = {name: getattr(item, name) for name in names}
    return {**told, "interval": interval, "p": item.p, "images": item.n}


def _cell(results: Results, cell: CellValues) -> dict[str, Any]:
    basis = results.bases[cell.model, cell.dataset]
    fields = [field for field in FIELDS if field in GROUNDING or cell.competes]
    intervals = {
        name: {field: found for field in fields if (found := cell.number(field, name).interval)}
        for name in (("", *cell.names) if cell.resampled else ())
    }
    return {
        **{name: getattr(cell, name) for name in _OF_CELL},
        "n": cell.n,
        "left_out": cell.skipped,
        # Equal, in any run, for cells with the same pairs and regions, and with the same known labels.
        "basis": {"pairs": basis.pairs[""].hex()[:16], "labels": basis.labels[""].hex()[:16]},
        "stamp": stamp(cell.weights),
        "grounding": _estimates(cell.grounding),
        "cross_fitted": _estimates(cell.cross_fitted),
        "recognition": _estimates(cell.recognition),
        "pair": _estimates(cell.pair),
        "sub_pixel": list(cell.sub_pixel),
        "dice_curve": list(cell.dice_curve),
        "intervals": {name: {field: _ends(found) for field, found in own.items()} for name, own in intervals.items()},
        # How the intervals that are not the bootstrap's were made.
        "methods": {
            name: {field: own[field].method for field in GROUNDING if field in own and own[field].method != "bootstrap"}
            for name, own in intervals.items()
        },
        "paper": _printed(cell),
    }


def _printed(cell: CellValues) -> dict[str, Any]:
    """The paper's values for this cell, in percent."""
    found: dict[str, Any] = {}
    for field in PRINTED:
        printed = paper().in_table1(cell.family, cell.reader, field)
        if printed is not None:
            value = cell.number(field).value
            points = METRICS[field].scale * value - printed.value if not why_apart(cell) and value is not None else None
            found[field] = {"percent": printed.value, "flag": printed.flag, "difference_points": points}
    return found


def _ends(interval: Interval) -> list[float]:
    return [interval.low, interval.high]


def _estimates(found: Grounding | Recognition) -> dict[str, Any]:
    """All numbers of a cell without their replicates."""
    plain = asdict(replace(found, drawn=None))
    return {name: value for name, value in plain.items() if name not in ("drawn", "each")}
