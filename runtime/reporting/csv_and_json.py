"""Numbers for programs, unrounded: CSV files in percent, and report.json, everything as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain, product
from typing import TYPE_CHECKING, Any

from ...metrics_gpu.grounding.scores import Grounding
from ...metrics_gpu.recognition.scores import AVERAGED, Recognition
from ...metrics_gpu.statistics.measured_numbers import Measured
from ..results.numbers.cell_values import CellValues
from ..results.numbers.fields import FIELDS, GROUNDING, RECOGNITION
from ..results.numbers.run_numbers import Results
from .paper.paper_numbers import FIELDS as PRINTED
from .paper.paper_numbers import paper, why_apart
from .provenance import COVERAGE, cell_coverage
from .tables.markdown_csv import to_csv
from .tables.metric_names import CROSS_FITTED, IN_SAMPLE, METRICS
from .tables.stamps import stamp, uncertain_stamp

if TYPE_CHECKING:
    from ..results.comparing.model_differences import Differences
    from .box_scores import BoxScores

# Columns of tables that can be empty: a single model has no differences.
_DIFFERENCES = ("dataset", "number", "first", "second", "difference_points", "low", "high", "p", "p_bound",
                "p_holm", "family", "datasets", "shared", "left_out")  # fmt: skip
_AUC_DIFFERENCES = ("dataset", "class", "first", "second", "images", "difference_points", "low", "high", "p_delong",
                    "p_holm", "family")  # fmt: skip
# Fields of a cell that report.json holds as they are.
_OF_CELL = ("model", "dataset", "title", "weights", "weights_source", "activation", "saliency_map", "family", "reader",
            "engine", "protocol", "limit", "shard", "cases", "patients", "missing", "unreadable", "faults", "unnamed",
            "equalised", "prompt_status", "uncertain")  # fmt: skip
_OF_ROWS = ("limit", "missing", "unreadable", "faults", "unnamed", "equalised")


def csv_files(
    results: Results,
    blocks: Sequence[tuple[Results, Differences | None]],
    boxes: Sequence[BoxScores] = (),
    *,
    raw: bool = False,
) -> dict[str, str]:
    """File name -> content, empty for one without a row: two about all results, and those of each protocol. boxes:
    those of cells of predicted boxes.

    Intervals are columns `_low` and `_high`; `note` and `remark` carry labels and stamps. raw: as of `to_csv`.
    """
    text = partial(to_csv, raw=raw)
    files = {
        "paper.csv": text(chain.from_iterable(map(_paper, results.finished))),
        "coverage.csv": text(_coverage(results, boxes)),
    }
    for block, differences in blocks:
        numbers: list[dict[str, Any]] = []
        classes: list[dict[str, Any]] = []
        if differences is not None:
            from .difference_tables import auc_difference_row, difference_row

            numbers = [*map(difference_row, differences.numbers)]
            classes = [*map(auc_difference_row, differences.classes)]
        files |= {
            f"{block.named('table1')}.csv": text(_table_1(block)),
            f"{block.named('classes')}.csv": text(_grounding_classes(block)),
            f"{block.named('recognition')}.csv": text(_recognition_classes(block)),
            f"{block.named('differences')}.csv": text(numbers, _DIFFERENCES),
            f"{block.named('auc_differences')}.csv": text(classes, _AUC_DIFFERENCES),
        }
    return files


def _table_1(results: Results) -> Iterator[dict[str, Any]]:
    for model, dataset in product(results.models, results.datasets):
        if (model, dataset) in results.skipped:
            continue
        cell = results.cells.get((model, dataset))
        yield {
            "model": model,
            "dataset": dataset,
            "n": cell.n if cell else None,
            **_numbers(cell, (*GROUNDING, *results.choices.own)),
            "note": _best_note(cell),
            "remark": _remark(results, model, dataset),
        }


def _grounding_classes(results: Results) -> Iterator[dict[str, Any]]:
    for cell in results.finished:
        scores = cell.grounding
        for name, sub_pixel in zip(scores.names, cell.sub_pixel, strict=True):
            interval, tau = cell.number("pointing", name).interval, scores.value("best_tau", name)
            yield {
                "model": cell.model,
                "dataset": cell.dataset,
                "class": name,
                "n": scores.count("n", name),
                "best_threshold": None if tau is None else tau * cell.tau_scale,
                **_numbers(cell, (*GROUNDING, *results.choices.own), name),
                "pointing_interval": interval.method if interval else None,
                "degenerate": scores.count("degenerate", name),
                "sub_pixel": sub_pixel,
                "note": _best_note(cell),
                "remark": _worth(cell),
            }


def _recognition_classes(results: Results) -> Iterator[dict[str, Any]]:
    for cell in results.finished:
        scores = cell.recognition
        for name in scores.names:
            yield {
                "model": cell.model,
                "dataset": cell.dataset,
                "class": name,
                "known": scores.count("n", name),
                "positives": scores.count("positives", name),
                "prevalence_percent": _percent(scores.value("prevalence", name)),
                **_numbers(cell, RECOGNITION, name),
                "auprc_trapezoid_percent": _percent(scores.value("auprc_trapezoid", name)),
                "f1_best_percent": _percent(scores.value("f1_best", name)),
                "f1_best_threshold_logit": scores.value("f1_logit", name),
                "remark": _worth(cell),
            }


def _paper(cell: CellValues) -> Iterator[dict[str, Any]]:
    """Every number of a cell that the paper also prints."""
    of_paper = [(field, "", paper().table1.get((cell.family, cell.reader, field))) for field in PRINTED]
    of_paper += [("pointing", name, paper().classes.get((cell.family, cell.reader, name))) for name in cell.names]
    for field, name, printed in of_paper:
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
            "pairs": cell.count("pointing", name),
            "paper_pairs": printed.pairs,
            "paper_flag": printed.flag,
            "remark": _worth(cell),
        }


def _coverage(results: Results, boxes: Sequence[BoxScores]) -> Iterator[dict[str, Any]]:
    box_scores = {(scores.model, scores.dataset): scores for scores in boxes}
    for model, dataset in product(results.everyone, results.datasets):
        if (model, dataset) in results.skipped:
            continue
        cell = results.cells.get((model, dataset))
        yield {
            "model": model,
            "dataset": dataset,
            **(cell_coverage(cell, box_scores.get((model, dataset))) if cell else dict.fromkeys(COVERAGE)),
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
    """The stamps of a finished cell and the result of a later attempt; of an unfinished cell the reason."""
    cell = results.cells.get((model, dataset))
    if cell is None:
        return results.unfinished.get((model, dataset), "not evaluated")
    return "; ".join(filter(None, (_worth(cell), cell.rows.attempt)))


def _worth(cell: CellValues) -> str:
    """What stands against the numbers of a cell: its weights, and its uncertain labels."""
    return "; ".join(filter(None, (stamp(cell.weights), uncertain_stamp(cell.uncertain))))


def _numbers(cell: CellValues | None, fields: Iterable[str], name: str = "") -> dict[str, float | None]:
    """Value and interval of each field."""
    columns: dict[str, float | None] = {}
    for field in fields:
        number = cell.number(field, name) if cell else Measured()
        limits = number.limits(METRICS[field].scale).values()
        columns |= zip((f"{field}_{METRICS[field].unit}", f"{field}_low", f"{field}_high"), limits, strict=True)
    return columns


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


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
        numbers = {field: results.number(model, "", field) for field in (*FIELDS, *results.choices.own)}
        models[model] = {
            "mean_of_datasets": {field: number.value for field, number in numbers.items()},
            "intervals": {field: [n.interval.low, n.interval.high] for field, n in numbers.items() if n.interval},
            "datasets": sum(1 for cell in results.row(model) if cell.n),
            "protocol": next((cell.protocol for cell in results.row(model)), None),
        }
    if differences is None:
        return {"models": models, "differences": [], "auc_differences": []}
    from .difference_tables import difference_lists

    return {"models": models, **difference_lists(differences)}


def _cell(results: Results, cell: CellValues) -> dict[str, Any]:
    basis = results.bases[cell.model, cell.dataset]
    fields = [field for field in FIELDS if field in GROUNDING or cell.competes] + [*results.choices.own]
    intervals = {
        name: {field: found for field in fields if (found := cell.number(field, name).interval)}
        for name in (("", *cell.names) if cell.resampled else ())
    }
    return {
        **{name: getattr(cell.rows if name in _OF_ROWS else cell, name) for name in _OF_CELL},
        "n": cell.n,
        "left_out": cell.skipped,
        # Equal, in any run, for cells with the same pairs and regions, and with the same known labels.
        "basis": {"pairs": basis.pairs[""].hex()[:16], "labels": basis.labels[""].hex()[:16]},
        "stamp": stamp(cell.weights),
        "grounding": _grounding(cell.grounding),
        "cross_fitted": _grounding(cell.cross_fitted),
        "recognition": _recognition(cell.recognition),
        "pair": _recognition(cell.pair),
        "sub_pixel": list(cell.sub_pixel),
        "dice_curve": list(cell.dice_curve),
        "intervals": {
            name: {field: [found.low, found.high] for field, found in own.items()} for name, own in intervals.items()
        },
        # How the intervals that are not the bootstrap's were made.
        "methods": {
            name: {f: found.method for f, found in own.items() if f not in RECOGNITION and found.method != "bootstrap"}
            for name, own in intervals.items()
        },
        "paper": {
            row["number"]: {
                "percent": float(row["paper_percent"]),
                "flag": row["paper_flag"],
                "difference_points": row["difference_points"],
            }
            for row in _paper(cell)
            if not row["class"]
        },
    }


def _grounding(scores: Grounding) -> dict[str, Any]:
    return {
        "options": asdict(scores.options),
        "classes": [*map(scores.record, scores.names)],
        "macro": scores.record("macro"),
        "micro": scores.record("micro"),
    }


def _recognition(scores: Recognition) -> dict[str, Any]:
    return {
        "classes": [*map(scores.record, scores.names)],
        **{key: scores.value(key) for key in AVERAGED},
        "hamming": scores.value("accuracy", "micro"),
        "excluded": scores.excluded,
    }
