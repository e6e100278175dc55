"""Differences of variants from the first, as points with intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..studies.study_outcome import Rows
from ..studies.writing import between
from .canvas import canvas, span
from .figure import Figure, looks


def draw_differences(name: str, title: str, rows: Rows, stamps: tuple[str, ...]) -> list[Figure]:
    """A line for each row. Raises MissingExtraError without matplotlib."""
    if not rows:
        return []
    with canvas(name, 0.9 + 0.26 * len(rows)) as sheet:
        (axes,) = sheet.panels
        look = looks(list(dict.fromkeys(str(row["model"]) for row in rows)))
        for place, row in enumerate(rows):
            limits, own = between(row, "difference"), look[str(row["model"])]
            percent = None if limits is None else [100 * end for end in limits]
            span(axes, percent, place, color=own.colour, linewidth=1)
            axes.plot([100 * row["difference"]], [place], own.mark, color=own.colour)
        names = [_line_name(row) for row in rows]
        sheet.lines(names, "difference from the reference, percentage points")
        counted = "; ".join(
            f"{text} against {row['reference']}, n = {row['n']}" for text, row in zip(names, rows, strict=True)
        )
        caption = f"Paired differences with bootstrap intervals over patients: {counted}."
        return [sheet.finished(title, caption, stamps)]


def _line_name(row: Mapping[str, Any]) -> str:
    where = f", {row['stratum']}" if row.get("stratum", "mean") != "mean" else ""
    return f"{row['variant']}, {row['dataset']}{where}"
