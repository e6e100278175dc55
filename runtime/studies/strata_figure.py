"""Pointing minus chance by size of the region, one line per model."""

from __future__ import annotations

from ...metrics_gpu.grounding.strata import STRATA
from ..reporting.figures.figure import Figure, drawing_style, finish
from ..reporting.figures.style import GREY, looks, write_stamps
from .material import Material
from .outcome import Rows

__all__ = ["draw_strata"]


def draw_strata(rows: Rows, material: Material) -> list[Figure]:
    """Fixed strata over all datasets of a model, or over its only one. Raises MissingExtraError without matplotlib."""
    from_fixed = [row for row in rows if row["division"] == "fixed"]
    lines = []
    for model in material.models:
        own = [row for row in from_fixed if row["model"] == model]
        pooled = [row for row in own if row["dataset"] == "all datasets"] or own
        if pooled:
            lines.append((model, pooled))
    if not lines:
        return []
    name, title = "strata", "Pointing above chance by size of the region"
    look = looks(material.models)
    with drawing_style(name):
        from matplotlib.figure import Figure as Drawing

        drawing = Drawing(figsize=(4.6, 3.2), layout="constrained")
        axes = drawing.add_subplot()
        for number, (model, line) in enumerate(lines):
            shift = 0.5 * ((number + 0.5) / len(lines) - 0.5)
            known = [row for row in line if row["above_chance"] is not None]
            places = [STRATA.index(row["stratum"]) + shift for row in known]
            values = [100 * row["above_chance"] for row in known]
            colour = look[model].colour
            axes.plot(places, values, look[model].mark + "-", color=colour, linewidth=0.8, markersize=4, label=model)
            for place, row in zip(places, known, strict=True):
                if row["above_chance_low"] is not None:
                    ends = [100 * row["above_chance_low"], 100 * row["above_chance_high"]]
                    axes.plot([place, place], ends, color=colour, linewidth=0.8)
        axes.axhline(0, color=GREY, linewidth=0.6)
        axes.set_xticks(range(len(STRATA)), STRATA)
        axes.set_xlim(-0.5, len(STRATA) - 0.5)
        axes.set_ylabel("pointing minus chance, percentage points")
        drawing.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=7)
        write_stamps(drawing, material.stamps)
        counted = "; ".join(f"{m}: {', '.join(str(row['n']) for row in line)}" for m, line in lines)
        return [finish(drawing, name, title, f"Bootstrap intervals over patients; pairs per stratum: {counted}.")]
