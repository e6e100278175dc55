"""AUC against pointing: one mark per model with its intervals, and the least-squares line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..studies.material import Material
from ..studies.study_outcome import Rows
from ..studies.writing import between
from .canvas import canvas, span
from .figure import GREY, Figure, looks


def draw_correlation(points: Rows, rows: Rows, material: Material) -> list[Figure]:
    """The models, and the (model, dataset) points if there are some. Raises MissingExtraError without matplotlib."""
    figures = []
    for kind, title in (("models", "AUC and pointing of each model"), ("cells", "AUC and pointing by dataset")):
        used = [row for row in points if row["points"] == kind]
        line = next((row for row in rows if row["points"] == kind), None)
        if used and line is not None:
            figures.append(_scatter(f"correlation-{kind}", title, used, line, material))
    return figures


def _scatter(name: str, title: str, points: Rows, line: Mapping[str, Any], material: Material) -> Figure:
    look = looks(material.models)
    with canvas(name, 3.6) as sheet:
        (axes,) = sheet.panels
        if line["slope"] is not None:
            ends = [min(row["auc"] for row in points), max(row["auc"] for row in points)]
            heights = [100 * (line["intercept"] + line["slope"] * end) for end in ends]
            axes.plot([100 * end for end in ends], heights, color=GREY, linewidth=0.8, linestyle="--")
        named = set()
        for row in points:
            x, y, model = 100 * row["auc"], 100 * row["pointing"], row["model"]
            colour, mark = look[model].colour, look[model].mark
            for field, place in (("auc", y), ("pointing", x)):
                limits = between(row, field)
                percent = None if limits is None else [100 * end for end in limits]
                span(axes, percent, place, upright=field == "pointing", color=colour, linewidth=0.7, alpha=0.6)
            axes.plot([x], [y], mark, color=colour, label=None if model in named else model)
            named.add(model)
        axes.set_xlabel("mean AUC, percent")
        axes.set_ylabel("mean pointing, percent")
        r2 = "R² is not defined" if line["r2"] is None else f"R² = {line['r2']:.2f}"
        caption = f"{len(points)} points, {r2}; bars are bootstrap intervals over patients, the line is least squares."
        return sheet.finished(title, caption, material.stamps, legend=3)
