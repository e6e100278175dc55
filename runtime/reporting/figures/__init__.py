"""Numbers of a report -> figures 2 to 4, and the AUC.

figure                what a figure is, the numbers that are drawn, reproducible bytes
style                 colours and marks of models, sizes, fonts
axis_labels           names beside points
figure_2_overlays     maps over radiographs, findings x models
recognition_figure    AUC per model and dataset
figure_3_correlation  AUC against pointing
figure_4_dice         Dice at 0.5 and at the best threshold
figure_words          the zones of a thorax, true and stated in words
figure_4_thresholds   the Dice lost at threshold 0.5, and Dice over thresholds
"""

from __future__ import annotations

from ...results.numbers.run_numbers import Results
from .figure import Figure, planned
from .figure_4_dice import DICE
from .figure_4_thresholds import CURVES, DELTA
from .recognition_figure import RECOGNITION

__all__ = ["Figure", "all_figures"]


def all_figures(results: Results) -> list[Figure]:
    """The figures of numbers, without those for which no number exists. Raises MissingExtraError without matplotlib."""
    figures = [planned(results, RECOGNITION)]
    if len(results.cells) > 1:  # a line needs two points
        from .figure_3_correlation import correlation_figure

        figures.append(correlation_figure(results, "model"))
        figures.append(correlation_figure(results, "cell") if len(results.datasets) > 1 else None)
    figures += [planned(results, plan) for plan in (DICE, DELTA, CURVES)]
    return [figure for figure in figures if figure is not None]
