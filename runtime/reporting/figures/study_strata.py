"""Pointing minus chance by size of the region, one line per model."""

from __future__ import annotations

from ....metrics_gpu.grounding.strata import STRATA
from ..studies.material import Material
from ..studies.study_outcome import Rows
from ..studies.writing import between, no_mean
from .canvas import canvas, span
from .figure import GREY, Figure, looks


def draw_strata(rows: Rows, material: Material) -> list[Figure]:
    """Fixed strata in the mean over the datasets of a model, or over the only one of the run.

    Raises MissingExtraError without matplotlib.
    """
    from_fixed = [row for row in rows if row["division"] == "fixed"]
    lines = []
    for model in material.models:
        own = [row for row in from_fixed if row["model"] == model]
        pooled = [row for row in own if row["dataset"] == "mean of datasets"] or own
        if pooled and not no_mean(material, model):
            lines.append((model, pooled))
    if not lines:
        return []
    look = looks(material.models)
    with canvas("strata", 3.2) as sheet:
        (axes,) = sheet.panels
        for number, (model, line) in enumerate(lines):
            shift = 0.5 * ((number + 0.5) / len(lines) - 0.5)
            known = [row for row in line if row["above_chance"] is not None]
            places = [STRATA.index(row["stratum"]) + shift for row in known]
            values = [100 * row["above_chance"] for row in known]
            colour = look[model].colour
            axes.plot(places, values, look[model].mark + "-", color=colour, linewidth=0.8, markersize=4, label=model)
            for place, row in zip(places, known, strict=True):
                limits = between(row, "above_chance")
                percent = None if limits is None else [100 * end for end in limits]
                span(axes, percent, place, upright=True, color=colour, linewidth=0.8)
        axes.axhline(0, color=GREY, linewidth=0.6)
        axes.set_xticks(range(len(STRATA)), STRATA)
        axes.set_xlim(-0.5, len(STRATA) - 0.5)
        axes.set_ylabel("pointing minus chance, percentage points")
        counted = "; ".join(f"{m}: {', '.join(str(row['n']) for row in line)}" for m, line in lines)
        caption = f"Bootstrap intervals over patients; pairs per stratum: {counted}."
        return [sheet.finished("Pointing above chance by size of the region", caption, material.stamps, legend=3)]
