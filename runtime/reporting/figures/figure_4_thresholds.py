"""Figure 4: the Dice lost at threshold 0.5, as bars of delta Dice and as mean Dice over all thresholds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ....metrics_gpu.sweep.sweep_options import LEVELS, level
from ...results.numbers.cell_values import CellValues
from ...results.numbers.run_numbers import Results
from ..notes import in_sample, never_negative, search_of
from ..paper import paper, why_mean_apart
from ..tables.metric_names import CROSS_FITTED, IN_SAMPLE
from .figure import Plan, Point, conditions, not_drawn, point_of
from .style import COLUMN, DARK, GREY, PAGE, PALE, Look, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_BAR, _PAPER = "#7fb2d6", "#000000"
_DOT: Final[dict[str, Any]] = {
    "marker": "o", "markersize": 5, "markeredgecolor": DARK, "markeredgewidth": 0.8, "linestyle": "none"
}  # fmt: skip
_TRIANGLE: Final = {**_DOT, "marker": "^", "mfc": "white"}
_FIXED = 50
_TAU = np.arange(LEVELS) / 100


@dataclass(frozen=True)
class Curve:
    """Mean Dice of a model in percent at thresholds 0, 0.01 .. 1; `best` is the mean of best values of each class.

    fixed: whether threshold 0.5 has a meaning in the protocol. top: level of the curve's own maximum among those that
    the search tries, the smallest of equal ones.
    """

    dice: tuple[float, ...]
    best: float
    datasets: int
    fixed: bool
    top: int


def draw_delta(results: Results) -> Drawing:
    """The drawing: one bar per model."""
    from matplotlib.figure import Figure as Drawing

    rows = _delta_rows(results)
    paper = {model: value for model, value, reasons in _printed(results, rows) if not reasons}
    drawing = Drawing(figsize=(PAGE, 0.8 + 0.25 * len(rows) + (0.2 if paper else 0)), layout="constrained")
    axes = drawing.add_subplot()
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.axvline(0, color=DARK, linewidth=0.8)
    places = range(len(rows))
    axes.set_yticks(places, [model for model, _ in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    values = [point.value or 0.0 for _, point in rows]
    axes.barh(places, values, height=0.56, color=_BAR, edgecolor=DARK, linewidth=0.5, label="this run")
    reach = []
    for place, (model, point) in zip(places, rows, strict=True):
        ends = [point.value or 0.0]
        if point.ends:
            axes.plot(point.ends, [place, place], color=DARK, linewidth=1.2, solid_capstyle="butt")
            ends.append(point.ends[1])
        if model in paper:
            label = "paper" if model == next(iter(paper)) else "_paper"  # one line in the legend
            axes.plot(paper[model], place, "D", markersize=5.5, markerfacecolor="white", markeredgecolor=_PAPER,
                      markeredgewidth=1.1, zorder=4, label=label)  # fmt: skip
            ends.append(paper[model])
        axes.text(1.03, place, f"{point.value:.2f}", transform=axes.get_yaxis_transform(), va="center", fontsize=7.5)
        if model in paper:
            axes.text(1.14, place, f"paper {paper[model]:.1f}", transform=axes.get_yaxis_transform(), va="center",
                      fontsize=7, color=GREY)  # fmt: skip
        reach.append(max(ends))
    axes.set_xlim(1.1 * min(0.0, *(end for _, p in rows for end in (p.value, p.low) if end is not None)),
                  1.03 * max([*reach, 1.0]))  # fmt: skip
    axes.set_xlabel("Dice at the best threshold minus Dice at 0.5, percentage points")
    if paper:
        drawing.legend(loc="outside lower center", ncols=2, frameon=False)
    return drawing


def _delta_rows(results: Results) -> list[tuple[str, Point]]:
    """Models with a region anywhere, largest first."""
    points = [(model, point_of(results, model, "delta_dice")) for model in results.models]
    defined = [(model, point) for model, point in points if point.value is not None]
    return sorted(defined, key=lambda item: -(item[1].value or 0.0))


def _printed(results: Results, rows: Sequence[tuple[str, Point]]) -> Iterator[tuple[str, float, tuple[str, ...]]]:
    """Models of which the paper prints a value, the value, and why it has no difference to it in Table 1."""
    for model, _ in rows:
        cells = results.row(model)
        printed = paper().delta_dice.get(cells[0].family)
        if printed and any(cell.reader in paper().datasets for cell in cells):
            yield model, printed.value, why_mean_apart(cells)


def _delta_caption(results: Results, rows: Sequence[tuple[str, Point]]) -> str:
    quoted = list(_printed(results, rows))
    paper = {model: value for model, value, reasons in quoted if not reasons}
    cells = [cell for cell in results.finished if cell.n]
    never = ", so never below 0" if never_negative(cells) else ""
    kind = f"{IN_SAMPLE}{never}" if in_sample(cells) else CROSS_FITTED
    sentences = [
        "Delta Dice in percentage points: Dice at the best threshold minus Dice at 0.5, mean over findings, then over "
        f"datasets. Best threshold: {search_of(cells)} ({kind})."
    ]
    if any(point.low is not None for _, point in rows):
        sentences.append("Dark lines: 95 % bootstrap intervals over patients.")
    for model, point in rows:
        many = f", {point.datasets} of {len(results.datasets)} datasets" if len(results.datasets) > 1 else ""
        printed = f", paper {paper[model]:.1f}" if model in paper else ""
        sentences.append(f"{model}: {point.text}{many}{printed}.")
    if paper:
        sentences.append("Diamonds: the paper's values, which do not say over which datasets they were taken.")
    for model, value, reasons in quoted:
        if reasons:
            sentences.append(f"Not drawn, the paper's {value:.1f} for {model}: {'; '.join(reasons)}.")
    sentences += not_drawn(results, dict(rows), "delta_dice", "a result")
    sentences += conditions(results, cells)
    return " ".join(sentences)


def draw_curves(results: Results) -> Drawing:
    """The drawing; the model's own line of a panel is labelled with its name."""
    from matplotlib.figure import Figure as Drawing

    curves = _curves(results)
    columns = min(4, len(curves))
    lines = math.ceil(len(curves) / columns)
    blank = lines * columns - len(curves)
    drawing = Drawing(
        figsize=(COLUMN if columns == 1 else PAGE, (0.5 if blank else 0.75) + 1.5 * lines), layout="constrained"
    )
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
        axes[-1][-1].legend(handles=_handles(scale, len(curves)), loc="center", frameon=False, labelspacing=0.8)
    else:
        drawing.legend(
            handles=_handles(scale, len(curves)),
            loc="outside lower center",
            ncols=min(columns, 2) * 2,
            frameon=False,
        )
    drawing.supylabel("Dice (%)", fontsize=7.5)
    return drawing


