"""Numbers of a report -> figures 2 to 4.

figure        what a figure is, and how a drawing becomes the same bytes every time
style, labels colours and marks; names beside points
points        results -> the numbers that are drawn
recognition   figure 2: AUC per model and dataset
correlation   figure 3: AUC against pointing
delta_dice    figure 4: what a threshold of 0.5 costs
curves        figure 4, continued: Dice over thresholds
draw          all of them
"""

from __future__ import annotations

from .draw import all_figures
from .figure import Figure

__all__ = ["Figure", "all_figures"]
