"""Rows -> CSV: one line for each row, values unrounded."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["to_csv"]


def to_csv(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """The rows as CSV text. columns: needed if `rows` may be empty; by default all that occur, in their order."""
    table = list(rows)
    columns = columns or list(dict.fromkeys(name for row in table for name in row))
    stream = io.StringIO()
    if columns:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    return stream.getvalue()