def _scale(cells: Sequence[CellValues]) -> float:
    """The value of threshold 1 in the protocol's unit; 1 if protocols are mixed."""
    scales = {cell.tau_scale for cell in cells}
    return scales.pop() if len(scales) == 1 else 1.0


def _curves(results: Results) -> dict[str, Curve]:
    curves = {model: dice_curve(results, model) for model in results.models}
    return {model: curve for model, curve in curves.items() if curve is not None}


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
        axes.plot(_FIXED / 100, curve.dice[_FIXED], zorder=4, clip_on=False, label="fixed", mfc=colour, **_DOT)
    axes.plot(curve.top / 100, curve.dice[curve.top], zorder=4, clip_on=False, label="top", **_TRIANGLE)


def _handles(scale: float, models: int) -> list[Any]:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], mfc=GREY, **_DOT, label=f"at {0.5 * scale:g}"),
        Line2D([], [], **_TRIANGLE, label="best single threshold"),
        Line2D([], [], color=DARK, linewidth=0.8, linestyle=(0, (4, 2)), label="best Dice"),
        Line2D([], [], color=PALE, linewidth=0.8, label="other models"),
    ]
    return handles if models > 1 else handles[:-1]


def _curves_caption(results: Results, curves: Mapping[str, Curve]) -> str:
    cells = [cell for cell in results.finished if cell.n]
    scale = _scale(cells)
    dots = f"Dots: threshold {0.5 * scale:g}. " if any(curve.fixed for curve in curves.values()) else ""
    kind = IN_SAMPLE if in_sample(cells) else CROSS_FITTED
    sentences = [
        f"Mean Dice in percent over the threshold, mean over findings, then over datasets. {dots}Triangles: the best "
        f"single threshold ({IN_SAMPLE}). Dashed: best Dice as in the tables, from which delta Dice is taken: "
        f"{search_of(cells)} ({kind})."
    ]
    for model, curve in curves.items():
        many = f" ({curve.datasets} of {len(results.datasets)} datasets)" if len(results.datasets) > 1 else ""
        half = f"{curve.dice[_FIXED]:.2f} at {0.5 * scale:g}, " if curve.fixed else ""
        sentences.append(
            f"{model}{many}: {half}{curve.dice[curve.top]:.2f} at {scale * curve.top / 100:.3g}, best "
            f"{curve.best:.2f}, {curve.dice[0]:.2f} at 0."
        )
    sentences += not_drawn(results, curves, "dice_best")
    sentences += conditions(results, cells)
    return " ".join(sentences)


def dice_curve(results: Results, model: str) -> Curve | None:
    """A model's mean Dice over thresholds, unweighted over its datasets that have regions; None without any."""
    cells = [cell for cell in results.row(model) if cell.dice_curve]
    best = results.number(model, "", "dice_best").value
    if best is None or not cells:
        return None
    curve = 100 * np.mean([cell.dice_curve for cell in cells], axis=0)
    fixed = all(cell.grounding.value("dice_fixed") is not None for cell in cells)
    first = max(level(cell.grounding.options.tau_from) for cell in cells)
    return Curve(tuple(curve.tolist()), 100 * best, len(cells), fixed, first + int(np.argmax(curve[first:])))


DELTA: Final[Plan] = (
    "figure-4-delta-dice",
    "Figure 4: delta Dice, what a threshold of 0.5 costs",
    _delta_rows,
    draw_delta,
    _delta_caption,
)
"""Bars of delta Dice with intervals, largest first, the paper's values as diamonds; none without any region."""

CURVES: Final[Plan] = (
    "figure-4-threshold-curves",
    "Figure 4, continued: Dice over thresholds",
    _curves,
    draw_curves,
    _curves_caption,
)
"""One panel per model, with the curves of the others in grey behind; none without any region."""
