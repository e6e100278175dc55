"""Names beside points, placed so that they cover neither points nor each other if there is room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ....engines.visible_text import visible_line
from .figure import settle
from .style import DARK

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Places of a name around its point: offset in points of the page, alignments. The first free place is used.
_PLACES = (
    (6, 0, "left", "center"),
    (-6, 0, "right", "center"),
    (0, 6, "center", "bottom"),
    (0, -6, "center", "top"),
    (5, 5, "left", "bottom"),
    (-5, 5, "right", "bottom"),
    (5, -5, "left", "top"),
    (-5, -5, "right", "top"),
    (0, 14, "center", "bottom"),
    (0, -14, "center", "top"),
)


def name_points(axes: Axes, names: Sequence[str], x: Sequence[float], y: Sequence[float]) -> None:
    """Writes each name beside its point (x, y in data units); call it when the axes have their final limits."""
    from matplotlib.transforms import Bbox

    drawing: Any = axes.figure
    settle(drawing)
    renderer = drawing.canvas.get_renderer()
    frame = axes.get_window_extent(renderer)
    spots = axes.transData.transform(list(zip(x, y, strict=True)))
    half = 4 * drawing.dpi / 72
    taken = [Bbox.from_extents(a - half, b - half, a + half, b + half) for a, b in spots]
    for line in axes.lines:  # names avoid lines too: a line is treated as a row of small boxes
        ends = line.get_transform().transform(line.get_xydata())
        steps = np.linspace(ends[0], ends[-1], 60)
        taken += [Bbox.from_extents(a - 2, b - 2, a + 2, b + 2) for a, b in steps]
    for name, a, b in zip(map(visible_line, names), x, y, strict=True):
        best: tuple[float, Any, Any] | None = None
        for dx, dy, ha, va in _PLACES:
            text = axes.annotate(name, (a, b), (dx, dy), textcoords="offset points", ha=ha, va=va, fontsize=7,
                                 color=DARK)  # fmt: skip
            box = text.get_window_extent(renderer)
            cost = sum(_common(box, other) for other in taken) + (box.width * box.height - _common(box, frame))
            if best is None or cost < best[0]:
                if best is not None:
                    best[1].remove()
                best = (cost, text, box)
            else:
                text.remove()
            if cost == 0:
                break
        assert best is not None
        taken.append(best[2])


def _common(one: Any, other: Any) -> float:
    """Area that two boxes share."""
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return float(width * height) if width > 0 and height > 0 else 0.0
