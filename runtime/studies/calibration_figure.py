"""Dice by method of calibration, one line of marks per model."""

from __future__ import annotations

from collections.abc import Mapping

from ..reporting.figures.figure import Figure, drawing_style, finish
from ..reporting.figures.style import GREY, looks, write_stamps
from .material import Material
from .outcome import Rows
from .writing import between

__all__ = ["draw_calibration"]


def draw_calibration(rows: Rows, labels: Mapping[str, str], material: Material) -> list[Figure]:
    """Gain over tau = 0.5 by method; `labels`: methods as printed. Raises MissingExtraError without matplotlib."""
    methods = [name for name in labels if name != "none" and any(row["method"] == name for row in rows)]
    if not methods:
        return []
    models = list(dict.fromkeys(str(row["model"]) for row in rows))
    look = looks(material.models)
    name, title = "calibration", "Gain in Dice by calibration"
    with drawing_style(name):
        from matplotlib.figure import Figure as Drawing

        drawing = Drawing(figsize=(6.0, 1.4 + 0.42 * len(methods)), layout="constrained")
        axes = drawing.add_subplot()
        for number, model in enumerate(models):
            shift = 0.6 * ((number + 0.5) / len(models) - 0.5)
            own = [row for row in rows if row["model"] == model and row["method"] in methods]
            places = [methods.index(row["method"]) + shift for row in own]
            colour = look[model].colour
            values = [row["gain_points"] for row in own]
            axes.plot(values, places, look[model].mark, color=colour, markersize=4, label=model)
            for place, row in zip(places, own, strict=True):
                ends = between(row, "gain_points")
                if ends is not None:
                    axes.plot(ends, [place, place], color=colour, linewidth=0.8)
        axes.axvline(0, color=GREY, linewidth=0.6)
        axes.set_yticks(range(len(methods)), [labels[method] for method in methods])
        axes.invert_yaxis()
        axes.set_xlabel("gain over tau = 0.5, percentage points of Dice")
        drawing.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=7)
        write_stamps(drawing, material.stamps)
        caption = (
            "Mean over datasets with bootstrap intervals over patients. The best threshold is chosen on the pairs that "
            "are scored and so in-sample; all others are fitted on other patients or not at all."
        )
        return [finish(drawing, name, title, caption)]
