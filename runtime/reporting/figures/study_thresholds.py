"""Drawings of the study of thresholds: delta Dice per model, Dice by threshold, reliability of the saliency."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..studies.material import Material
from ..studies.study_outcome import Rows
from .canvas import Mark, canvas
from .figure import Figure
from .style import looks


@dataclass(frozen=True)
class _Curve:
    """A curve of the study: its rows, their columns for the x and y axes, and its names."""

    name: str
    x: str
    y: str
    title: str
    along: str
    up: str


_CURVES = (
    _Curve("curves", "tau", "dice", "Dice by threshold", "threshold tau", "Dice, percent"),
    _Curve(
        *("reliability", "saliency", "inside", "Reliability of the saliency"),
        *("normalised saliency", "pixels inside the region, percent"),
    ),
)


def draw_thresholds(rows: Mapping[str, Rows], material: Material) -> list[Figure]:
    """All drawings of the study. Raises MissingExtraError without matplotlib."""
    figures = [_delta(rows["delta_dice"], material)]
    for curve in _CURVES:
        used = [row for row in rows[curve.name] if row["class"] == "mean"]
        if used:
            figures.append(_panels(curve, used, material))
    return figures


def _delta(rows: Rows, material: Material) -> Figure:
    look = looks(material.models)
    with canvas("delta-dice", 1.0 + 0.35 * max(len(rows), 2)) as sheet:
        label = "delta Dice, percentage points (filled: in-sample; open: cross-fitted)"
        axes = sheet.lines([row["model"] for row in rows], label)
        for place, row in enumerate(rows):
            for search, offset in (("best", -0.15), ("cross_fitted", 0.15)):
                key = f"delta_{search}_points"
                if row[key] is not None:
                    Mark(row, key, look[row["model"]], 1).draw(axes, place + offset, filled=search == "best")
        caption = "; ".join(
            f"{row['model']}: {_number(row['delta_best_points'])} in-sample, "
            f"{_number(row['delta_cross_fitted_points'])} cross-fitted, "
            f"n = {row['n']} pairs in {row['datasets']} datasets"
            for row in rows
        )
        words = "Mean over datasets with bootstrap intervals; cross-fitted: threshold from other patients."
        return sheet.finished("Delta Dice per model", f"{words} {caption}.", material.stamps)


def _panels(curve: _Curve, rows: Rows, material: Material) -> Figure:
    """One panel per dataset, one line per model with its band."""
    datasets = [d for d in material.datasets if any(row["dataset"] == d for row in rows)]
    look = looks(material.models)
    fields = (curve.y, f"{curve.y}_low", f"{curve.y}_high")
    with canvas(curve.name, 2.6, len(datasets)) as sheet:
        counted: list[str] = []
        for dataset, axes in zip(datasets, sheet.panels, strict=True):
            here = [row for row in rows if row["dataset"] == dataset]
            for model in dict.fromkeys(row["model"] for row in here):
                line = [row for row in here if row["model"] == model]
                places, colour = [row[curve.x] for row in line], look[model].colour
                value, low, high = ([_percent(row[field]) for row in line] for field in fields)
                axes.plot(
                    places,
                    value,
                    look[model].mark + "-",
                    markevery=0.15,
                    markersize=3,
                    color=colour,
                    linewidth=1.2,
                    label=model,
                )
                counted.append(f"{model} on {material.title(dataset)}: {line[0]['n']}")
                axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.set_title(material.title(dataset))
            axes.set_xlim(0, 1)
            axes.set_ylim(bottom=0)
            axes.set_xlabel(curve.along)
            axes.set_ylabel(curve.up)
        words = "mean over the classes of each dataset, with pointwise bootstrap bands"
        caption = f"{curve.title}: {words}. Pairs: {'; '.join(counted)}."
        return sheet.finished(curve.title, caption, material.stamps, legend=4)


def _percent(value: float | None) -> float:
    return float("nan") if value is None else 100 * value


def _number(value: float | None) -> str:
    return "no value" if value is None else f"{value:.2f}"
