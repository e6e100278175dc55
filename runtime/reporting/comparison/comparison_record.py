"""A comparison -> plain data for JSON, complete: every flip, every row that only one run has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ...results.comparing.align import OnlyIn
from ...results.comparing.cell_changes import CellChanges
from ...results.comparing.difference import Difference
from .comparison import Comparison
from .gate import Verdict, measures


def to_record(comparison: Comparison, verdicts: Sequence[Verdict] = ()) -> dict[str, Any]:
    """Values are fractions, changes B minus A; `measures` are in the units of --fail-if."""
    return {
        "a": comparison.a,
        "b": comparison.b,
        "resampling": comparison.resampling.settings,
        "stamps": list(comparison.stamps),
        **({"metrics": [asdict(metric) for metric in comparison.metrics]} if comparison.metrics else {}),
        **({"limits": list(comparison.limits)} if comparison.limits else {}),
        "measures": measures(comparison),
        "gates": [{"condition": str(item.condition), "value": item.value, "fired": item.fired} for item in verdicts],
        "cells": [_cell(cell) for cell in comparison.cells],
        "means": [
            {"models": item.models, "protocol": item.protocol, "changes": list(map(_change, item.whole))}
            for item in comparison.models
        ],
        "alone": [asdict(lone) for lone in comparison.alone],
    }


def _cell(cell: CellChanges) -> dict[str, Any]:
    return {
        **asdict(cell.match),
        "title": cell.title,
        "protocol": cell.protocol,
        "images": cell.images,
        "pairs": cell.pairs,
        "changes": [_change(change) for change in cell.whole],
        "findings": [_change(change) for change in cell.classes],
        "rows": asdict(cell.rows),
        "only_a": _only(cell.only_a),
        "only_b": _only(cell.only_b),
        "label_changes": _pairs(cell.label_changes),
        "region_changes": _pairs(cell.region_changes),
        "other_files": list(cell.other_files),
        "other_patients": list(cell.other_patients),
    }


def _change(change: Difference) -> dict[str, Any]:
    return {
        "metric": change.field,
        "finding": change.name,
        "n": change.n,
        "a": change.reference,
        "b": change.minuend,
        "change": change.value,
        "interval": asdict(change.interval) if change.interval else None,
        **change.test,
    }


def _only(only: OnlyIn) -> dict[str, Any]:
    return {
        "rows": only.rows,
        "cases": [{"case": case, "reason": reason} for case, reason in only.cases],
        "findings": list(only.findings),
        "regions": _pairs(only.pairs),
    }


def _pairs(names: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"case": case, "finding": finding} for case, finding in names]
