"""Dice by method of calibration, one line of marks per model."""

from __future__ import annotations

from collections.abc import Mapping

from ..studies.material import Material
from ..studies.study_outcome import Rows
from ..studies.writing import between
from .canvas import canvas, span
from .figure import Figure, looks


def draw_calibration(rows: Rows, labels: Mapping[str, str], material: Material) -> list[Figure]:
    """Gain over tau = 0.5 by method; `labels`: methods as printed. Raises MissingExtraError without matplotlib."""
    methods = [name for name in labels if name != "none" and any(row["method"] == name for row in rows)]
    if not methods:
        return []
    models = list(dict.fromkeys(str(row["model"]) for row in rows))
    look = looks(material.models)
    with canvas("calibration", 1.4 + 0.42 * len(methods)) as sheet:
        (axes,) = sheet.panels
        for number, model in enumerate(models):
            shift = 0.6 * ((number + 0.5) / len(models) - 0.5)
            own = [row for row in rows if row["model"] == model and row["method"] in methods]
            places = [methods.index(row["method"]) + shift for row in own]
            colour = look[model].colour
            values = [row["gain_points"] for row in own]
            axes.plot(values, places, look[model].mark, color=colour, markersize=4, label=model)
            for place, row in zip(places, own, strict=True):
                span(axes, between(row, "gain_points"), place, color=colour, linewidth=0.8)
        sheet.lines([labels[method] for method in methods], "gain over tau = 0.5, percentage points of Dice")
        caption = (
            "Mean over datasets with bootstrap intervals over patients. The best threshold is chosen on the pairs that "
            "are scored and so in-sample; all others are fitted on other patients or not at all."
        )
        return [sheet.finished("Gain in Dice by calibration", caption, material.stamps, legend=3)]
