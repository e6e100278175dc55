"""Colours and marks of models. Every model also has its own mark, so that no information is in the colour alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...results.numbers.cell_values import CellValues
from ...tables.stamps import limit_stamps, stamps

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

__all__ = ["DARK", "GREY", "PALE", "WARN", "Look", "looks", "worth", "write_stamps"]

DARK, GREY, PALE, WARN = "#222222", "#6b6b6b", "#d4d4d4", "#a11212"

# Okabe and Ito's colours without yellow, which is hard to see on white, ordered so that neighbours differ in grey too.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#000000", "#cc79a7", "#56b4e9", "#e69f00")
_MARKS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h")


@dataclass(frozen=True)
class Look:
    """How a model is drawn."""

    colour: str
    mark: str


def looks(models: Sequence[str]) -> dict[str, Look]:
    """The look of each model, by its place in the report, so that it is the same in all figures."""
    return {
        model: Look(_COLOURS[index % len(_COLOURS)], _MARKS[index % len(_MARKS)]) for index, model in enumerate(models)
    }


def worth(cells: Iterable[CellValues]) -> tuple[str, ...]:
    """Warnings to show with the numbers everywhere: weights without meaning, cases left out by a limit."""
    cells = list(cells)
    return stamps((cell.model, cell.weights) for cell in cells) + limit_stamps(cells)


def write_stamps(drawing: Drawing, lines: Sequence[str]) -> None:
    """Writes these lines above the drawing and makes it higher: a figure is often copied without its caption."""
    if not lines:
        return
    wrapped = [part for line in lines for part in textwrap.wrap(line, int(drawing.get_figwidth() * 16))]
    drawing.set_figheight(drawing.get_figheight() + 0.14 * len(wrapped) + 0.05)
    drawing.suptitle("\n".join(wrapped), x=0.01, ha="left", fontsize=7, color=WARN, fontweight="bold")
