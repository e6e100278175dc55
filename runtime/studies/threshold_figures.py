"""Drawings of the study of thresholds: delta Dice per model, Dice by threshold, reliability of the saliency."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..reporting.figures.figure import Figure, drawing_style, finish
from ..reporting.figures.style import GREY, looks, write_stamps
from .material import Material
from .outcome import Rows

__all__ = ["draw_thresholds"]


def draw_thresholds(rows: Mapping[str, Rows], material: Material) -> list[Figure]:
    """All drawings of the study. Raises MissingExtraError without matplotlib."""
    figures = [_delta(rows["delta_dice"], material)]
    for name, x, y, title, words in (
        ("curves", "tau", "dice", "Dice by threshold", "Dice, percent"),
        ("reliability", "saliency", "inside", "Reliability of the saliency", "pixels inside the region, percent"),
    ):
        used = [row for row in rows[name] if row["class"] == "mean"]
        if used:
            figures.append(_panels(name, used, x, y, title, words, material))
    return figures


def _delta(rows: Rows, material: Material) -> Figure:
    name, title = "delta-dice", "Delta Dice per model"
    with drawing_style(name):
        drawing, (axes,) = _canvas(1, 5.0, 1.0 + 0.35 * max(len(rows), 2))
        look = looks(material.models)
        for place, row in enumerate(rows):
            for mark, offset, fill in (("best", -0.15, True), ("cross_fitted", 0.15, False)):
                value = row[f"delta_{mark}_points"]
                if value is None:
                    continue
                low, high = row[f"delta_{mark}_points_low"], row[f"delta_{mark}_points_high"]
                colour = look[row["model"]].colour
                if low is not None:
                    axes.plot([low, high], [place + offset] * 2, color=colour, linewidth=1)
                face = colour if fill else "white"
                axes.plot([value], [place + offset], look[row["model"]].mark, color=colour, markerfacecolor=face)
        axes.set_yticks(range(len(rows)), [row["model"] for row in rows])
        axes.invert_yaxis()
        axes.axvline(0, color=GREY, linewidth=0.6)
        axes.set_xlabel("delta Dice, percentage points (filled: in-sample; open: cross-fitted)")
        write_stamps(drawing, material.stamps)
        caption = "; ".join(
            f"{row['model']}: {_number(row['delta_best_points'])} in-sample, "
            f"{_number(row['delta_cross_fitted_points'])} cross-fitted, "
            f"n = {row['n']} pairs in {row['datasets']} datasets"
            for row in rows
        )
        words = (
            "Mean over datasets with bootstrap intervals; cross-fitted: threshold from the other half of the patients."
        )
        return finish(drawing, name, title, f"{words} {caption}.")


def _panels(name: str, rows: Rows, x: str, y: str, title: str, words: str, material: Material) -> Figure:
    """One panel per dataset, one line per model with its band."""
    datasets = [d for d in material.datasets if any(row["dataset"] == d for row in rows)]
    look = looks(material.models)
    with drawing_style(name):
        drawing, panels = _canvas(len(datasets), 3.0, 2.6)
        named: set[str] = set()
        counted: list[str] = []
        for dataset, axes in zip(datasets, panels, strict=True):
            for model, line in _lines(rows, dataset):
                places, colour = [row[x] for row in line], look[model].colour
                value, low, high = ([_percent(row[field]) for row in line] for field in (y, f"{y}_low", f"{y}_high"))
                axes.plot(places, value, color=colour, linewidth=1.2, label=None if model in named else model)
                named.add(model)
                counted.append(f"{model} on {material.title(dataset)}: {line[0]['n']}")
                axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.set_title(material.title(dataset))
            axes.set_xlim(0, 1)
            axes.set_ylim(bottom=0)
            axes.set_xlabel("threshold tau" if x == "tau" else "normalised saliency")
            axes.set_ylabel(words)
        drawing.legend(loc="outside lower center", ncols=min(len(named), 4), frameon=False, fontsize=7)
        write_stamps(drawing, material.stamps)
        words = "mean over the classes of each dataset, with pointwise bootstrap bands"
        caption = f"{title}: {words}. Pairs: {'; '.join(counted)}."
        return finish(drawing, name, title, caption)


def _lines(rows: Rows, dataset: str) -> Iterator[tuple[str, list[Mapping[str, Any]]]]:
    for model in dict.fromkeys(row["model"] for row in rows if row["dataset"] == dataset):
        yield model, [row for row in rows if row["dataset"] == dataset and row["model"] == model]


def _canvas(panels: int, width: float, height: float) -> tuple[Any, list[Any]]:
    from matplotlib.figure import Figure as Drawing

    across = min(panels, 3)
    down = -(-panels // across)
    drawing = Drawing(figsize=(width * across, height * down), layout="constrained")
    return drawing, [drawing.add_subplot(down, across, place + 1) for place in range(panels)]


def _percent(value: float | None) -> float:
    return float("nan") if value is None else 100 * value


def _number(value: float | None) -> str:
    return "no value" if value is None else f"{value:.2f}"
