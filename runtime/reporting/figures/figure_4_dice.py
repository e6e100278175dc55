"""Figure 4 as the paper draws it: Dice at 0.5 and at the best threshold of each model, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...results.numbers.run_numbers import Results
from ...tables.metrics import CROSS_FITTED, IN_SAMPLE
from ..notes import in_sample, search_of
from .figure import DARK, Figure, Point, conditions, drawing_style, finish, point_of, width_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

__all__ = ["dice_figure", "draw_dice"]

_NAME, _TITLE = "figure-4-dice", "Figure 4: Dice at 0.5 and at the best threshold"
_SERIES = (("threshold 0.5", "#f4b477", "////"), ("best threshold", "#0068af", ""))
"""Name, colour and hatch of the two bars."""


@dataclass(frozen=True)
class _Row:
    """A model with both values."""

    model: str
    fixed: Point
    best: Point


def dice_figure(results: Results) -> Figure | None:
    """Two bars for each model with their intervals; None if no model has both values."""
    rows = _rows(results)
    if not rows:
        return None
    name = results.named(_NAME)
    with drawing_style(name):
        return finish(draw_dice(results), name, results.titled(_TITLE), _caption(results, rows))


def draw_dice(results: Results) -> Drawing:
    """The drawing; models in the order of the report."""
    from matplotlib.figure import Figure as Drawing

    rows = _rows(results)
    names = [row.model for row in rows]
    width = width_for(names, 4)
    drawing = Drawing(figsize=(width, 2.6), layout="constrained")
    axes = drawing.add_subplot()
    axes.grid(axis="y")
    slanted = width / len(names) < 0.075 * max(map(len, names))
    axes.set_xticks(range(len(names)), names, rotation=30 if slanted else 0, ha="right" if slanted else "center")
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_ylabel("Dice (%)")
    for side, (label, colour, hatch) in enumerate(_SERIES):
        points = [(row.fixed, row.best)[side] for row in rows]
        places = [place + (side - 0.5) * 0.38 for place in range(len(rows))]
        values = [point.value or 0.0 for point in points]
        axes.bar(places, values, 0.38, color=colour, hatch=hatch, edgecolor=DARK, linewidth=0.5, label=label)
        for place, point, value in zip(places, points, values, strict=True):
            top = value
            if point.low is not None and point.high is not None:
                axes.plot([place, place], [point.low, point.high], color=DARK, linewidth=1, solid_capstyle="butt")
                top = point.high
            axes.annotate(f"{value:.1f}", (place, top), (0, 1.5), textcoords="offset points", ha="center", fontsize=7)
    axes.margins(y=0.12)
    axes.set_ylim(bottom=0)
    drawing.legend(loc="outside lower center", ncols=2, frameon=False)
    return drawing


def _rows(results: Results) -> list[_Row]:
    """Models with both values, in the order of the report."""
    rows = [_Row(m, point_of(results, m, "dice_fixed"), point_of(results, m, "dice_best")) for m in results.models]
    return [row for row in rows if row.fixed.value is not None and row.best.value is not None]


def _caption(results: Results, rows: Sequence[_Row]) -> str:
    cells = [cell for cell in results.finished if cell.n]
    kind = IN_SAMPLE if in_sample(cells) else CROSS_FITTED
    said = [
        "Dice in percent at threshold 0.5 (hatched) and at the best threshold, mean over findings, then over datasets. "
        f"Best threshold: {search_of(cells)} ({kind})."
    ]
    if any(point.low is not None for row in rows for point in (row.fixed, row.best)):
        said.append("Dark lines: 95 % bootstrap intervals over patients.")
    said += [f"{row.model}: {row.fixed.text} at 0.5, {row.best.text} at the best threshold." for row in rows]
    shown = {row.model for row in rows}
    lacks = {model: results.lacking(model, "dice_best") for model in results.models if model not in shown}
    partial = [f"{model} ({reason})" for model, reason in lacks.items() if reason]
    empty = [model for model, reason in lacks.items() if not reason]
    if partial:
        said.append(f"Not drawn, because they lack a dataset: {', '.join(partial)}.")
    if empty:
        said.append(f"Without both values and not drawn: {', '.join(empty)}.")
    said += conditions(results, cells)
    return " ".join(said)
