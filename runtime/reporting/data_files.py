"""Numbers -> CSV files for programs, unrounded and in percent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from ..results.numbers.cell_values import COVERAGE, CellValues
from ..results.numbers.fields import GROUNDING, RECOGNITION
from ..results.numbers.run_numbers import Results
from ..tables.markdown_csv import to_csv
from ..tables.metrics import CROSS_FITTED, IN_SAMPLE, METRICS
from ..tables.stamps import stamp
from .paper.paper_numbers import FIELDS as PRINTED
from .paper.paper_numbers import paper, why_apart
from .provenance import cell_coverage

if TYPE_CHECKING:
    from ..comparing.model_differences import Differences, ModelDifference
    from .box_scores import BoxScores

__all__ = ["csv_files", "whole_csv_files"]

# Columns of tables that can be empty: a single model has no differences.
_DIFFERENCES = ("dataset", "number", "first", "second", "difference_points", "low", "high", "p", "p_bound",
                "p_holm", "family", "datasets", "shared", "left_out")  # fmt: skip
_AUC_DIFFERENCES = ("dataset", "class", "first", "second", "images", "difference_points", "low", "high", "p_delong",
                    "p_holm", "family")  # fmt: skip


def csv_files(results: Results, differences: Differences | None) -> dict[str, str]:
    """File name without its ending -> content, for the results of one protocol.

    Intervals are columns `_low` and `_high`; `note` and `remark` carry labels and stamps.
    """
    return {
        "table1": to_csv(_table_1(results)),
        "classes": to_csv(_classes(results)),
        "recognition": to_csv(_recognition(results)),
        "differences": to_csv(map(_difference, differences.numbers if differences else ()), _DIFFERENCES),
        "auc_differences": to_csv(map(_auc_difference, differences.classes if differences else ()), _AUC_DIFFERENCES),
    }


def whole_csv_files(results: Results, boxes: Sequence[BoxScores] = ()) -> dict[str, str]:
    """File name -> content, of the files about all results of a run. boxes: those of cells of predicted boxes."""
    return {"paper.csv": to_csv(_paper(results)), "coverage.csv": to_csv(_coverage(results, boxes))}


def _table_1(results: Results) -> Iterator[dict[str, Any]]:
    for model, dataset in product(results.models, results.datasets):
        cell = results.cells.get((model, dataset))
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
            interval = cell.number("pointing", scores.name).interval
            yield {
                "model": cell.model,
                "dataset": cell.dataset,
                "class": scores.name,
                "n": scores.n,
                "best_threshold": None if scores.best_tau is None else scores.best_tau * cell.tau_scale,
                **_numbers(cell, GROUNDING, scores.name),
                "pointing_interval": interval.method if interval else None,
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


def _difference(item: ModelDifference) -> dict[str, Any]:
    scale = METRICS[item.field].scale
    return {
        "dataset": item.dataset or "mean of datasets",
        "number": item.field,
        "first": item.first,
        "second": item.second,
        "difference_points": scale * item.difference,
        "low": scale * item.interval.low if item.interval else None,
        "high": scale * item.interval.high if item.interval else None,
        "p": item.p,
        "p_bound": item.p_bound,
        "p_holm": item.p_holm,
        "family": item.family,
        "datasets": " ".join(item.datasets or (item.dataset,)),
        "shared": item.n,
        "left_out": item.left_out,
    }


def _auc_difference(item: ModelDifference) -> dict[str, Any]:
    scale = METRICS["auc"].scale
    return {
        "dataset": item.dataset,
        "class": item.name,
        "first": item.first,
        "second": item.second,
        "images": item.n,
        "difference_points": scale * item.difference,
        "low": scale * item.interval.low if item.interval else None,
        "high": scale * item.interval.high if item.interval else None,
        "p_delong": item.p,
        "p_holm": item.p_holm,
        "family": item.family,
    }


def _paper(results: Results) -> Iterator[dict[str, Any]]:
    """Every number that the paper also prints."""
    for cell in results.finished:
        found = [(field, "", paper().in_table1(cell.family, cell.reader, field)) for field in PRINTED]
        found += [("pointing", name, paper().classes.get((cell.family, cell.reader, name))) for name in cell.names]
        for field, name, printed in found:
            if printed is None:
                continue
            value, reasons = _percent(cell.number(field, name).value), why_apart(cell, name)
            yield {
                "model": cell.model,
                "family": cell.family,
                "dataset": cell.dataset,
                "class": name,
                "number": field,
                "percent": value,
                "paper_percent": printed.digits,
                "difference_points": None if reasons or value is None else value - printed.value,
                "why_no_difference": "; ".join(reasons),
                "pairs": (s.n if (s := cell.scores(name)) else 0) if name else cell.n,
                "paper_pairs": printed.pairs,
                "paper_flag": printed.flag,
                "remark": stamp(cell.weights),
            }


def _coverage(results: Results, boxes: Sequence[BoxScores]) -> Iterator[dict[str, Any]]:
    told = {(found.model, found.dataset): found for found in boxes}
    for model, dataset in product(results.everyone, results.datasets):
        cell = results.cells.get((model, dataset))
        yield {
            "model": model,
            "dataset": dataset,
            **(cell_coverage(cell, told.get((model, dataset))) if cell else dict.fromkeys(COVERAGE)),
            "engine": cell.engine if cell else None,
            "protocol": cell.protocol if cell else None,
            "state": "done" if cell else "no result",
            "remark": _remark(results, model, dataset),
        }


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


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value
