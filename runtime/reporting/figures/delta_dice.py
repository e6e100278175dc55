"""Figure 4: what a threshold of 0.5 costs, as bars of delta Dice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...results.numbers.run_numbers import Results
from ...tables.metrics import CROSS_FITTED, IN_SAMPLE
from ..notes import in_sample, never_negative, search_of
from .figure import Figure, drawing_style, finish
from .points import Point, conditions, delta_dice, paper_delta
from .style import DARK, GREY, worth, write_stamps

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

__all__ = ["delta_figure", "draw_delta"]

NAME = "figure-4-delta-dice"
_TITLE = "Figure 4: delta Dice, what a threshold of 0.5 costs"
_BAR, _PAPER = "#7fb2d6", "#000000"


def delta_figure(results: Results) -> Figure | None:
    """Bars of delta Dice with intervals, largest first, the paper's values as diamonds; None without any region."""
    rows = _rows(results)
    if not rows:
        return None
    with drawing_style(NAME):
        return finish(draw_delta(results), NAME, _TITLE, _caption(results, rows))


def draw_delta(results: Results) -> Drawing:
    """The drawing: a bar a model."""
    from matplotlib.figure import Figure as Drawing

    rows = _rows(results)
    paper = _paper(results, rows)
    drawing = Drawing(figsize=(5.4, 0.8 + 0.25 * len(rows) + (0.2 if paper else 0)), layout="constrained")
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
        if point.low is not None and point.high is not None:
            axes.plot([point.low, point.high], [place, place], color=DARK, linewidth=1.2, solid_capstyle="butt")
            ends.append(point.high)
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
        drawing.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=7.5)
    write_stamps(drawing, worth(cell for cell in results.finished if cell.n))
    return drawing


def _rows(results: Results) -> list[tuple[str, Point]]:
    """Models with a region anywhere, largest first."""
    found = [(model, delta_dice(results, model)) for model in results.models]
    known = [(model, point) for model, point in found if point.value is not None]
    return sorted(known, key=lambda item: -(item[1].value or 0.0))


def _paper(results: Results, rows: Sequence[tuple[str, Point]]) -> Mapping[str, float]:
    """The paper's value of each model that is run here with its published weights."""
    values = {model: paper_delta(results, model) for model, _ in rows}
    return {model: value for model, value in values.items() if value is not None}


def _caption(results: Results, rows: Sequence[tuple[str, Point]]) -> str:
    paper = _paper(results, rows)
    cells = [cell for cell in results.finished if cell.n]
    never = ", so never below 0" if never_negative(results, cells) else ""
    kind = f"{IN_SAMPLE}{never}" if in_sample(cells) else CROSS_FITTED
    said = [
        "Delta Dice in percentage points: Dice at the best threshold minus Dice at 0.5, mean over findings, then over "
        f"datasets. Best threshold: {search_of(cells)} ({kind})."
    ]
    if any(point.low is not None for _, point in rows):
        said.append("Dark lines: 95 % bootstrap intervals over patients.")
    for model, point in rows:
        many = f", {point.datasets} of {len(results.datasets)} datasets" if len(results.datasets) > 1 else ""
        printed = f", paper {paper[model]:.1f}" if model in paper else ""
        said.append(f"{model}: {point.text}{many}{printed}.")
    if paper:
        said.append("Diamonds: the paper's values, which do not say over which datasets they were taken.")
    without = [model for model in results.models if model not in dict(rows)]
    if without:
        said.append(f"Without a result and not drawn: {', '.join(without)}.")
    said += conditions(results, cells)
    return " ".join(said)
