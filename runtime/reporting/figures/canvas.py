"""The canvas of every drawing of a study: panels, values with their intervals, legend, and the finished figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..studies.writing import between
from .figure import Figure, finish
from .style import GREY, PAGE, Look, drawing_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing


@dataclass(frozen=True)
class Canvas:
    """A drawing with its panels, at most three in a row."""

    name: str
    drawing: Drawing
    panels: Sequence[Axes]

    def lines(self, names: Sequence[str], label: str) -> Axes:
        """The first panel with a name for each line, the first on top, and a grey line at 0."""
        axes = self.panels[0]
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.axvline(0, color=GREY, linewidth=0.6)
        axes.set_xlabel(label)
        return axes

    def legend(self, columns: int) -> None:
        """The names of all marks in lines of so many below the panels."""
        handles: dict[str, Any] = {}  # a model has a mark in each line or panel, and one name in the legend
        for axes in self.panels:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        self.drawing.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, frameon=False)

    def finished(self, title: str, caption: str, stamps: Sequence[str], legend: int = 0) -> Figure:
        """The figure, its stamps in the caption; legend: columns of a legend below the panels, 0 for none."""
        if legend:
            self.legend(legend)
        return finish(self.drawing, self.name, title, " ".join([caption, *(f"Note: {line}." for line in stamps)]))


@contextmanager
def canvas(name: str, height: float, panels: int = 1) -> Iterator[Canvas]:
    """An empty drawing as wide as a page, in the style of the reports; height: inches of a row of panels. Raises
    MissingExtraError without matplotlib."""
    with drawing_style(name):
        from matplotlib.figure import Figure as Drawing

        across = min(panels, 3)
        down = -(-panels // across)
        drawing = Drawing(figsize=(PAGE, height * down), layout="constrained")
        yield Canvas(name, drawing, [drawing.add_subplot(down, across, number + 1) for number in range(panels)])


@dataclass(frozen=True)
class Mark:
    """The number `key` of a row about a model, as a mark with its interval; scale: 100 draws fractions in percent."""

    row: Mapping[str, Any]
    key: str
    look: Look
    scale: float = 100

    def draw_interval(self, axes: Axes, place: float, *, upright: bool = False) -> None:
        """The line of its interval at a `place` of the other axis; nothing if it has none."""
        if ends := between(self.row, self.key):
            along, across = [self.scale * end for end in ends], [place, place]
            axes.plot(*((across, along) if upright else (along, across)), color=self.look.colour, linewidth=1)

    def draw(self, axes: Axes, place: float, *, upright: bool = False, filled: bool = True) -> None:
        """The mark and its interval at a `place` of the other axis."""
        self.draw_interval(axes, place, upright=upright)
        value = self.scale * self.row[self.key]
        axes.plot(
            *(([place], [value]) if upright else ([value], [place])),
            self.look.mark,
            color=self.look.colour,
            markerfacecolor=self.look.colour if filled else "white",
            markersize=4.5,
            label=self.row["model"],
        )


def dodged(number: int, count: int) -> float:
    """How far the `number`-th of `count` marks lies from the line that they share."""
    return 0.6 * ((number + 0.5) / count - 0.5)
