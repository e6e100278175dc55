"""Numbers -> files for programs: CSV, unrounded and in percent, and report.json, everything as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from ...metrics_gpu.grounding.scores import Grounding
from ...metrics_gpu.recognition.scores import Recognition
from ...metrics_gpu.statistics.bootstrap import Interval
from ..comparing.model_differences import Differences, ModelDifference
from ..results.numbers.cell_values import COVERAGE, CellValues
from ..results.numbers.fields import FIELDS, GROUNDING, RECOGNITION
from ..results.numbers.run_numbers import Results
from ..tables.csv_text import to_csv
from ..tables.metrics import CROSS_FITTED, IN_SAMPLE, METRICS
from ..tables.stamps import stamp
from .cells import comparable
from .paper.paper_numbers import FIELDS as PRINTED
from .paper.paper_numbers import paper

__all__ = ["csv_files", "to_json"]

# Columns of tables that can be empty: a single model has no differences.
_DIFFERENCES = ("dataset", "number", "first", "second", "difference_points", "low", "high", "p", "p_holm", "datasets",
                "shared", "left_out")  # fmt: skip
_AUC_DIFFERENCES = ("dataset", "class", "first", "second", "images", "difference_points", "low", "high", "p_delong",
                    "p_holm")  # fmt: skip


# Fields of a cell that report.json holds as they are.
_OF_CELL = ("model", "dataset", "title", "weights", "family", "reader", "engine", "protocol", "limit", "shard", "cases",
            "patients", "missing", "unreadable", "faults", "unnamed", "equalised", "prompt_status")  # fmt: skip


def csv_files(results: Results, differences: Differences) -> dict[str, str]:
    """File name -> content. Intervals are columns `_low` and `_high`; `note` and `remark` carry labels and stamps."""
    return {
        "table1.csv": to_csv(_table_1(results)),
        "classes.csv": to_csv(_classes(results)),
        "recognition.csv": to_csv(_recognition(results)),
        "differences.csv": to_csv(_differences(differences), _DIFFERENCES),
        "auc_differences.csv": to_csv(_auc_differences(differences), _AUC_DIFFERENCES),
        "paper.csv": to_csv(_paper(results)),
        "coverage.csv": to_csv(_coverage(results)),
    }


def _table_1(results: Results) -> Iterator[dict[str, Any]]:
    for model, dataset, cell in _grid(results):
        yield {
            "model": model,
            "dataset": dataset,
            "n": cell.n if cell else 0,
            **_numbers(cell, GROUNDING),
            "note": _best_note(cell),
            "remark": _remark(results, model, dataset),
        }


def _classes(results: Results) -> Iterator[dict[str, Any]]:
    for cell in results.finished:
        for scores, sub_pixel in zip(cell.grounding.classes, cell.sub_pixel, strict=True):
            yield {
                "model": cell.model,
                "dataset": cell.dataset,
                "class": scores.name,
                "n": scores.n,
                "best_threshold": None if scores.best_tau is None else scores.best_tau * cell.tau_scale,
                **_numbers(cell, GROUNDING, scores.name),
                **_wilson(cell, scores.name),
                "degenerate": scores.degenerate,
                "sub_pixel": sub_pixel,
                "note": _best_note(cell),
                "remark": stamp(cell.weights),
            }


def _recognition(results: Results) -> Iterator[dict[str, Any]]:
    for cell in results.finished:
        for scores in cell.recognition.classes:
            yield {
                "model": cell.model,
                "dataset": cell.dataset,
                "class": scores.name,
                "known": scores.n,
                "positives": scores.positives,
                "prevalence_percent": None if scores.prevalence is None else 100 * scores.prevalence,
                **_numbers(cell, RECOGNITION, scores.name),
                "auprc_trapezoid_percent": _percent(scores.auprc_trapezoid),
                "f1_best_percent": _percent(scores.f1_best),
                "f1_best_threshold_logit": scores.f1_logit,
                "remark": stamp(cell.weights),
            }


def _differences(differences: Differences) -> Iterator[dict[str, Any]]:
    for item in differences.numbers:
        yield {
            "dataset": item.dataset or "mean of datasets",
            "number": item.field,
            "first": item.first,
            "second": item.second,
            "difference_points": 100 * item.difference,
            "low": 100 * item.interval.low if item.interval else None,
            "high": 100 * item.interval.high if item.interval else None,
            "p": item.p,
            "p_holm": item.p_holm,
            "datasets": " ".join(item.datasets or (item.dataset,)),
            "shared": item.n,
            "left_out": item.left_out,
        }


def _auc_differences(differences: Differences) -> Iterator[dict[str, Any]]:
    for item in differences.classes:
        yield {
            "dataset": item.dataset,
            "class": item.name,
            "first": item.first,
            "second": item.second,
            "images": item.n,
            "difference_points": 100 * item.difference,
            "low": 100 * item.delong.low if item.delong else None,
            "high": 100 * item.delong.high if item.delong else None,
            "p_delong": item.p_delong,
            "p_holm": item.p_holm,
        }


def _paper(results: Results) -> Iterator[dict[str, Any]]:
    """Every number that the paper also prints."""
    for cell in results.finished:
        found = [(field, "", paper().in_table1(cell.family, cell.reader, field)) for field in PRINTED]
        found += [("pointing", name, paper().classes.get((cell.family, cell.reader, name))) for name in cell.names]
        for field, name, printed in found:
            if printed is None:
                continue
            value = _percent(cell.number(field, name).value)
            yield {
                "model": cell.model,
                "family": cell.family,
                "dataset": cell.dataset,
                "class": name,
                "number": field,
                "percent": value,
                "paper_percent": printed.digits,
                "difference_points": value - printed.value if comparable(cell) and value is not None else None,
                "pairs": (s.n if (s := cell.scores(name)) else 0) if name else cell.n,
                "paper_pairs": printed.pairs,
                "paper_flag": printed.flag,
                "remark": stamp(cell.weights),
            }


def _coverage(results: Results) -> Iterator[dict[str, Any]]:
    for model, dataset, cell in _grid(results):
        yield {
            "model": model,
            "dataset": dataset,
            **(cell.coverage if cell else dict.fromkeys(COVERAGE)),
            "engine": cell.engine if cell else None,
            "protocol": cell.protocol if cell else None,
            "state": "done" if cell else "no result",
            "remark": _remark(results, model, dataset),
        }


def _grid(results: Results) -> Iterator[tuple[str, str, CellValues | None]]:
    for model in results.models:
        for dataset in results.datasets:
            yield model, dataset, results.cells.get((model, dataset))


def _best_note(cell: CellValues | None) -> str:
    if cell is None:
        return ""
    label = IN_SAMPLE if cell.grounding.options.label == "in_sample" else f"cross-fitted: {CROSS_FITTED}"
    return f"best: {label}; cross-fitted: {CROSS_FITTED}"


def _remark(results: Results, model: str, dataset: str) -> str:
    """The stamp of a finished cell and the result of a later attempt; of an unfinished cell the reason."""
    cell = results.cells.get((model, dataset))
    if cell is None:
        return results.unfinished.get((model, dataset), "not evaluated")
    return "; ".join(filter(None, (stamp(cell.weights), results.rows[model, dataset].attempt)))


def _numbers(cell: CellValues | None, fields: Iterable[str], name: str = "") -> dict[str, float | None]:
    """Value and interval of each field."""
    columns: dict[str, float | None] = {}
    for field in fields:
        number = cell.number(field, name) if cell else None
        scale, unit = METRICS[field].scale, METRICS[field].unit
        interval = number.interval if number else None
        columns[f"{field}_{unit}"] = None if number is None or number.value is None else scale * number.value
        columns[f"{field}_low"] = scale * interval.low if interval else None
        columns[f"{field}_high"] = scale * interval.high if interval else None
    return columns


def _wilson(cell: CellValues, name: str) -> dict[str, float | None]:
    beside = cell.number("pointing", name).beside
    ends = (None, None) if beside is None else (100 * beside.low, 100 * beside.high)
    return dict(zip(("pointing_wilson_low", "pointing_wilson_high"), ends, strict=True))


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


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
        "datasets": sum(1 for cell in results.row(model) if cell.n),
    }


def _cell(results: Results, cell: CellValues) -> dict[str, Any]:
    return {
        **{name: getattr(cell, name) for name in _OF_CELL},
        "n": cell.n,
        "left_out": cell.skipped,
        "stamp": stamp(cell.weights),
        "grounding": _estimates(cell.grounding),
        "cross_fitted": _estimates(cell.cross_fitted),
        "recognition": _estimates(cell.recognition),
        "pair": _estimates(cell.pair),
        "sub_pixel": list(cell.sub_pixel),
        "dice_curve": list(cell.dice_curve),
        "intervals": {name: _intervals(cell, name) for name in ("", *cell.names)} if cell.resampled else {},
        "wilson": {name: _ends(found) for name in cell.names if (found := cell.number("pointing", name).beside)},
        "paper": _printed(cell),
    }


def _intervals(cell: CellValues, name: str) -> dict[str, list[float]]:
    fields = {field: cell.number(field, name) for field in FIELDS if field in GROUNDING or cell.competes}
    return {field: _ends(number.interval) for field, number in fields.items() if number.interval}


def _printed(cell: CellValues) -> dict[str, Any]:
    """The paper's values for this cell, in percent."""
    found: dict[str, Any] = {}
    for field in PRINTED:
        printed = paper().in_table1(cell.family, cell.reader, field)
        if printed is not None:
            value = cell.number(field).value
            points = 100 * value - printed.value if comparable(cell) and value is not None else None
            found[field] = {"percent": printed.value, "flag": printed.flag, "difference_points": points}
    return found


def _ends(interval: Interval | None) -> list[float]:
    return [] if interval is None else [interval.low, interval.high]


def _estimates(found: Grounding | Recognition) -> dict[str, Any]:
    """All numbers of a cell without their replicates."""
    plain = asdict(replace(found, drawn=None))
    return {name: value for name, value in plain.items() if name not in ("drawn", "each")}
