"""Figure 4, continued: mean Dice of each model over all thresholds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....metrics_gpu.sweep.thresholds import LEVELS
from ...results.numbers.cell_values import CellValues
from ...results.numbers.run_numbers import Results
from ...tables.metrics import CROSS_FITTED, IN_SAMPLE
from ..notes import in_sample, search_of
from .figure import Figure, drawing_style, finish
from .points import Curve, conditions, dice_curve
from .style import DARK, GREY, PALE, Look, looks, worth, write_stamps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

__all__ = ["curves_figure", "draw_curves"]

NAME = "figure-4-threshold-curves"
_TITLE = "Figure 4, continued: Dice over thresholds"
_FIXED = 50
_TAU = np.arange(LEVELS) / 100


def curves_figure(results: Results) -> Figure | None:
    """One panel a model, the others' curves behind it in grey; None without any region."""
    curves = _curves(results)
    if not curves:
        return None
    with drawing_style(NAME):
        return finish(draw_curves(results), NAME, _TITLE, _caption(results, curves))


def draw_curves(results: Results) -> Drawing:
    """The drawing; the model's own line of a panel is labelled with its name."""
    from matplotlib.figure import Figure as Drawing

    curves = _curves(results)
    columns = min(4, len(curves))
    lines = math.ceil(len(curves) / columns)
    blank = lines * columns - len(curves)
    width = 7.2 if columns > 2 else 1.2 + 2.6 * columns
    drawing = Drawing(figsize=(width, (0.5 if blank else 0.75) + 1.5 * lines), layout="constrained")
    axes = drawing.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    look, scale = looks(results.models), _scale([cell for cell in results.finished if cell.n])
    top = max(max(curve.best, *curve.dice) for curve in curves.values())
    for place in range(lines * columns):
        panel = axes[place // columns][place % columns]
        if place < len(curves):
            _panel(panel, list(curves)[place], curves, look, scale)
            panel.set_ylim(0, 1.12 * top)
        else:
            panel.axis("off")
        if place + columns >= len(curves) > place:
            panel.xaxis.set_tick_params(labelbottom=True)
            panel.set_xlabel("threshold")
    if blank:
        axes[-1][-1].legend(
            handles=_handles(scale, len(curves)), loc="center", frameon=False, fontsize=7.5, labelspacing=0.8
        )
    else:
        drawing.legend(
            handles=_handles(scale, len(curves)),
            loc="outside lower center",
            ncols=min(columns, 2) * 2,
            frameon=False,
            fontsize=7,
        )
    drawing.supylabel("Dice (%)", fontsize=8)
    write_stamps(drawing, worth(cell for cell in results.finished if cell.n))
    return drawing


def _scale(cells: Sequence[CellValues]) -> float:
    """What threshold 1 is in the protocol's own unit; 1 where protocols are mixed."""
    scales = {cell.tau_scale for cell in cells}
    return scales.pop() if len(scales) == 1 else 1.0


def _curves(results: Results) -> dict[str, Curve]:
    found = {model: dice_curve(results, model) for model in results.models}
    return {model: curve for model, curve in found.items() if curve is not None}


def _panel(axes: Axes, model: str, curves: Mapping[str, Curve], look: Mapping[str, Look], scale: float) -> None:
    curve, colour = curves[model], look[model].colour
    axes.set_title(model)
    axes.set_xlim(0, 1)
    axes.set_xticks([0, 0.5, 1], [f"{scale * tick:g}" for tick in (0, 0.5, 1)])
    axes.grid()
    for other, behind in curves.items():
        if other != model:
            axes.plot(_TAU, behind.dice, color=PALE, linewidth=0.8, zorder=1)
    axes.axhline(curve.best, color=DARK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=2)
    axes.plot(_TAU, curve.dice, color=colour, linewidth=1.6, zorder=3, label=model)
    if curve.fixed:
        axes.plot(_FIXED / 100, curve.dice[_FIXED], zorder=4, clip_on=False, label="fixed", **_mark("o", colour))
    axes.plot(curve.top / 100, curve.dice[curve.top], zorder=4, clip_on=False, label="top", **_mark("^", "white"))


def _mark(shape: str, face: str) -> dict[str, Any]:
    return {"marker": shape, "markersize": 5, "markerfacecolor": face, "markeredgecolor": DARK, "markeredgewidth": 0.8,
            "linestyle": "none"}  # fmt: skip


def _handles(scale: float, models: int) -> list[Any]:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], **_mark("o", GREY), label=f"at {0.5 * scale:g}"),
        Line2D([], [], **_mark("^", "white"), label="best single threshold"),
        Line2D([], [], color=DARK, linewidth=0.8, linestyle=(0, (4, 2)), label="best Dice"),
        Line2D([], [], color=PALE, linewidth=0.8, label="other models"),
    ]
    return handles if models > 1 else handles[:-1]


def _caption(results: Results, curves: Mapping[str, Curve]) -> str:
    cells = [cell for cell in results.finished if cell.n]
    scale = _scale(cells)
    dots = f"Dots: threshold {0.5 * scale:g}. " if any(curve.fixed for curve in curves.values()) else ""
    kind = IN_SAMPLE if in_sample(cells) else CROSS_FITTED
    said = [
        f"Mean Dice in percent over the threshold, mean over findings, then over datasets. {dots}Triangles: the best "
        f"single threshold ({IN_SAMPLE}). Dashed: best Dice as in the tables, from which delta Dice is taken: "
        f"{search_of(cells)} ({kind})."
    ]
    for model, curve in curves.items():
        many = f" ({curve.datasets} of {len(results.datasets)} datasets)" if len(results.datasets) > 1 else ""
        half = f"{curve.dice[_FIXED]:.2f} at {0.5 * scale:g}, " if curve.fixed else ""
        said.append(
            f"{model}{many}: {half}{curve.dice[curve.top]:.2f} at {scale * curve.top / 100:.3g}, best "
            f"{curve.best:.2f}, {curve.dice[0]:.2f} at 0."
        )
    said += conditions(results, cells)
    return " ".join(said)
