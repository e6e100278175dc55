"""Numbers -> machine-readable files: CSV in percent, unrounded, and one JSON with everything."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from ...metrics_gpu.grounding import GroundingScores
from .results import Results
from .stamps import OPTIMISTIC, stamp
from .values import MEANS, CellValues

__all__ = ["csv_files", "to_json"]

_RECOGNITION = ("auc", "auprc", "prevalence", "f1", "accuracy")


def csv_files(results: Results) -> dict[str, str]:
    """File name -> content. Numbers are unrounded percent; `note` and `remark` carry the stamps."""
    return {
        "table1.csv": _csv(_table_1(results)),
        "classes.csv": _csv(_classes(results)),
        "recognition.csv": _csv(_recognition(results)),
        "coverage.csv": _csv(_coverage(results)),
    }


def to_json(results: Results, run: Mapping[str, Any]) -> dict[str, Any]:
    """The whole report as plain data; values are fractions, delta_dice is in percentage points."""
    means = {model: results.mean(model) for model in results.models}
    return {
        "run": {key: run.get(key) for key in ("code_version", "created", "updated", "machine")},
        "best_threshold": OPTIMISTIC,
        "models": {model: {"mean_of_datasets": mean, "datasets": count} for model, (mean, count) in means.items()},
        "cells": [{**asdict(cell), "n": cell.n, "stamp": stamp(cell.weights)} for cell in results.finished],
        "unfinished": [
            {"model": model, "dataset": dataset, "reason": reason}
            for (model, dataset), reason in results.unfinished.items()
        ],
    }


def _table_1(results: Results) -> Iterator[dict[str, Any]]:
    for model, dataset, cell in _grid(results):
        yield {
            "model": model,
            "dataset": dataset,
            "n": cell.n if cell else 0,
            **_grounding(cell.grounding.macro if cell else None),
            "note": f"best: {OPTIMISTIC}",
            "remark": _remark(results, model, dataset),
        }


def _classes(results: Results) -> Iterator[dict[str, Any]]:
    for cell in results.finished:
        for scores, rescued in zip(cell.grounding.classes, cell.rescued, strict=True):
            yield {
                "model": cell.model,
                "dataset": cell.dataset,
                "class": scores.name,
                "n": scores.n,
                "best_threshold": scores.best_tau,
                **_grounding(scores),
                "degenerate": scores.degenerate,
                "rescued": rescued,
                "note": f"best: {OPTIMISTIC}",
                "remark": stamp(cell.weights),
            }


def _recognition(results: Results) -> Iterator[dict[str, Any]]:
    for cell in results.finished:
        for scores in cell.recognition.classes:
            pair = cell.paired(scores.name)
            yield {
                "model": cell.model,
                "dataset": cell.dataset,
                "class": scores.name,
                "known": scores.n,
                "positives": scores.positives,
                **{f"{name}_percent": _percent(getattr(scores, name)) for name in _RECOGNITION},
                "pair_f1_percent": _percent(pair.f1 if pair else None),
                "pair_accuracy_percent": _percent(pair.accuracy if pair else None),
                "remark": stamp(cell.weights),
            }


def _coverage(results: Results) -> Iterator[dict[str, Any]]:
    for model, dataset, cell in _grid(results):
        yield {
            "model": model,
            "dataset": dataset,
            "cases": cell.cases if cell else None,
            "missing": cell.missing if cell else None,
            "unreadable": cell.unreadable if cell else None,
            "pairs": cell.n if cell else None,
            "degenerate": cell.grounding.micro.degenerate if cell else None,
            "rescued": sum(cell.rescued) if cell else None,
            "engine": cell.engine if cell else None,
            "state": "done" if cell else "no result",
            "remark": _remark(results, model, dataset),
        }


def _grid(results: Results) -> Iterator[tuple[str, str, CellValues | None]]:
    for model in results.models:
        for dataset in results.datasets:
            yield model, dataset, results.cells.get((model, dataset))


def _remark(results: Results, model: str, dataset: str) -> str:
    """The stamp of a finished cell, the reason of another."""
    cell = results.cells.get((model, dataset))
    return stamp(cell.weights) if cell else results.unfinished.get((model, dataset), "not evaluated")


def _grounding(scores: GroundingScores | None) -> dict[str, float | None]:
    numbers = {name: getattr(scores, name) if scores else None for name in MEANS}
    delta = numbers.pop("delta_dice")
    return {**{f"{name}_percent": _percent(value) for name, value in numbers.items()}, "delta_dice_points": delta}


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _csv(rows: Iterator[dict[str, Any]]) -> str:
    stream = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for row in rows:
        if writer is None:
            writer = csv.DictWriter(stream, list(row), lineterminator="\n")
            writer.writeheader()
        writer.writerow(row)
    return stream.getvalue()
