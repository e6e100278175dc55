"""All figures of a report."""

from __future__ import annotations

from ...results.numbers.run_numbers import Results
from .correlation import correlation_figure
from .curves import curves_figure
from .delta_dice import delta_figure
from .figure import Figure
from .recognition import recognition_figure

__all__ = ["all_figures"]


def all_figures(results: Results) -> list[Figure]:
    """Figures 2 to 4, without those for which no number exists. Raises MissingExtraError without matplotlib."""
    figures = [
        recognition_figure(results),
        correlation_figure(results, "model"),
        correlation_figure(results, "cell") if len(results.datasets) > 1 else None,
        delta_figure(results),
        curves_figure(results),
    ]
    return [figure for figure in figures if figure is not None]
