"""Every table of a report, in the order it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..comparing.model_differences import Differences
from ..results.numbers.run_numbers import Results
from ..tables.table import Table
from .class_tables import class_auc, class_dice, class_pointing
from .difference_tables import difference_tables
from .grounding_tables import table_1, thresholds
from .provenance import provenance_table
from .recognition_tables import coverage, recognition

__all__ = ["all_tables"]


def all_tables(results: Results, differences: Differences, run: Mapping[str, Any]) -> list[Table]:
    """The tables of `results`; `run` is run.json."""
    tables = [table_1(results)]
    for dataset in results.datasets:
        if any(cell.n for cell in results.column(dataset)):
            tables += [class_pointing(results, dataset), class_dice(results, dataset)]
    tables += [thresholds(results), recognition(results)]
    for dataset in results.datasets:
        # With one class the table of recognition says it already.
        if any(len(cell.recognition.classes) > 1 for cell in results.column(dataset)):
            tables.append(class_auc(results, dataset))
    return [*tables, *difference_tables(results, differences), coverage(results), provenance_table(results, run)]
