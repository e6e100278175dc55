"""The zones of a thorax by finding: how often each is true, and how often words state it (docs/words.md §8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ....metrics_gpu.zones.thorax_places import CELLS
from ..tables.table import ascii_stem
from ..word_scores import WordScores
from .figure import Figure, finish
from .style import DARK, PAGE, drawing_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST: int = 4
"""Files that one figure draws beside the truth."""

_DARK_FROM: float = 0.6  # numbers on darker zones are white


def word_figures(scores: Sequence[WordScores]) -> Iterator[Figure]:
    """A figure of each dataset with answers in words, controls and floors left out. Raises MissingExtraError without
    matplotlib."""
    for dataset in dict.fromkeys(found.dataset for found in scores):
        own = [found for found in scores if found.dataset == dataset and found.ranked][:_MOST]
        if own and len(own[0].stored.cell.class_of):
            yield _figure(own, f"words-{ascii_stem(dataset)}")


def _figure(scores: Sequence[WordScores], name: str) -> Figure:
    from matplotlib.figure import Figure as Drawing

    first = scores[0]
    cell = first.stored.cell
    findings = [place for place in range(len(cell.findings)) if (cell.class_of == place).any()]
    titles = ["true", *(found.model for found in scores)]
    shares = [[_shares(first, place, "true") for place in findings]]
    shares += [[_shares(found, place, "stated") for place in findings] for found in scores]
    with drawing_style(name):
        drawing = Drawing(figsize=(PAGE, 0.35 + 0.95 * len(titles)), layout="constrained")
        grid = drawing.subplots(len(titles), len(findings), squeeze=False)
        for row, (title, of_row) in enumerate(zip(titles, shares, strict=True)):
            for column, values in enumerate(of_row):
                axes = grid[row, column]
                _thorax(axes, values)
                if not row:
                    axes.set_title(cell.findings[findings[column]], loc="center", fontsize=7)
                if not column:
                    axes.set_ylabel(title, fontsize=7)
        sentences = [
            f"Zones of {first.title} by finding, patient's right (R) on the left: share of pairs, in percent, for "
            "which a zone is true, and for which words state it."
        ]
        for title, of_row in zip(titles, shares, strict=True):
            parts = (
                f"{cell.findings[place]} " + ", ".join(f"{c} {100 * v:.0f}" for c, v in zip(CELLS, values, strict=True))
                for place, values in zip(findings, of_row, strict=True)
            )
            sentences.append(f"{title}: {'; '.join(parts)}.")
        return finish(drawing, name, f"{first.title}: zones of the thorax", " ".join(sentences))


def _shares(found: WordScores, place: int, which: str) -> NDArray[np.float64]:
    """float64 [6]: the share of the pairs of a class with each cell; 0 where the file has no pair of it."""
    cells = getattr(found.words, which)[found.stored.cell.class_of == place]
    if not len(cells):
        return np.zeros(len(CELLS))
    return np.asarray((cells[:, None] >> np.arange(len(CELLS)) & 1).mean(axis=0))


def _thorax(axes: Axes, values: NDArray[np.float64]) -> None:
    """Six zones, two sides and three levels, with their shares."""
    image = values.reshape(2, 3).T
    axes.imshow(image, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    for (level, side), value in np.ndenumerate(image):
        colour = "white" if value > _DARK_FROM else DARK
        axes.text(side, level, f"{100 * value:.0f}", ha="center", va="center", fontsize=7, color=colour)
    axes.set_xticks([0, 1], ["R", "L"])
    axes.set_yticks([])
    axes.tick_params(length=0)
