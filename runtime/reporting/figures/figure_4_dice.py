"""Figure 4 as the paper draws it: Dice at 0.5 and at the best threshold of each model, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ...results.numbers.run_numbers import Results
from ..notes import in_sample, search_of
from ..tables.metric_names import CROSS_FITTED, IN_SAMPLE
from .figure import Plan, Point, conditions, not_drawn, point_of
from .style import DARK, width_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_SERIES = (("threshold 0.5", "#f4b477", "////"), ("best threshold", "#0068af", ""))
"""Name, colour and hatch of the two bars."""


def draw_dice(results: Results) -> Drawing:
    """The drawing; models in the order of the report."""
    from matplotlib.figure import Figure as Drawing

    rows = _rows(results)
    names = list(rows)
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
        points = [both[side] for both in rows.values()]
        places = [place + (side - 0.5) * 0.38 for place in range(len(rows))]
        values = [point.value or 0.0 for point in points]
        axes.bar(places, values, 0.38, color=colour, hatch=hatch, edgecolor=DARK, linewidth=0.5, label=label)
        for place, point, value in zip(places, points, values, strict=True):
            top = value
            if point.ends:
                axes.plot([place, place], point.ends, color=DARK, linewidth=1, solid_capstyle="butt")
                top = point.ends[1]
            axes.annotate(f"{value:.1f}", (place, top), (0, 1.5), textcoords="offset points", ha="center", fontsize=7)
    axes.margins(y=0.12)
    axes.set_ylim(bottom=0)
    drawing.legend(loc="outside lower center", ncols=2, frameon=False)
    return drawing


def _rows(results: Results) -> dict[str, tuple[Point, Point]]:
    """Models with both values, in the order of the report."""
    rows = {m: (point_of(results, m, "dice_fixed"), point_of(results, m, "dice_best")) for m in results.models}
    return {model: both for model, both in rows.items() if all(point.value is not None for point in both)}


def _caption(results: Results, rows: Mapping[str, tuple[Point, Point]]) -> str:
    cells = [cell for cell in results.finished if cell.n]
    kind = IN_SAMPLE if in_sample(cells) else CROSS_FITTED
    sentences = [
        "Dice in percent at threshold 0.5 (hatched) and at the best threshold, mean over findings, then over datasets. "
        f"Best threshold: {search_of(cells)} ({kind})."
    ]
    if any(point.low is not None for both in rows.values() for point in both):
        sentences.append("Dark lines: 95 % bootstrap intervals over patients.")
    sentences += [
        f"{model}: {fixed.text} at 0.5, {best.text} at the best threshold." for model, (fixed, best) in rows.items()
    ]
    sentences += not_drawn(results, rows, "dice_best", "both values")
    sentences += conditions(results, cells)
    return " ".join(sentences)


DICE: Final[Plan] = ("figure-4-dice", "Figure 4: Dice at 0.5 and at the best threshold", _rows, draw_dice, _caption)
"""Two bars for each model with their intervals; none if no model has both values."""
