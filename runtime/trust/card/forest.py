"""The figure of a card: its numbers with their intervals, each kind of number on an axis of its own."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten
from typing import TYPE_CHECKING, Final

from ...reporting.figures.figure import Figure, finish
from ...reporting.figures.style import COLUMN, DARK, GREY, PALE, drawing_style
from .card import UNITS, CardLine, CardNumber, TrustCard, Unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AXES: Final[dict[Unit, str]] = {
    "average precision": "difference of average precision",
    "ROC AUC": "difference of ROC AUC",
    "similarity": "difference of similarity",
    "probability": "difference of probability",
    "share": "share of hits that change, %",
    "gap": "gap of pointing, points",
    "pointing": "pointing, %",
}
_PERCENT: Final = ("share", "gap", "pointing")
_ROW, _AXIS, _LINE = 0.23, 0.46, 0.15  # inches of a row, of an axis below a panel, of a line without numbers
_SIDE: Final = 24  # characters of a label

_Row = tuple[CardLine, CardNumber]


def forest_figure(card: TrustCard, name: str) -> Figure:
    """The drawing, one column wide: a panel for each kind of number, a row for each number with a verdict, its verdict
    beside it. Raises MissingExtraError without matplotlib."""
    rows = [(line, item) for line in card.lines for item in line.numbers if _drawn(line, item)]
    panels = [(unit, of_unit) for unit in UNITS if (of_unit := [row for row in rows if row[1].unit == unit])]
    without = [line for line in card.lines if not any(row[0] is line for row in rows)]
    heights = [_ROW * len(of_unit) + _AXIS for _, of_unit in panels]
    heights += [_LINE * len(without) + 0.1] if without else []
    with drawing_style(name):
        from matplotlib.figure import Figure as Drawing

        drawing = Drawing(figsize=(COLUMN, sum(heights) + 0.1))
        top, height = sum(heights) + 0.05, sum(heights) + 0.1
        for (unit, of_unit), tall in zip(panels, heights, strict=False):
            rows_tall = _ROW * len(of_unit)
            axes = drawing.add_axes((0.47, (top - rows_tall) / height, 0.29, rows_tall / height))
            _panel(axes, unit, of_unit)
            top -= tall
        for line in without:
            drawing.text(0.01, (top - 0.08) / height, f"{line.number} {line.question}: {line.word}", va="center")
            top -= _LINE
        title = f"Trust card: {card.model} on {card.title}"
        return finish(drawing, name, title, _caption(card))


def _drawn(line: CardLine, item: CardNumber) -> bool:
    return item.value is not None and (item.word is not None or line.word == "no verdict")


def _panel(axes: Axes, unit: Unit, rows: Sequence[_Row]) -> None:
    """The rows of one kind of number; grey lines: 0, and dashed what the interval must lie beyond."""
    scale = 100 if unit in _PERCENT else 1
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(_AXES[unit])
    axes.axvline(0, color=GREY, linewidth=0.6)
    for place, (line, item) in enumerate(rows):
        assert item.value is not None
        if item.edge is not None:
            ends = [place - 0.42, place + 0.42]
            axes.plot([scale * item.edge] * 2, ends, color=GREY, linewidth=0.6, linestyle=(0, (2, 1.5)))
        if item.low is not None and item.high is not None:
            axes.plot([scale * item.low, scale * item.high], [place, place], color=DARK, linewidth=1)
        axes.plot([scale * item.value], [place], "s", color=DARK, markersize=3)
        label = f"{line.number} {shorten(item.label, _SIDE, placeholder=' ...')}"
        axes.annotate(label, (-1.58, place), xycoords=("axes fraction", "data"), va="center", fontsize=7)
        axes.annotate(item.word or "", (1.06, place), xycoords=("axes fraction", "data"), va="center", fontsize=7)
        if place:
            axes.axhline(place - 0.5, color=PALE, linewidth=0.4)
    axes.margins(x=0.08)
    axes.locator_params(axis="x", nbins=3)


def _caption(card: TrustCard) -> str:
    sentences = [
        "Squares: values; lines: 95 % intervals over patients; dashed: what the whole interval must lie beyond to "
        "pass; each kind of number has an axis of its own, and there is no total."
    ]
    for line in card.lines:
        numbers = "; ".join(f"{item.what} {item.text}" for item in line.numbers if _drawn(line, item))
        sentences.append(f"{line.number} {line.question}: {line.text}{f' ({numbers})' if numbers else ''}.")
    return " ".join([*sentences, *(f"Note: {line}." for line in card.stamps), f"Note: {card.head['use']}."])
