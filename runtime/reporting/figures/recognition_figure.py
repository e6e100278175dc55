"""Recognition (AUC) of each model, per dataset."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ...results.numbers.run_numbers import Results
from .figure import Plan, Point, conditions, point_of
from .style import DARK, GREY, PAGE, PALE, Look, looks, width_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_MEAN = "mean of datasets"


def draw_recognition(results: Results) -> Drawing:
    """The drawing; each panel's title is its dataset's, models are in the order of their means."""
    from matplotlib.figure import Figure as Drawing

    models = [model for model, _ in _rows(results)]
    places = [(results.title(dataset), dataset) for dataset in results.datasets]
    places += [(_MEAN, "")] * (len(places) > 1)
    panels = [(title, [point_of(results, model, "auc", dataset) for model in models]) for title, dataset in places]
    columns = min(4, len(panels))
    lines = math.ceil(len(panels) / columns)
    height = lines * (0.45 + 0.19 * len(models)) + 0.3
    drawing = Drawing(figsize=(width_for(models, 99) if columns == 1 else PAGE, height), layout="constrained")
    axes = drawing.subplots(lines, columns, sharey=True, sharex=True, squeeze=False)
    ends = [end for _, points in panels for point in points for end in (point.value, point.low) if end is not None]
    lowest = min(ends, default=45.0)
    least = min(45.0, 5 * math.floor(lowest / 5) - 5 * (lowest < 45))  # of the axis: 45, or below the lowest end
    for place, (title, points) in enumerate(panels):
        _panel(axes[place // columns][place % columns], title, models, points, least, looks(results.models))
    for place in range(len(panels), lines * columns):
        axes[place // columns][place % columns].set_visible(False)
        axes[place // columns - 1][place % columns].xaxis.set_tick_params(labelbottom=True)
    drawing.supxlabel("AUC (%), mean over findings; dashed: chance", fontsize=7.5)
    return drawing


def _rows(results: Results) -> list[tuple[str, Point]]:
    """Models with an AUC anywhere, best mean first."""
    means = [(model, point_of(results, model, "auc")) for model in results.models]
    measured = [
        (model, point)
        for model, point in means
        if point.value is not None or any(cell.number("auc").value is not None for cell in results.row(model))
    ]
    return sorted(measured, key=lambda item: -(item[1].value or 0.0))


def _panel(
    axes: Axes, title: str, models: Sequence[str], points: Sequence[Point], least: float, look: Mapping[str, Look]
) -> None:
    axes.set_title(title, fontstyle="italic" if title == _MEAN else "normal")
    axes.axvline(50, color=DARK, linewidth=0.8, linestyle=(0, (3, 2)), zorder=1)
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    axes.set_yticks(range(len(models)), models)
    axes.set_ylim(len(models) - 0.45, -0.6)
    axes.set_xlim(least, 101)
    for row, (model, point) in enumerate(zip(models, points, strict=True)):
        axes.axhline(row, color=PALE, linewidth=0.5, zorder=0)
        if point.value is None:
            axes.text(least + 1.5, row, point.reason, va="center", fontsize=7, color=GREY,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 1})  # fmt: skip
            continue
        if point.ends:
            axes.plot(point.ends, [row, row], color=look[model].colour, linewidth=1.6, zorder=2)
        axes.plot(point.value, row, look[model].mark, color=look[model].colour, markeredgecolor="white",
                  markeredgewidth=0.5, markersize=5.5, zorder=3, label=model)  # fmt: skip
        right = point.value < (least + 101) / 2
        edge = (point.high if right else point.low) or point.value
        axes.annotate(f"{point.value:.1f}", (edge, row), (5 if right else -5, 0), textcoords="offset points",
                      ha="left" if right else "right", va="center", fontsize=7, color=DARK, zorder=2,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4})  # fmt: skip


def _caption(results: Results, rows: Sequence[tuple[str, Point]]) -> str:
    models = [model for model, _ in rows]
    sentences = [
        "Area under the ROC curve in percent, unweighted mean over the findings of a dataset that have both label "
        "values; models in the order of their means. 50 is chance."
    ]
    if any(
        point.low is not None
        for model in models
        for point in (point_of(results, model, "auc", d) for d in results.datasets)
    ):
        sentences.append("Lines: 95 % bootstrap intervals over patients.")
    for model, mean in rows:
        cells = [f"{results.title(d)} {point_of(results, model, 'auc', d).text}" for d in results.datasets]
        tail = f"; mean of {mean.datasets} datasets {mean.text}" if len(results.datasets) > 1 else ""
        if mean.value is None:
            tail = f"; no mean, {mean.reason}"
        sentences.append(f"{model}: {', '.join(cells)}{tail}.")
    without = [model for model in results.models if model not in models]
    if without:
        sentences.append(f"Without any AUC and not drawn: {', '.join(without)}.")
    sentences.append(
        "The arrangement is this report's own; the paper prints no table of these numbers to compare with."
    )
    sentences += conditions(results, (cell for cell in results.finished if cell.model in models))
    return " ".join(sentences)


RECOGNITION: Final[Plan] = (
    "figure-recognition",
    "Recognition per model and dataset",
    _rows,
    draw_recognition,
    _caption,
)
"""AUC as dots with intervals, one panel per dataset and one for the mean; none if no model has an AUC."""
