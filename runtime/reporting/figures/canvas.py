"""The canvas of every drawing of a study: panels, legend, and the finished figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .figure import COLUMN, GREY, PAGE, Figure, drawing_style, finish

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

    def finished(self, title: str, caption: str, stamps: Sequence[str], legend: int = 0) -> Figure:
        """The figure, its stamps in the caption; legend: number of names in a line below the panels, 0 for none."""
        if legend:
            across = legend if self.drawing.get_figwidth() > COLUMN else 2
            self.drawing.legend(loc="outside lower center", ncols=across, frameon=False)
        return finish(self.drawing, self.name, title, " ".join([caption, *(f"Note: {line}." for line in stamps)]))


@contextmanager
def canvas(name: str, height: float, panels: int = 1, *, width: float = PAGE) -> Iterator[Canvas]:
    """An empty drawing in the style of the reports; height: of a
    panel; width: of the drawing, a page unless it has one panel and COLUMN is given. Raises MissingExtraError without
    matplotlib."""
    with drawing_style(name):
        from matplotlib.figure import Figure as Drawing

        across = min(panels, 3)
        down = -(-panels // across)
        drawing = Drawing(figsize=(width, height * down), layout="constrained")
        yield Canvas(name, drawing, [drawing.add_subplot(down, across, place + 1) for place in range(panels)])


def span(axes: Axes, ends: Sequence[float] | None, place: float, *, upright: bool = False, **look: Any) -> None:
    """The line of an interval at a `place` of the other axis; nothing if there is none."""
    if ends is not None:
        low_high, fixed = [ends[0], ends[1]], [place, place]
        axes.plot(*((fixed, low_high) if upright else (low_high, fixed)), **look)
