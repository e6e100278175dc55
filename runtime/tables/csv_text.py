"""Rows -> CSV: one line for each row, values unrounded."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["to_csv"]


def to_csv(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """`columns`: those of rows of which there may be none; else all that occur, in the order they do."""
    table = list(rows)
    columns = columns or list(dict.fromkeys(name for row in table for name in row))
    stream = io.StringIO()
    if columns:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    return stream.getvalue()
